"""Numbers in sentences are read as a person reads them."""

from __future__ import annotations

import pytest

from brepfind.models.numbers import named_in


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
    assert named_in(text) == pytest.approx(lengths)


def test_any_text_is_read_without_an_error() -> None:
    for text in ("\u0000\u202e8\u00a0mm", "٣ mm", "²", "9" * 5000, "1/" * 400, "-5 mm", "1e400"):
        assert all(length > 0 for length in named_in(text))
