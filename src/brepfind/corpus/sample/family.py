"""What a family of sample parts is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

# What distinguishes one part of a family from the next: plain numbers, words and flags. Every
# entry shows in the geometry, so that parts of different facts have different shapes.
Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension that a caption may name.

    Attributes:
        value: millimetres, degrees, or a count.
        noun: what it is: ``outer diameter``; for a count its plural: ``holes``.
        after: what follows the quantity instead of the noun, such as ``long``; the noun if empty.
        symbol: its letter on a drawing, such as ``L``.
        kind: how the value is written.
    """

    value: float
    noun: str
    after: str = ""
    symbol: str = ""
    kind: Literal["length", "diameter", "count", "angle"] = "length"

    @classmethod
    def length(cls, value: float, noun: str, after: str = "", symbol: str = "") -> Dim:
        """A length in mm: ``Dim.length(40, "shank length", "long", "L")``."""
        return cls(value, noun, after, symbol, "length")

    @classmethod
    def diameter(cls, value: float, noun: str, after: str = "", symbol: str = "") -> Dim:
        """A diameter in mm, which may be written with Ø."""
        return cls(value, noun, after, symbol, "diameter")

    @classmethod
    def count(cls, value: int, noun: str) -> Dim:
        """A number of things: ``Dim.count(6, "bolt holes")``."""
        return cls(value, noun, "", "", "count")

    @classmethod
    def angle(cls, value: float, noun: str, after: str = "", symbol: str = "") -> Dim:
        """An angle in degrees."""
        return cls(value, noun, after, symbol, "angle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """All that can be said of one part; how it is said is not known here.

    Attributes:
        names: what people who know it call it; any of them says which family it is.
        broad: what people call it who do not know its name; several families may share these.
        looks: noun phrases that describe the shape without any name.
        uses: what it is for, to stand after "for".
        traits: what sets it apart from its family without a number; each is a tuple of ways to
            say the same, to stand after the noun: ``fully threaded``, ``with a keyway``.
        size: its designation, such as ``M8 x 40``; several ways to write it; may be empty.
        standards: standards it follows, such as ``ISO 4014``; may be empty.
        dims: dimensions, the most telling first; together with traits they tell all facts.
        longest: the longest side of its box, roughly, in mm; for words such as "small".
        inch: whether it is made in inches, so that captions give inches first.
    """

    names: tuple[str, ...]
    broad: tuple[str, ...]
    looks: tuple[str, ...]
    uses: tuple[str, ...]
    traits: tuple[tuple[str, ...], ...] = ()
    size: tuple[str, ...] = ()
    standards: tuple[str, ...] = ()
    dims: tuple[Dim, ...]
    longest: float
    inch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One kind of thing.

    Attributes:
        name: its folder and the beginning of its parts' ids.
        draw: facts of a random part; the same random state gives the same facts.
        build: a build123d shape of exactly one solid.
        words: what there is to say.
    """

    name: str
    draw: Callable[[Random], Facts]
    build: Callable[[Facts], Any]
    words: Callable[[Facts], Words]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One part that is to be made."""

    model_id: str
    family: str
    facts: Facts
