"""Whether a part's nearest neighbour is of its own kind."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from brepfind.metrics.counting import TIE_64
from brepfind.metrics.rows import check_finite

# Of a block: the rows of one are as many as fit, however many others there are.
_MOST_SCORES = 2**24


def nearest_other_agrees(
    unit: NDArray[np.float64],
    labels: NDArray[np.int64],
    groups: NDArray[np.int64],
    block: int = 512,
) -> NDArray[np.float64]:
    """Per row, the chance that its nearest row of another group has its label.

    Args:
        unit: float64 (N, D), unit rows.
        labels: int64 (N,), such as the family.
        groups: int64 (N,); a row's own group (itself, its twins) is not looked at.

    Returns:
        float64 (N,): the share of its label among the tied nearest; NaN for a row of a label that
        no other group has, since nothing could agree.
    """
    check_finite("neighbours", unit)
    kinds: dict[int, set[int]] = {label: set() for label in labels.tolist()}
    for label, group in zip(labels.tolist(), groups.tolist(), strict=True):
        kinds[label].add(group)
    found = np.full(len(unit), np.nan)
    block = max(1, min(block, _MOST_SCORES // max(1, len(unit))))
    for a in range(0, len(unit), block):
        rows = slice(a, a + block)
        scores = unit[rows] @ unit.T
        scores[groups[rows, None] == groups[None, :]] = -np.inf
        best = scores.max(axis=1, keepdims=True)
        near = scores >= best - TIE_64
        same = (labels[rows, None] == labels[None, :]) & near
        found[rows] = same.sum(axis=1) / near.sum(axis=1)
    alone = np.array([len(kinds[label]) < 2 for label in labels.tolist()], bool)
    found[alone] = np.nan
    return found
