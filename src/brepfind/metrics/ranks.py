"""Retrieval ranks: the one definition, used by every table of this project.

A query's *rank* is the position of the first relevant item when the gallery is sorted by score,
best first, positions counted from 1. Items whose scores differ from the best relevant score by at
most the tie tolerance (``counting.TIE``) are *tied* with it, and a tie is counted by expectation:
as the mean over all orders of the tied items. So a gallery in which all embeddings are equal
gives R@1 of exactly 1/N, where a stable sort would give 1 (the relevant item happens to stand
first) and a strict comparison would give 1 as well.

For one query, with the best relevant score as the yardstick:

    better          b   irrelevant items that score higher by more than the tolerance
    tied            t   irrelevant items within the tolerance
    tied_relevant   r   relevant items within the tolerance, at least 1

    optimistic rank   b + 1
    pessimistic rank  b + t + 1
    expected rank     b + (t + r + 1) / (r + 1)
    hit at K          1 - C(t, m) / C(t + r, m) with m = min(K - b, t + r), and 0 if K <= b

R@K is the mean hit at K over queries: a hit by any relevant item counts, and once ("hit@K by
item"); with several relevant items it is not the share of them that was found. K beyond the
gallery is the whole gallery. A query without any relevant item has no rank: it is left out of the
mean and counted in ``n_unanswerable``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brepfind.metrics.relevance import Relevance

KS = (1, 5, 10, 50)


@dataclass(frozen=True, slots=True)
class RankCounts:
    """What a gallery's scores say about each query; see the module's text for b, t and r.

    Attributes:
        better, tied, tied_relevant: int64 (Q,); all 0 for a query without a relevant item.
        n_items: size of the gallery.
    """

    better: NDArray[np.int64]
    tied: NDArray[np.int64]
    tied_relevant: NDArray[np.int64]
    n_items: int

    @property
    def answerable(self) -> NDArray[np.bool_]:
        """Bool (Q,), whether a query has any relevant item."""
        return self.tied_relevant > 0

    def select(self, queries: NDArray[Any]) -> RankCounts:
        """The counts of some of the queries, by index or mask; the gallery stays the same."""
        return RankCounts(
            self.better[queries], self.tied[queries], self.tied_relevant[queries], self.n_items
        )

    @property
    def optimistic(self) -> NDArray[np.int64]:
        """int64 (Q,), the rank if every tie went the query's way."""
        return self.better + 1

    @property
    def pessimistic(self) -> NDArray[np.int64]:
        """int64 (Q,), the rank if every tie went against it."""
        return self.better + self.tied + 1

    @property
    def expected(self) -> NDArray[np.float64]:
        """float64 (Q,), the mean rank over all orders of the tied items."""
        return self.better + (self.tied + self.tied_relevant + 1) / (self.tied_relevant + 1)

    def hits(self, k: int) -> NDArray[np.float64]:
        """float64 (Q,), the chance that a relevant item is among the first ``k``."""
        if k < 1:
            raise ValueError(f"K must be at least 1, got {k}")
        places = np.clip(k - self.better, 0, self.tied + self.tied_relevant)
        return _per_kind(_hit, places, self.tied, self.tied_relevant)

    def reciprocal(self) -> NDArray[np.float64]:
        """float64 (Q,), the mean of 1/rank over all orders of the tied items."""
        return _per_kind(_reciprocal, self.better, self.tied, self.tied_relevant)


def chance_counts(relevance: Relevance) -> RankCounts:
    """The counts of a gallery in random order: every item is tied with every other."""
    relevant = relevance.counts
    tied = np.where(relevant > 0, relevance.n_items - relevant, 0)
    return RankCounts(np.zeros_like(tied), tied, relevant, relevance.n_items)


def exact_mean(values: NDArray[Any]) -> float:
    """The mean, rounded once: N values of 1/N have a mean of exactly 1/N. NaN if empty."""
    if not len(values):
        return math.nan
    kinds, counts = np.unique(values, return_counts=True)
    total = sum(
        (Fraction(float(kind)) * int(count) for kind, count in zip(kinds, counts, strict=True)),
        Fraction(0),
    )
    return float(total / len(values))


def summarise(counts: RankCounts, ks: Sequence[int] = KS) -> dict[str, Any]:
    """A table of one direction, ready for strict JSON.

    Returns:
        ``n_queries`` (answerable ones), ``n_items``, ``n_unanswerable``; then, if there is any
        query, ``R_at_K`` for each K, ``median_rank``, ``mean_rank``, ``MRR`` by expectation, the
        two extremes ``optimistic`` and ``pessimistic`` with ``R_at_K`` each, and ``tie_gap``, the
        widest gap between the two. Values are floats. Without a query the numbers are None.
    """
    kept = counts.select(counts.answerable)
    n = len(kept.better)
    table: dict[str, Any] = {
        "n_queries": float(n),
        "n_items": float(counts.n_items),
        "n_unanswerable": float(len(counts.better) - n),
    }
    names = [f"R_at_{k}" for k in ks]
    if n == 0:
        return table | dict.fromkeys([*names, "median_rank", "mean_rank", "MRR", "tie_gap"])
    table |= {name: exact_mean(kept.hits(k)) for name, k in zip(names, ks, strict=True)}
    expected = kept.expected
    table["median_rank"] = float(np.median(expected))
    table["mean_rank"] = exact_mean(expected)
    table["MRR"] = exact_mean(kept.reciprocal())
    for extreme in ("optimistic", "pessimistic"):
        rank = getattr(kept, extreme)
        table[extreme] = {
            name: exact_mean((rank <= k).astype(np.float64))
            for name, k in zip(names, ks, strict=True)
        }
    table["tie_gap"] = max(table["optimistic"][name] - table["pessimistic"][name] for name in names)
    return table


def _per_kind(function: Any, *columns: NDArray[np.int64]) -> NDArray[np.float64]:
    """Apply a function of plain integers once per distinct combination of them."""
    if not len(columns[0]):
        return np.zeros(0)
    kinds, inverse = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    values = np.array([function(*map(int, kind)) for kind in kinds], np.float64)
    return values[inverse.reshape(-1)]


def _hit(places: int, tied: int, relevant: int) -> float:
    """Chance that one of ``relevant`` is among the first ``places`` of the tied items."""
    if places <= 0 or relevant == 0:
        return 0.0
    # Whole numbers and one division: 1/N comes out as the float nearest to 1/N.
    orders = math.comb(tied + relevant, places)
    return (orders - math.comb(tied, places)) / orders


def _reciprocal(better: int, tied: int, relevant: int) -> float:
    if relevant == 0:
        return 0.0
    # P(the first relevant one stands at place j) = P(at j - 1) * (t - j + 2) / (t + r - j + 1)
    place = np.arange(1, tied + 2)
    steps = (tied - place[1:] + 2) / (tied + relevant - place[1:] + 1)
    chance = np.concatenate([[1.0], np.cumprod(steps)]) * relevant / (tied + relevant)
    return float((chance / (better + place)).sum())
