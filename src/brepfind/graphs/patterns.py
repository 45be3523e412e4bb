"""What repeats in a part: how many times, and how far apart.

"2x10, 2.54 mm pitch", "six holes": a person counts what looks alike. Faces of one kind and area
that face the same way are taken for copies of each other; how many there are, in how many rows, and
the steps between them become a row of numbers that can be compared with those of a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from brepfind.cad.arrays import PartArrays
from brepfind.graphs.lengths import LENGTH_PLACES, length_row, shared_row

# Counts up to the first limit have a place each; above it, so many places an octave up to the last.
_EXACT, _LAST, _PER_OCTAVE = 16, 512, 8
COUNT_PLACES = _EXACT - 1 + int(np.log2(_LAST / _EXACT)) * _PER_OCTAVE
PATTERN_PLACES = LENGTH_PLACES + COUNT_PLACES

_AREA_TOLERANCE = 2e-3  # of two copies, in natural logs
_NEAR = 1e-3  # box units: centroids closer than that along an axis stand in one row


def pattern_row(part: PartArrays) -> NDArray[np.float32]:
    """float32 (PATTERN_PLACES,): the steps and spans of the part's patterns, then their counts."""
    mm_per_unit = np.subtract(part.facts.box_max, part.facts.box_min).max() / 2.0
    steps: list[float] = []
    counts: list[int] = []
    for copies in _copies(part):
        centroids = part.face_centroid[copies].astype(np.float64)
        counts.append(len(copies))
        nearest = cKDTree(centroids).query(centroids, k=2)[0][:, 1]
        steps.append(float(np.median(nearest)))
        for along in np.sort(centroids, axis=0).T:
            gaps = np.diff(along)
            gaps = gaps[gaps > _NEAR]
            if len(gaps):
                counts.append(len(gaps) + 1)
                steps += [float(np.median(gaps)), float(along[-1] - along[0])]
    return numbers_row((step * mm_per_unit for step in steps), counts)


def numbers_row(lengths: Iterable[float], counts: Iterable[int]) -> NDArray[np.float32]:
    """float32 (PATTERN_PLACES,): a row of lengths in mm and one of counts, each of norm 1 or 0."""
    rows = [length_row(lengths), count_row(counts)]
    return np.concatenate([row / max(float(np.linalg.norm(row)), 1e-12) for row in rows])


def count_row(counts: Iterable[int]) -> NDArray[np.float32]:
    """Counts as float32 (COUNT_PLACES,), each 0 to 1, as lengths are in ``length_row``.

    Small counts share nothing with their neighbours: four holes are not five. One, and what is out
    of range, leaves no trace.
    """
    values = np.array([value for value in counts if 2 <= value <= _LAST], np.float64)
    beyond = _EXACT - 2 + np.log2(np.maximum(values, _EXACT) / _EXACT) * _PER_OCTAVE
    return shared_row(np.where(values <= _EXACT, values - 2, beyond), COUNT_PLACES)


def _copies(part: PartArrays) -> Iterator[NDArray[np.int64]]:
    """Numbers of faces that are copies of each other, two or more at a time."""
    inside = part.face_grid[..., 6:]
    normal = (part.face_grid[..., 3:6] * inside).sum((1, 2)) / np.maximum(inside.sum((1, 2)), 1.0)
    # In quarters: which way a face looks need not be known well, but 0 and 1 must not be borders
    # (nor the mean over a full cylinder, which its seam moves by a tenth on the usual grid).
    way = np.round(normal * 4).astype(np.int64)
    area = np.log(np.maximum(part.face_area.astype(np.float64), 1e-12))
    order = np.lexsort((area, way[:, 2], way[:, 1], way[:, 0], part.face_type))
    kind = np.column_stack([part.face_type, way])[order]
    other = (np.diff(kind, axis=0) != 0).any(axis=1) | (np.diff(area[order]) > _AREA_TOLERANCE)
    for copies in np.split(order, np.flatnonzero(other) + 1):
        if len(copies) > 1:
            yield copies
