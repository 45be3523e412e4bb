"""Numbers in sentences are read as a person reads them."""

from __future__ import annotations

import numpy as np
import pytest

from brepfind.graphs.lengths import LENGTH_PLACES, length_row
from brepfind.graphs.patterns import numbers_row
from brepfind.models.numbers import NUMBER_PLACES, named_in, sentence_numbers


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("", []),
        ("a small bracket", []),
        ("hex bolt M8 x 40", [8, 40]),
        ("M8x1.25", [8, 1.25]),
        ("Ø25h7, 10 mm", [25, 7, 10]),
        ("12,5 mm and 12.5mm", [12.5, 12.5]),
        ("1,500 mm", [1500]),
        ("eight millimetres by forty-five long", [8, 45]),
        ("one hundred and twenty-seven point five millimetres", [127.5]),
        ("ten centimetres, 0.3 m", [100, 300]),
        ('5/16" bolt, 1-1/4 in long', [25.4 * 5 / 16, 25.4 * 1.25]),
        ("a 1/2 socket", [12.7]),
        ("½ inch", [12.7]),
        ("2 feet", [609.6]),
        ("4 IN pipe", [101.6]),
        ("30° chamfer, 45 degrees", []),
        ("M20 DIN 6923, ISO 4014-1", [20]),
        ("3/0 and 0 mm", []),
        ("20mm min", [20]),
    ],
)
def test_lengths_named_in_a_sentence(text: str, lengths: list[float]) -> None:
    assert named_in(text).lengths == pytest.approx(lengths)


def test_any_text_is_read_without_an_error() -> None:
    for text in ("\u0000\u202e8\u00a0mm", "٣ mm", "²", "9" * 5000, "1/" * 400, "-5 mm", "1e400"):
        lengths, counts = named_in(text)
        assert all(length > 0 for length in lengths) and all(count > 0 for count in counts)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("2x10 pin header, 2.54 mm pitch", [2, 10]),
        ("six holes of 6.6 mm, M8", [6, 8]),  # whether M8 is a count cannot be told
        ("40 mm, 4.0 cm, 1/4, 30°, DIN 912", []),
        ("1x03", [1, 3]),
    ],
)
def test_counts_named_in_a_sentence(text: str, counts: list[int]) -> None:
    assert named_in(text).counts == counts


def test_rows_of_a_sentence() -> None:
    row = sentence_numbers(["M8"])[0].numpy()
    assert np.array_equal(row[:LENGTH_PLACES], length_row([8.0]))
    assert np.array_equal(row[LENGTH_PLACES:], numbers_row([8.0], [8]))
    assert sentence_numbers([]).shape == (0, NUMBER_PLACES)
