"""Intervals of a mean over queries, when the queries of one part hang together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def bootstrap_mean(
    values: NDArray[np.float64],
    units: NDArray[np.int64],
    *,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> tuple[float, float] | None:
    """Percentile interval of the mean of ``values``, drawing whole units with replacement.

    The four captions of a part are not four independent queries: a part is drawn with all of its
    queries or not at all.

    Args:
        values: float64 (Q,). units: int64 (Q,), equal for queries of one part.

    Returns:
        Lower and upper end, or None with fewer than two units: one part says nothing of spread.
    """
    _, unit = np.unique(units, return_inverse=True)
    n = int(unit.max()) + 1 if len(unit) else 0
    if n < 2:
        return None
    sums = np.stack([np.bincount(unit, values, n), np.bincount(unit, minlength=n)], axis=1)
    rng = np.random.default_rng(seed)
    step = max(1, 4_000_000 // n)
    means = []
    for start in range(0, draws, step):
        chosen = rng.integers(0, n, size=(min(step, draws - start), n))
        total = sums[chosen].sum(axis=1)
        means.append(total[:, 0] / total[:, 1])
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(np.concatenate(means), [tail, 1.0 - tail])
    return float(low), float(high)
