"""Charts: what is drawn is where it belongs, and is said in words."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, fromstring

import numpy as np
import pytest

from brepfind.report.charts import Series, histogram, lines, matrix, share_bar

NAN = float("nan")


def tree(markup: str) -> Element:
    return fromstring(markup)


def of_class(chart: Element, name: str) -> list[Element]:
    return [one for one in chart.iter() if name in (one.get("class") or "").split()]


def test_a_gap_is_a_gap() -> None:
    chart = tree(
        lines("Loss", [Series(name="a", x=[0, 1, 2, 3], y=[1, NAN, 2, 3])], x_label="epoch")
    )
    (path,) = of_class(chart, "line")
    assert re.sub(r"[\d. ]+", "", path.get("d") or "") == "MML"
    assert len(of_class(chart, "dot")) == 3


def test_higher_is_higher_and_later_is_to_the_right() -> None:
    chart = tree(lines("Loss", [Series(name="a", x=[0, 5, 10], y=[0, 2, 1])], x_label="epoch"))
    dots = of_class(chart, "dot")
    across = [float(dot.get("cx") or 0) for dot in dots]
    down = [float(dot.get("cy") or 0) for dot in dots]
    assert across[1] - across[0] == pytest.approx(across[2] - across[1], abs=0.11)
    assert down[0] - down[1] == pytest.approx(2 * (down[0] - down[2]), abs=0.21)
    assert dots[1].findtext("title") == "a, epoch 5: 2"


def test_it_says_in_words_what_it_shows() -> None:
    one = Series(name="CAD", x=[0, 1], y=[0.5, 0.25])
    none = Series(name="text", x=[0, 1], y=[NAN, NAN])
    chart = tree(lines("Cosine", [one, none], x_label="epoch", limit=(0.95, "≤ 0.95")))
    assert chart.get("role") == "img"
    assert chart.get("aria-label") == (
        "Cosine, over epoch. CAD: from 0.5 to 0.25. text: no number. Asked: ≤ 0.95."
    )
    (limit,) = of_class(chart, "limit")
    bottom = max(float(dot.get("cy") or 0) for dot in of_class(chart, "dot"))
    assert float((limit.get("d") or "").split()[-1]) < bottom  # above both


def test_names_from_outside_are_text() -> None:
    bad = '<script>"&'
    chart = tree(
        lines(bad, [Series(name=bad, x=[0], y=[1]), Series(name=bad, x=[0], y=[2])], x_label=bad)
    )
    assert not list(chart.iter("script"))
    assert (chart.get("aria-label") or "").startswith(bad)


@pytest.mark.parametrize("values", [[], [3], [3, 3, 3], [0, 0], list(range(1000))])
def test_a_histogram_counts_each_value_once(values: list[int]) -> None:
    chart = tree(histogram("Faces", values, x_label="faces"))
    titles = [bar.findtext("title") or "" for bar in of_class(chart, "bar")]
    assert sum(int(title.rpartition(": ")[2]) for title in titles) == len(values)


def test_sizes_are_binned_by_powers_of_ten() -> None:
    chart = tree(histogram("Sides", [1, 10, 100, 1000, NAN, 0], x_label="mm", log=True))
    left = [float(bar.get("x") or 0) for bar in of_class(chart, "bar")]
    assert len(left) == 4  # zero and what is no number have no power
    assert np.ptp(np.diff(left)) < 0.3
    assert "4 values from 1 to 1000" in (chart.get("aria-label") or "")


def test_shares_fill_the_bar() -> None:
    parts = list(tree(share_bar([0.5, 0.0, 0.25, 0.25])))
    assert [one.get("class") for one in parts] == ["s0", "s2", "s3"]
    assert [float(one.get("x") or 0) for one in parts] == [0, 50, 75]
    assert sum(float(one.get("width") or 0) for one in parts) == pytest.approx(100)


def test_a_constant_matrix_is_drawn() -> None:
    chart = tree(
        matrix("M", np.ones((3, 3)), [("a", 2), ("b", 1)], rows="r", columns="c", said="same")
    )
    assert chart.get("aria-label") == "M. same"
    assert len(of_class(chart, "border")) == 2
