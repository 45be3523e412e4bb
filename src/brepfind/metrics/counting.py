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

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from brepfind.errors import CheckFailed
from brepfind.metrics.blocks import Counts, Scratch, count_lines, round_down, round_up
from brepfind.metrics.ranks import RankCounts
from brepfind.metrics.relevance import Relevance
from brepfind.metrics.rows import Rows, check_finite, merge_identical

# Scores closer than this are tied. Float32 embeddings of one part made in two batches differ by
# about 1e-7 per score, so finer differences say nothing; float64 rows are told apart further down.
TIE = 1e-6
TIE_64 = 1e-12

# Rows and columns of a block: few calls per score, and the scores are still in cache when compared.
BLOCK = (512, 2040)

# Fewer pairs than this are counted before threads have started.
_LITTLE = 20_000_000

# Above this share of undecided pairs a block is taken again in float64 as a whole.
_DENSE_SHARE = 0.01


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
        # |fl(a.b) - a.b| <= gamma |a| |b| in any order of summation, with or without fused
        # multiply-add, where gamma = D u / (1 - D u) (Higham 2002, section 3.1). Underflow of
        # products adds less than the last term.
        reach = self._q.norm * self._i.norm
        dim = queries.shape[1]
        self._error_32 = _gamma(dim + 2, 2.0**-24) * reach + dim * 1e-37
        # Both the block and the definition are rounded in float64.
        self._error_64 = 2.0 * _gamma(dim + 2, 2.0**-53) * reach + dim * 1e-300
        limit = np.finfo(queries.dtype).max / 4
        _require_scores_finite(reach, float(limit))

    @property
    def query_blocks(self) -> list[tuple[int, int]]:
        """Ranges of (merged) queries: the units of work."""
        return self._q.cuts(self._block[0])

    def run(self, part: int = 0, parts: int = 1, workers: int | None = None) -> Tallies:
        """The tallies of every ``parts``-th block of queries, starting with block ``part``.

        Args:
            workers: threads; as many as this process has cores if None, one for little work. With
                several, each computes its products alone: threads that share one product wait
                for each other at every block.
        """
        blocks = self.query_blocks[part::parts]
        if workers is None:
            pairs = len(self._q.rows) * len(self._i.rows) // parts
            workers = 1 if pairs < _LITTLE else len(os.sched_getaffinity(0))
        workers = max(1, min(workers, len(blocks)))
        if workers == 1:
            return self._run_blocks(blocks)
        shares = [blocks[k::workers] for k in range(workers)]
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
            first, *rest = pool.map(self._run_blocks, shares)
        return sum(rest, start=first)

    def _run_blocks(self, blocks: list[tuple[int, int]]) -> Tallies:
        n, m = len(self._q.rows), len(self._i.rows)
        tallies = Tallies(*(np.zeros(size, np.int64) for size in (n, n, m, m)))
        scratch = Scratch(min(self._block[0], n), min(self._block[1], m))
        columns = self._i.cuts(self._block[1])
        for a, b in blocks:
            for c, d in columns:
                self._tile(a, b, c, d, tallies, scratch)
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

    def _tile(self, a: int, b: int, c: int, d: int, tallies: Tallies, scratch: Scratch) -> None:
        """Add one block of scores: queries a to b, items c to d."""
        rows, columns = self._q.rows[a:b], self._i.rows[c:d]
        sides = self._sides(a, b, c, d, tallies)
        if rows.dtype == np.float32:
            found = self._sort_out(scratch, scratch.product(rows, columns), sides)
            if found is not None:
                for side, (above, q, i) in zip(sides, found, strict=True):
                    side.above[:] += above
                    side.reached[:] += above
                    self._count_pairs(side, q, i, rows, columns)
                return
        scores = rows.astype(np.float64) @ columns.T.astype(np.float64)
        for side in sides:
            self._count_wide(scores, side, rows, columns)

    def _sort_out(
        self, scratch: Scratch, scores: Rows, sides: list[_View]
    ) -> list[tuple[Counts, Counts, Counts]] | None:
        """Per side, how many of each line are surely above the upper threshold, and the pairs
        that the block cannot decide; None if these are so many that float64 is cheaper.
        """
        found = []
        for side in sides:
            margin = self._tie + self._error_32
            low = side.along(round_down(side.best - margin))
            high = side.along(round_up(side.best + margin))
            above, q, i = scratch.split(scores, low, high)
            if len(q) > _DENSE_SHARE * scores.size + 64:
                return None
            found.append((count_lines(above, side.axis, side.weights), q, i))
        return found

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

    def _count_pairs(self, side: _View, q: Counts, i: Counts, rows: Rows, columns: Rows) -> None:
        """Score pairs by the definition, and count them."""
        exact = pair_scores(rows, q, columns, i)
        line = q if side.axis == 0 else i
        side.add(side.above, q, i, exact > side.best[line] + self._tie)
        side.add(side.reached, q, i, exact >= side.best[line] - self._tie)

    def _count_wide(
        self, scores: NDArray[np.float64], side: _View, rows: Rows, columns: Rows
    ) -> None:
        """Count a float64 block: each threshold apart, and pairs on its edge by the definition."""
        for counts, threshold, strict in (
            (side.above, side.best + self._tie, True),
            (side.reached, side.best - self._tie, False),
        ):
            gap = scores - side.along(threshold)
            counts += count_lines(gap > self._error_64, side.axis, side.weights)
            q, i = np.nonzero(np.abs(gap) <= self._error_64)
            exact, limit = pair_scores(rows, q, columns, i), threshold[q if side.axis == 0 else i]
            side.add(counts, q, i, exact > limit if strict else exact >= limit)


@dataclass(frozen=True, slots=True)
class _View:
    """One direction of a block: what to compare its lines with, and where to add."""

    axis: int  # 0: lines are rows (queries); 1: lines are columns (items)
    best: NDArray[np.float64]
    weights: Counts | None  # of the other side; None where all are 1
    above: Counts
    reached: Counts

    def along(self, values: Rows) -> Rows:
        """A value per line, shaped to meet a block."""
        return values[:, None] if self.axis == 0 else values[None, :]

    def add(self, counts: Counts, q: Counts, i: Counts, kept: NDArray[np.bool_]) -> None:
        """Count the pairs (q, i) that are kept, each with its weight."""
        line, other = (q, i) if self.axis == 0 else (i, q)
        weight = kept if self.weights is None else kept * self.weights[other]
        counts += np.bincount(line, weight, minlength=len(self.best)).astype(np.int64)


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


def _gamma(terms: int, unit: float) -> float:
    return terms * unit / (1.0 - terms * unit)


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
