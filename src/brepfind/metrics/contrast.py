"""The contrastive loss of a whole set: how surely queries and items find each other, in float64.

Recall moves in steps of one query; this number moves with every weight, so that it tells whether a
checkpoint is the one that was trained.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from brepfind.metrics.counting import pair_scores
from brepfind.metrics.relevance import Relevance
from brepfind.metrics.rows import Rows, check_finite

# Of a block: the rows of one are as many as fit, however many others there are.
_MOST_SCORES = 2**24


def held_out_loss(
    queries: Rows, items: Rows, relevance: Relevance, scale: float, *, block: int = 512
) -> float:
    """The mean over both directions of minus the log of the softmax share of what is relevant.

    Every row meets all rows of the other side, unlike in training, where it meets its batch: the
    number depends on how many there are, and is compared over the same set only. Without scale it
    is the log of the number of rows over that of the relevant ones.

    Args:
        queries: (Q, D), items: (N, D), unit rows.
        relevance: which items answer which query; rows without any are left out.
        scale: what multiplies the cosines (exp of the logit scale).

    Returns:
        A number of 0 or more; NaN if no query has an answer.

    Raises:
        CheckFailed: if a row is not finite.
    """
    check_finite("queries", queries)
    check_finite("items", items)
    forward = _one_direction(queries, items, relevance, scale, block)
    return (forward + _one_direction(items, queries, relevance.transpose(), scale, block)) / 2


def _one_direction(
    rows: Rows, others: Rows, relevance: Relevance, scale: float, block: int
) -> float:
    kept = relevance.counts > 0
    if not kept.any():
        return float("nan")
    line, item = relevance.pairs()
    right = np.full(len(rows), -np.inf)
    np.logaddexp.at(right, line, scale * pair_scores(rows, line, others, item))
    block = max(1, min(block, _MOST_SCORES // len(others)))
    wide = others.T.astype(np.float64)
    total = np.concatenate(
        [
            _log_sum(scale * (rows[a : a + block].astype(np.float64) @ wide))
            for a in range(0, len(rows), block)
        ]
    )
    return float((total - right)[kept].mean())


def _log_sum(scores: NDArray[np.float64]) -> NDArray[Any]:
    """Log of the sum of exp over columns."""
    largest = scores.max(axis=1)
    return np.asarray(largest + np.log(np.exp(scores - largest[:, None]).sum(axis=1)))
