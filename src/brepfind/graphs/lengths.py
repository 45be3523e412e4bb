"""The lengths a person would name of a part, and lengths as a row of numbers that can be compared.

A caption says "M8 x 40"; the part has a cylinder of 8 mm and is 40 mm long. Both become the same
kind of row, one place for every quarter of an octave from 0.25 mm to 4 m, so that a model can see
at once that the one number is the other.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from brepfind.cad.arrays import EDGE_TYPES, PartArrays

# Octaves of a millimetre: the first and the last place, and how many places one octave has. At four
# of them M8 and M10 share no more than a fifth, and 40 mm and 41 mm are nearly one.
_LOW, _HIGH, _PER_OCTAVE = -2, 12, 4
LENGTH_PLACES = (_HIGH - _LOW) * _PER_OCTAVE + 1

_CIRCULAR = EDGE_TYPES.index("circular")


def named_lengths(part: PartArrays) -> NDArray[np.float64]:
    """The sides of a part's box and the diameters of its circular edges, mm, in no order."""
    facts = part.facts
    extent = np.subtract(facts.box_max, facts.box_min)
    mm_per_unit = extent.max() / 2.0  # a part fills a box of side 2
    grid = part.edge_grid[part.edge_type[:, _CIRCULAR] > 0].astype(np.float64)
    # Chord over the turn of the tangent, from one end to the middle: the ends of a full circle are
    # one point. Both directions of an edge give the same.
    middle = (grid.shape[1] - 1) // 2
    chord = np.linalg.norm(grid[:, middle, :3] - grid[:, 0, :3], axis=1)
    turn = np.linalg.norm(grid[:, middle, 3:6] - grid[:, 0, 3:6], axis=1)
    straight = turn < 1e-6
    diameters = 2.0 * chord[~straight] / turn[~straight]
    return np.concatenate([extent, diameters * mm_per_unit])


def length_row(lengths: Iterable[float]) -> NDArray[np.float32]:
    """Lengths in mm as float32 (LENGTH_PLACES,), each 0 to 1.

    A length lies between two places and is shared by them according to its nearness on the
    logarithmic scale; each place keeps the largest share it is given, so that naming a length twice
    changes nothing. Lengths out of range, zero and NaN leave no trace.
    """
    values = np.array([value for value in lengths if value > 0.0], np.float64)
    place = (np.log2(values) - _LOW) * _PER_OCTAVE
    return shared_row(place[(place >= 0) & (place <= LENGTH_PLACES - 1)], LENGTH_PLACES)


def shared_row(place: NDArray[np.float64], places: int) -> NDArray[np.float32]:
    """float32 (places,): what lies between two places is shared by them according to its nearness;
    each keeps the largest share it is given.

    Args:
        place: float64 (n,), 0 to ``places`` - 1.
    """
    row = np.zeros(places + 1, np.float32)
    left = np.floor(place).astype(np.int64)
    share = (place - left).astype(np.float32)
    np.maximum.at(row, left, 1.0 - share)
    np.maximum.at(row, left + 1, share)
    return row[:-1]
