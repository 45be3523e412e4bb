"""How something grows with the corpus, and where it meets a limit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

# Below this share of the floor a rise is noise, and nothing can be said of how it goes on.
_NOISE = 0.1


@dataclass(frozen=True, slots=True)
class Growth:
    """``floor + rise * (n / at) ** exponent``.

    Attributes:
        floor: what it takes however few parts there are.
        at: the largest size measured. rise: above the floor there.
        exponent: NaN where the rise is noise: it is flat as far as was looked.
    """

    floor: float
    at: int
    rise: float
    exponent: float

    @property
    def flat(self) -> bool:
        """Whether nothing was seen to grow."""
        return math.isnan(self.exponent)

    def value(self, n: int) -> float:
        """What it takes at ``n`` parts."""
        return self.floor + (self.rise if self.flat else self.rise * (n / self.at) ** self.exponent)

    def reaches(self, limit: float) -> float:
        """At how many parts it takes ``limit``; infinite where it does not grow."""
        if self.flat or self.exponent <= 0:
            return math.inf
        left = max(limit - self.floor, 0.0)
        return float(self.at * (left / self.rise) ** (1 / self.exponent))


def grown(floor: float, values: Mapping[int, float]) -> Growth:
    """Fitted to measurements by size, by least squares of the logarithms above the floor.

    One size has no slope: it is taken to be in proportion, exponent 1.
    """
    at = max(values)
    rise = values[at] - floor
    if not rise > _NOISE * floor:
        return Growth(floor, at, max(rise, 0.0), math.nan)
    # A small size may lie in the noise of the floor; what it rises by is at least something.
    rises = {n: max(value - floor, 1e-3 * rise) for n, value in values.items()}
    if len(rises) == 1:
        return Growth(floor, at, rise, 1.0)
    exponent = np.polyfit(np.log(list(rises)), np.log(list(rises.values())), 1)[0]
    return Growth(floor, at, rise, float(exponent))
