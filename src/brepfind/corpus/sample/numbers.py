"""How a quantity is written: 8 mm, 8mm, Ø8, 0.315 in, 5/16", eight millimetres."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Literal

from brepfind.corpus.sample.family import Dim

MM_PER_INCH = 25.4

# "tight" has no blank before its unit, "bare" has no unit, "words" spells the number out.
Units = Literal["mm", "tight", "bare", "inch", "words"]

_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def quantity(dim: Dim, units: Units, rng: Random, inch: bool = False) -> str:
    """A dimension's value with its unit.

    Args:
        dim: what is measured.
        units: the way of writing.
        rng: for ways that do not matter, such as "mm" or "millimetres".
        inch: the part is made in inches, or the caption wants them.
    """
    if dim.kind == "count":
        return spelled(dim.value) if units == "words" else plain(dim.value)
    if dim.kind == "angle":
        return f"{spelled(dim.value)} degrees" if units == "words" else f"{plain(dim.value)}°"
    if inch or units == "inch":
        return _inches(dim.value, units, rng)
    if units == "bare":
        return plain(dim.value)
    if units == "words":
        return f"{spelled(dim.value)} {rng.choice(('millimetres', 'mil', 'mm', ''))}".strip()
    sign = "Ø" if dim.kind == "diameter" and rng.random() < 0.3 else ""
    if units == "tight":
        return f"{sign}{plain(dim.value)}mm"
    return f"{sign}{plain(dim.value)} {'mm' if rng.random() < 0.85 else 'millimetres'}"


def plain(value: float) -> str:
    """At most two decimals, none that are zero."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("", "-0") else text


def spelled(value: float) -> str:
    """A number in English words: 127.5 is "one hundred and twenty-seven point five"."""
    text = plain(abs(value))
    whole, _, decimals = text.partition(".")
    words = _whole(int(whole))
    if decimals:
        words += " point " + " ".join(_ONES[int(digit)] for digit in decimals)
    return words


def fraction(inches: float) -> str:
    """Inches as a whole number and a fraction down to 1/64, if it is one: 1.25 is "1-1/4"."""
    exact = Fraction(inches).limit_denominator(64)
    if abs(float(exact) - inches) > 1e-4 or exact.denominator & (exact.denominator - 1):
        return f"{inches:.3f}".rstrip("0").rstrip(".")
    whole, rest = divmod(exact.numerator, exact.denominator)
    if not rest:
        return str(whole)
    return f"{whole}-{rest}/{exact.denominator}" if whole else f"{rest}/{exact.denominator}"


def _inches(millimetres: float, units: Units, rng: Random) -> str:
    text = fraction(millimetres / MM_PER_INCH)
    if units == "bare":
        return text
    if units == "words":
        return f"{text} {rng.choice(('inches', 'inch', 'inches about'))}".replace(" about", "")
    return f"{text}{rng.choice((' in', ' inch', chr(34)))}"


def _whole(number: int) -> str:
    if number < 20:
        return _ONES[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _TENS[tens - 2] + (f"-{_ONES[ones]}" if ones else "")
    if number < 1000:
        hundreds, rest = divmod(number, 100)
        return f"{_ONES[hundreds]} hundred" + (f" and {_whole(rest)}" if rest else "")
    thousands, rest = divmod(number, 1000)
    return f"{_whole(thousands)} thousand" + (f" {_whole(rest)}" if rest else "")
