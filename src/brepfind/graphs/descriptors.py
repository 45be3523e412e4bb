"""About thirty simple numbers per part: what can be said of a shape without learning.

The ridge baseline sees all of them; a model may see those that do not depend on size beside its
graph embedding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from brepfind.cad.arrays import CONVEXITIES, EDGE_TYPES, FACE_TYPES, PartArrays

_EDGES = ("circular", "closed", "straight", "bspline")

DESCRIPTORS = (
    *(f"log_faces_{name}" for name in FACE_TYPES),
    *(f"log_edges_{name}" for name in _EDGES),
    *(f"log_edges_{name}" for name in CONVEXITIES),
    "log_faces",
    "log_edges",
    "log_inner_loops",
    "log_box_min",
    "log_box_mid",
    "log_box_max",
    "box_mid_over_max",
    "box_min_over_max",
    "log_volume",
    "log_area",
    "fill",
    "log_compactness",
    "curved_area_share",
)


_OF_SIZE = ("log_box_min", "log_box_mid", "log_box_max", "log_volume", "log_area")
SHAPE_FIELDS = tuple(name for name in DESCRIPTORS if name not in _OF_SIZE)
_SHAPE = np.array([DESCRIPTORS.index(name) for name in SHAPE_FIELDS])


def describe(part: PartArrays) -> NDArray[np.float64]:
    """float64 (len(DESCRIPTORS),), finite; logs of counts are log(1 + n), lengths in mm."""
    facts = part.facts
    low, mid, high = sorted(
        max(b - a, 1e-9) for a, b in zip(facts.box_min, facts.box_max, strict=True)
    )
    volume, area = max(facts.volume, 1e-12), max(facts.area, 1e-12)
    total = float(part.face_area.sum(dtype=np.float64))
    flat = float(part.face_area[part.face_type == 0].sum(dtype=np.float64))
    edges = part.edge_type.sum(axis=0, dtype=np.int64) // 2  # both directions are stored
    convexities = np.bincount(part.edge_convexity, minlength=len(CONVEXITIES)) // 2
    values = [
        *np.log1p(np.bincount(part.face_type, minlength=len(FACE_TYPES))),
        *np.log1p([edges[EDGE_TYPES.index(name)] for name in _EDGES]),
        *np.log1p(convexities),
        math.log1p(part.n_faces),
        math.log1p(part.n_edges // 2),
        math.log1p(int((part.face_loops.astype(np.int64) - 1).clip(0).sum())),
        math.log(low),
        math.log(mid),
        math.log(high),
        mid / high,
        low / high,
        math.log(volume),
        math.log(area),
        volume / (low * mid * high),
        math.log(area**1.5 / volume),
        1.0 - flat / total if total > 0 else 0.0,
    ]
    return np.array(values, np.float64)


def describe_all(parts: Iterable[PartArrays]) -> NDArray[np.float64]:
    """float64 (P, len(DESCRIPTORS))."""
    return np.array([describe(part) for part in parts]).reshape(-1, len(DESCRIPTORS))


def shape_features(part: PartArrays) -> NDArray[np.float32]:
    """float32 (len(SHAPE_FIELDS),), the descriptors that a scaled copy of the part shares."""
    return describe(part)[_SHAPE].astype(np.float32)
