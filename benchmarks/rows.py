"""One row of a table of R@K: shares, and intervals that draw parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from brepfind.metrics.intervals import bootstrap_mean
from brepfind.metrics.ranks import RankCounts, exact_mean

KS = (1, 5, 10)
DRAWS = 10_000


def hits_of(counts: RankCounts) -> NDArray[np.float64]:
    """float64 (Q, 3), of each query at 1, 5 and 10."""
    assert counts.answerable.all()
    return np.stack([counts.hits(k) for k in KS], axis=1)


def row_of(hits: NDArray[np.float64], parts: NDArray[np.int64]) -> dict[str, Any]:
    """The shares of a row; ``parts`` int64 (Q,) says of which part each query is."""
    names = [f"R_at_{k}" for k in KS]
    return {
        "n_queries": len(hits),
        **{name: exact_mean(hits[:, i]) for i, name in enumerate(names)},
        "mean_recall": exact_mean(hits.mean(axis=1)),
        "interval_95": {
            name: list(bootstrap_mean(hits[:, i], parts, draws=DRAWS) or ())
            for i, name in enumerate(names)
        },
    }


def margin_of(
    hits: NDArray[np.float64], other: NDArray[np.float64], parts: NDArray[np.int64]
) -> dict[str, Any]:
    """By how much mean recall is above another's on the same queries, paired."""
    margin = (hits - other).mean(axis=1)
    return {
        "difference": exact_mean(margin),
        "interval_95": list(bootstrap_mean(margin, parts, draws=DRAWS) or ()),
    }
