"""The lengths and counts that a sentence names.

A tokenizer cuts 127.5 into pieces that say little of how long that is. Here numbers are read as
numbers: digits, fractions, words, with their unit where there is one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from text_to_num import alpha2digit
from torch import Tensor

from brepfind.graphs.lengths import LENGTH_PLACES, length_row
from brepfind.graphs.patterns import PATTERN_PLACES, numbers_row

_MM_PER_INCH = 25.4
# Millimetres in a unit; 0 where it measures no length.
_UNITS = {
    **dict.fromkeys(("mm", "mil", "millimetre", "millimeter", "millimetres", "millimeters"), 1.0),
    **dict.fromkeys(("cm", "centimetre", "centimeter", "centimetres", "centimeters"), 10.0),
    **dict.fromkeys(("m", "metre", "meter", "metres", "meters"), 1000.0),
    **dict.fromkeys(('"', "in", "inch", "inches"), _MM_PER_INCH),
    **dict.fromkeys(("ft", "foot", "feet"), 12 * _MM_PER_INCH),
    **dict.fromkeys(("°", "%", "degree", "degrees", "kg", "g"), 0.0),
}
_UNIT = "|".join(name + r"\b" * name.isalpha() for name in _UNITS)
_NUMBER = re.compile(
    rf"""(?:(?:(?P<whole>\d+)[ -])?(?P<over>\d+)/(?P<under>\d+)   # 3/8, 1-1/4, 1 1/4
        |(?P<decimal>\d{{1,3}}(?:,\d{{3}})+|\d+(?:[.,]\d+)?|\.\d+))  # 1,500; 12.5; 12,5; .5
        (?:[ -]?(?P<unit>{_UNIT}))?""",
    re.VERBOSE,
)
# The number of a standard is no measure: DIN 6923, ISO 4014-1, EN 10058.
_STANDARD = re.compile(r"\b(?:din|iso|en|asme|ansi|jis|iec|uni|bs|gost)\b[ a-z]{0,4}[\d./:-]+")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")


# Columns of what is compared for a sentence: its lengths with the lengths one would name of a part,
# its lengths and counts with what repeats in it.
NUMBER_PLACES = LENGTH_PLACES + PATTERN_PLACES


class Named(NamedTuple):
    """Numbers in a sentence's order; ``lengths`` in mm."""

    lengths: list[float]
    counts: list[int]


def named_in(text: str) -> Named:
    """The numbers in ``text`` that measure or count.

    A number without a unit is taken for millimetres, a bare fraction for inches. Counts (three
    holes) cannot be told from lengths: a whole number without a unit is both. Angles, weights and
    the numbers of standards are neither.
    """
    # NFKC writes the half sign as 1, a fraction slash, 2.
    plain = unicodedata.normalize("NFKC", text).replace("\u2044", "/").casefold()
    plain = _STANDARD.sub(" ", alpha2digit(plain, "en"))
    lengths, counts = [], []
    for match in _NUMBER.finditer(plain):
        is_fraction = match["over"] is not None
        if is_fraction and int(match["under"]) == 0:
            continue
        value = (
            int(match["whole"] or 0) + int(match["over"]) / int(match["under"])
            if is_fraction
            else _decimal(match["decimal"])
        )
        bare = _MM_PER_INCH if is_fraction else 1.0
        value *= _UNITS[match["unit"]] if match["unit"] else bare
        if value > 0.0:
            lengths.append(value)
        if not match["unit"] and not is_fraction and value.is_integer():
            counts.append(int(value))
    return Named(lengths, counts)


def sentence_numbers(texts: Sequence[str]) -> Tensor:
    """float32 (len(texts), NUMBER_PLACES), the rows of the numbers that each sentence names."""
    rows = []
    for text in texts:
        lengths, counts = named_in(text)
        rows.append(np.concatenate([length_row(lengths), numbers_row(lengths, counts)]))
    return torch.from_numpy(np.stack(rows)) if rows else torch.zeros(0, NUMBER_PLACES)


def _decimal(text: str) -> float:
    grouped = _THOUSANDS.fullmatch(text) is not None
    return float(text.replace(",", "" if grouped else "."))
