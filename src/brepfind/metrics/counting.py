"""Counting, block by block, the items that beat or tie a query's best relevant item.

The score of a pair is the dot product of its two rows, summed in float64 in one fixed order
(:func:`pair_scores`). That is the definition; nothing else is ever a score. Products of whole
blocks only *sort pairs out*: a block product and the definition differ by less than a rigorous
bound, so a pair further than that from a threshold is decided by the block, and every pair within
it is scored again by the definition. The counts are therefore the same for every block size, any
order of the gallery, and any number of processes, down to collapsed and near-twin galleries,
although the blocks are float32.

What goes wrong otherwise, all seen: equal rows do not tie across blocks (a block's shape decides
the order of summation), an own score from a separate product makes a constant gallery score
0.47, bfloat16 scores make near-twins tie.

Shapes: Q queries, N items, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from brepfind.errors import CheckFailed
from brepfind.metrics.ranks import RankCounts
from brepfind.metrics.relevance import Relevance
from brepfind.metrics.rows import Rows, check_finite, merge_identical

# Scores closer than this are tied. Float32 embeddings of one part made in two batches differ by
# about 1e-7 per score, so finer differences say nothing; float64 rows are told apart further down.
TIE = 1e-6
TIE_64 = 1e-12

# Rows and columns of a block: two megabytes of float32 scores stay in cache for the comparisons.
BLOCK = (512, 1024)

# Above this share of undecided pairs a block is taken again in float64 as a whole.
_DENSE_SHARE = 0.01

Counts = NDArray[np.int64]


def count_ranks(
    queries: Rows,
    items: Rows,
    relevance: Relevance,
    *,
    tie: float | None = None,
    block: tuple[int, int] = BLOCK,
) -> RankCounts:
    """The counts of each query against all items.

    Args:
        queries: (Q, D), float32 or float64; finite. Cosine scores need unit rows.
        items: (N, D), of the same dtype.
        relevance: which items answer which query.
        tie: scores this close are tied; ``TIE`` for float32 and ``TIE_64`` for float64 if None.
        block: rows and columns of a block of scores; changes speed and memory, never a result.

    Raises:
        CheckFailed: if a row, or a score that could arise, is not finite.
    """
    return RankJob(queries, items, relevance, tie=tie, block=block, backward=False).result()[0]


def count_both(
    queries: Rows,
    items: Rows,
    relevance: Relevance,
    *,
    tie: float | None = None,
    block: tuple[int, int] = BLOCK,
) -> tuple[RankCounts, RankCounts]:
    """The counts of each query against all items and of each item against all queries, from one
    pass over the scores. Arguments and errors as for :func:`count_ranks`.
    """
    forward, backward = RankJob(queries, items, relevance, tie=tie, block=block).result()
    return forward, backward


def pair_scores(queries: Rows, q: Counts, items: Rows, i: Counts) -> NDArray[np.float64]:
    """The score of each pair (q[k], i[k]): float64, the same whatever else is asked for."""
    scores = np.empty(len(q))
    step = max(1, 4_000_000 // max(1, queries.shape[1]))
    for a in range(0, len(q), step):
        part = slice(a, a + step)
        products = queries[q[part]].astype(np.float64) * items[i[part]]
        products.sum(axis=1, out=scores[part])
    return scores


@dataclass(frozen=True, slots=True)
class _Side:
    """One side's rows, merged, with the score that each has to be compared with.

    Rows that are equal and have the same threshold are one row with a weight; single ones stand
    first, so that most blocks need no weights.
    """

    rows: Rows  # (U, D)
    weights: Counts  # (U,)
    singles: int  # rows before this one have weight 1
    inverse: Counts  # (N,) the merged row of every given row
    best: NDArray[np.float64]  # (U,) best relevant score; infinite where there is none
    norm: float  # longest row

    @classmethod
    def merged(cls, rows: Rows, best: NDArray[np.float64]) -> _Side:
        first, inverse = merge_identical(rows, best)
        weights = np.bincount(inverse, minlength=len(first))
        order = np.argsort(weights > 1, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        first, weights = first[order], weights[order]
        kept = np.ascontiguousarray(rows[first])
        wide = np.sqrt(np.einsum("nd,nd->n", kept, kept, dtype=np.float64))
        return cls(
            kept,
            weights.astype(np.int64),
            int((weights == 1).sum()),
            place[inverse],
            best[first],
            float(wide.max(initial=0.0)),
        )

    def cuts(self, size: int) -> list[tuple[int, int]]:
        """Ranges of at most ``size`` rows, none with single and merged rows mixed."""
        edges = [*range(0, self.singles, size), *range(self.singles, len(self.rows), size)]
        return list(pairwise([*edges, len(self.rows)]))


@dataclass(slots=True)
class Tallies:
    """Whole numbers that add up over parts of the work: per merged query and per merged item, the
    (weighted) number of others above the upper threshold, and at or above the lower one.
    """

    above: Counts
    reached: Counts
    above_back: Counts
    reached_back: Counts

    def __add__(self, other: Tallies) -> Tallies:
        return Tallies(
            self.above + other.above,
            self.reached + other.reached,
            self.above_back + other.above_back,
            self.reached_back + other.reached_back,
        )


class RankJob:
    """The same work in parts: several processes may each :meth:`run` one, and their tallies add.

    Arguments and errors as for :func:`count_ranks`; ``backward=False`` leaves items unranked.
    """

    def __init__(
        self,
        queries: Rows,
        items: Rows,
        relevance: Relevance,
        *,
        tie: float | None = None,
        block: tuple[int, int] = BLOCK,
        backward: bool = True,
    ) -> None:
        _check(queries, items, relevance)
        self._relevance, self._backward, self._block = relevance, backward, block
        self._tie = tie if tie is not None else (TIE if queries.dtype == np.float32 else TIE_64)
        if not self._tie >= 0.0:
            raise ValueError(f"the tie tolerance must be 0 or more, got {self._tie}")
        q, i = relevance.pairs()
        scores = pair_scores(queries, q, items, i)
        best, self._tied_relevant = _best(scores, q, len(queries), self._tie)
        self._q = _Side.merged(queries, best)
        back = np.full(len(items), np.inf)
        if backward:
            back, self._tied_relevant_back = _best(scores, i, len(items), self._tie)
        self._i = _Side.merged(items, back)
        # |fl(a.b) - a.b| <= D u |a| |b| to first order, in any order of summation; doubled to
        # cover the rest, and the rounding of the thresholds themselves.
        reach = self._q.norm * self._i.norm
        self._error_32 = 2.0 * (queries.shape[1] + 2) * 2.0**-24 * reach + 1e-37
        self._error_64 = 2.0 * (queries.shape[1] + 2) * 2.0**-53 * reach + 1e-300
        limit = np.finfo(queries.dtype).max / 4
        _require_scores_finite(reach, float(limit))

    def run(self, part: int = 0, parts: int = 1) -> Tallies:
        """The tallies of every ``parts``-th block of queries, starting with block ``part``."""
        zeros = [
            np.zeros(len(side.rows), np.int64) for side in (self._q, self._q, self._i, self._i)
        ]
        tallies = Tallies(*zeros)
        columns = self._i.cuts(self._block[1])
        for a, b in self._q.cuts(self._block[0])[part::parts]:
            for c, d in columns:
                self._tile(a, b, c, d, tallies)
        return tallies

    def result(self, tallies: Tallies | None = None) -> tuple[RankCounts, RankCounts]:
        """The counts in both directions from the tallies of all parts (made here if None)."""
        tallies = tallies if tallies is not None else self.run()
        forward = _finish(
            tallies.above, tallies.reached, self._q, self._tied_relevant, self._relevance.n_items
        )
        if not self._backward:
            return forward, forward
        return forward, _finish(
            tallies.above_back,
            tallies.reached_back,
            self._i,
            self._tied_relevant_back,
            self._relevance.n_queries,
        )

    def _tile(self, a: int, b: int, c: int, d: int, tallies: Tallies) -> None:
        """Add one block of scores: queries a to b, items c to d."""
        rows, columns = self._q.rows[a:b], self._i.rows[c:d]
        wide = rows.dtype == np.float64
        scores = rows @ columns.T
        error = self._error_64 if wide else self._error_32
        sides = self._sides(a, b, c, d, tallies)
        if not wide:
            found = [_sort_out(scores, side, self._tie, error) for side in sides]
            undecided = sum(int((reached - above).sum()) for above, reached in found)
            if undecided > _DENSE_SHARE * scores.size * len(sides):
                scores, error = (
                    rows.astype(np.float64) @ columns.T.astype(np.float64),
                    self._error_64,
                )
                wide = True
        if wide:
            for side in sides:
                self._count_wide(scores, side, error, rows, columns)
            return
        for side, (above, reached) in zip(sides, found, strict=True):
            side.above[:] += above
            self._recount(scores, side, above, reached, error, rows, columns)

    def _sides(self, a: int, b: int, c: int, d: int, tallies: Tallies) -> list[_View]:
        forward = _View(
            0,
            self._q.best[a:b],
            None if d <= self._i.singles else self._i.weights[c:d],
            tallies.above[a:b],
            tallies.reached[a:b],
        )
        if not self._backward:
            return [forward]
        return [
            forward,
            _View(
                1,
                self._i.best[c:d],
                None if b <= self._q.singles else self._q.weights[a:b],
                tallies.above_back[c:d],
                tallies.reached_back[c:d],
            ),
        ]

    def _recount(
        self,
        scores: Rows,
        side: _View,
        above: Counts,
        reached: Counts,
        error: float,
        rows: Rows,
        columns: Rows,
    ) -> None:
        """Score the undecided pairs of a float32 block by the definition, and count them."""
        side.reached[:] += above
        open_lines = np.flatnonzero(reached > above)
        if not len(open_lines):
            return
        lines = scores[open_lines] if side.axis == 0 else scores[:, open_lines].T
        best = side.best[open_lines, None]
        near = (lines >= _down(best - self._tie - error)) & (lines <= _up(best + self._tie + error))
        line, other = np.nonzero(near)
        line = open_lines[line]
        self._count_pairs(side, line, other, rows, columns)

    def _count_pairs(
        self, side: _View, line: Counts, other: Counts, rows: Rows, columns: Rows
    ) -> None:
        q, i = (line, other) if side.axis == 0 else (other, line)
        exact = pair_scores(rows, q, columns, i)
        weight = np.ones(len(line)) if side.weights is None else side.weights[other]
        best = side.best[line]
        n = len(side.best)
        for counts, kept in (
            (side.above, exact > best + self._tie),
            (side.reached, exact >= best - self._tie),
        ):
            counts += np.bincount(line, weight * kept, minlength=n).astype(np.int64)

    def _count_wide(
        self, scores: Rows, side: _View, error: float, rows: Rows, columns: Rows
    ) -> None:
        """Count a float64 block: each threshold apart, and pairs on its edge by the definition."""
        best = side.best[:, None] if side.axis == 0 else side.best[None, :]
        n = len(side.best)
        for counts, threshold, strict in (
            (side.above, best + self._tie, True),
            (side.reached, best - self._tie, False),
        ):
            with np.errstate(invalid="ignore"):  # infinite where there is no relevant item
                gap = scores - threshold
            counts += _count(gap > error, side)
            q, i = np.nonzero(np.abs(gap) <= error)
            if not len(q):
                continue
            line, other = (q, i) if side.axis == 0 else (i, q)
            exact = pair_scores(rows, q, columns, i)
            limit = np.broadcast_to(threshold, scores.shape)[q, i]
            kept = exact > limit if strict else exact >= limit
            weight = np.ones(len(line)) if side.weights is None else side.weights[other]
            counts += np.bincount(line, weight * kept, minlength=n).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _View:
    """One direction of a block: what to compare its lines with, and where to add."""

    axis: int  # 0: lines are rows (queries); 1: lines are columns (items)
    best: NDArray[np.float64]
    weights: Counts | None  # of the other side; None where all are 1
    above: Counts
    reached: Counts


def _check(queries: Rows, items: Rows, relevance: Relevance) -> None:
    check_finite("queries", queries)
    check_finite("items", items)
    if queries.dtype != items.dtype or queries.dtype not in (np.float32, np.float64):
        raise ValueError(
            f"need float32 or float64 on both sides, got {queries.dtype} and {items.dtype}"
        )
    if queries.shape[1] != items.shape[1]:
        raise ValueError(f"dimensions differ: {queries.shape[1]} and {items.shape[1]}")
    if (relevance.n_queries, relevance.n_items) != (len(queries), len(items)):
        raise ValueError(
            f"relevance is for {relevance.n_queries} x {relevance.n_items}, "
            f"embeddings are {len(queries)} x {len(items)}"
        )


def _require_scores_finite(reach: float, limit: float) -> None:
    if not reach < limit:
        raise CheckFailed(
            f"scores of up to {reach:g} do not fit their number format: "
            "make the embeddings unit length first"
        )


def _best(
    scores: NDArray[np.float64], line: Counts, n: int, tie: float
) -> tuple[NDArray[np.float64], Counts]:
    """The best score of each line, infinite where it has none, and how many tie with it."""
    best = np.full(n, -np.inf)
    np.maximum.at(best, line, scores)
    tied = np.bincount(line, scores >= best[line] - tie, minlength=n).astype(np.int64)
    return np.where(np.isneginf(best), np.inf, best), tied


def _finish(
    above: Counts, reached: Counts, side: _Side, tied_relevant: Counts, n_others: int
) -> RankCounts:
    better = above[side.inverse]
    # The relevant items were counted with the rest, by the same scores; here they come out.
    tied = reached[side.inverse] - better - tied_relevant
    assert (tied >= 0).all()
    return RankCounts(better, tied, tied_relevant, n_others)


def _sort_out(scores: Rows, side: _View, tie: float, error: float) -> tuple[Counts, Counts]:
    """Per line, how many are surely above the upper threshold, and how many perhaps reach the
    lower one; what lies between is undecided.
    """
    shape = (-1, 1) if side.axis == 0 else (1, -1)
    high = _up(side.best + tie + error).reshape(shape)
    low = _down(side.best - tie - error).reshape(shape)
    return _count(scores > high, side), _count(scores >= low, side)


def _count(mask: NDArray[np.bool_], side: _View) -> Counts:
    """The (weighted) number of true entries of each line."""
    if side.weights is not None:
        weights = side.weights.astype(np.float64)
        found = mask @ weights if side.axis == 0 else weights @ mask
        return np.asarray(found).astype(np.int64)
    return _count_rows(mask) if side.axis == 0 else _count_columns(mask)


def _count_rows(mask: NDArray[np.bool_]) -> Counts:
    """True entries per row. Eight are added at once as the bytes of a 64-bit word, which holds
    as long as no byte can pass 255.
    """
    n, m = mask.shape
    if m % 8 or m > 8 * 255 or not mask.flags.c_contiguous:
        return np.count_nonzero(mask, axis=1).astype(np.int64)
    lanes = np.add.reduce(mask.view(np.uint64), axis=1)
    return lanes.view(np.uint8).reshape(n, 8).sum(axis=1, dtype=np.int64)


def _count_columns(mask: NDArray[np.bool_]) -> Counts:
    """True entries per column, in the same way, 255 rows at a time."""
    n, m = mask.shape
    if m % 8 or not mask.flags.c_contiguous:
        return np.count_nonzero(mask, axis=0).astype(np.int64)
    words = mask.view(np.uint64)
    total = np.zeros(m, np.int64)
    for a in range(0, n, 255):
        total += np.add.reduce(words[a : a + 255], axis=0).view(np.uint8)
    return total


def _up(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rounded to float32, never below the value."""
    near = values.astype(np.float32)
    return np.where(near < values, np.nextafter(near, np.float32(np.inf)), near)


def _down(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rounded to float32, never above the value."""
    near = values.astype(np.float32)
    return np.where(near > values, np.nextafter(near, np.float32(-np.inf)), near)
