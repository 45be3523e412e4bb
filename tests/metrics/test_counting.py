"""Blocked counts against a full matrix, for every block, order and number of processes."""

import multiprocessing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brepfind.errors import CheckFailed
from brepfind.metrics.counting import (
    TIE,
    TIE_64,
    RankJob,
    Tallies,
    count_both,
    count_ranks,
    pair_scores,
)
from brepfind.metrics.ranks import summarise
from brepfind.metrics.relevance import Relevance
from brepfind.metrics.rows import unit_rows

BLOCKS = [(1, 1), (1, 8), (8, 1), (3, 5), (7, 16), (16, 8), (512, 1024)]


def oracle(queries, items, relevance, tie):
    """(better, tied, tied_relevant) per query from the whole matrix, by the definition alone."""
    scores = np.array(
        [[(q.astype(np.float64) * i.astype(np.float64)).sum() for i in items] for q in queries]
    )
    relevant = np.zeros(scores.shape, bool)
    relevant[relevance.pairs()] = True
    rows = []
    for score, right in zip(scores, relevant, strict=True):
        best = score[right].max(initial=-np.inf)
        if best == -np.inf:
            rows.append((0, 0, 0))
            continue
        above, near = score > best + tie, score >= best - tie
        rows.append(((above & ~right).sum(), (near & ~above & ~right).sum(), (near & right).sum()))
    return rows


def as_rows(counts):
    return list(zip(counts.better, counts.tied, counts.tied_relevant, strict=True))


def make(kind, n_queries, n_items, dim, rng, dtype=np.float32):
    """Queries and items of a kind that has fooled a rank before."""
    items = rng.standard_normal((n_items, dim))
    queries = items[rng.integers(0, n_items, n_queries)] + rng.standard_normal((n_queries, dim))
    if kind == "constant":
        items[:] = queries[:] = 1.0
    elif kind == "constant_but_for_noise":
        items = 1.0 + 1e-6 * items
        queries = 1.0 + 1e-6 * queries
    elif kind == "copies":
        items = items[rng.integers(0, max(1, n_items // 3), n_items)]
    elif kind == "near_twins":
        items = items[rng.integers(0, max(1, n_items // 3), n_items)]
        items = items + 10.0 ** rng.uniform(-8, -3, (n_items, 1)) * rng.standard_normal((1, dim))
    elif kind == "same_rows":
        queries = items[rng.integers(0, n_items, n_queries)]
    return tuple(unit_rows("rows", rows.astype(dtype), dtype=dtype) for rows in (queries, items))


KINDS = ["healthy", "constant", "constant_but_for_noise", "copies", "near_twins", "same_rows"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_every_block_size_gives_the_full_matrix_counts(kind, dtype):
    rng = np.random.default_rng(KINDS.index(kind))
    queries, items = make(kind, 37, 45, 24, rng, dtype)
    relevance = Relevance.from_groups(rng.integers(0, 12, 37), rng.integers(0, 12, 45))
    tie = TIE if dtype == np.float32 else TIE_64
    there = oracle(queries, items, relevance, tie)
    back = oracle(items, queries, relevance.transpose(), tie)
    for block in BLOCKS:
        forward, backward = count_both(queries, items, relevance, block=block)
        assert as_rows(forward) == there, block
        assert as_rows(backward) == back, block
        assert as_rows(count_ranks(queries, items, relevance, block=block)) == there, block


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(KINDS),
    sizes=st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 9)),
    block=st.tuples(st.integers(1, 24), st.integers(1, 24)),
    tie=st.sampled_from([0.0, 1e-6, 0.1]),
)
def test_any_block_any_order_any_tolerance(seed, kind, sizes, block, tie):
    rng = np.random.default_rng(seed)
    queries, items = make(kind, *sizes, rng)
    groups = rng.integers(0, 5, sizes[0]), rng.integers(0, 5, sizes[1])
    relevance = Relevance.from_groups(*groups)
    forward, backward = count_both(queries, items, relevance, tie=tie, block=block)
    assert as_rows(forward) == oracle(queries, items, relevance, tie)
    assert as_rows(backward) == oracle(items, queries, relevance.transpose(), tie)

    order = rng.permutation(sizes[1])
    shuffled = Relevance.from_groups(groups[0], groups[1][order])
    again, again_back = count_both(queries, items[order], shuffled, tie=tie, block=block)
    assert as_rows(again) == as_rows(forward)
    assert as_rows(again_back) == [as_rows(backward)[i] for i in order]


@pytest.mark.parametrize("n", [1, 2, 3, 64, 1025])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("block", [(512, 1024), (7, 13)])
def test_a_constant_gallery_gives_exactly_one_in_n(n, dtype, block):
    rows = unit_rows("rows", np.full((n, 48), 0.3, dtype), dtype=dtype)
    own = np.arange(n)
    for counts in count_both(rows, rows, Relevance.from_groups(own, own), block=block):
        assert summarise(counts)["R_at_1"] == 1 / n


def test_constant_items_under_distinct_queries_give_exactly_one_in_n():
    n = 1025
    rng = np.random.default_rng(0)
    queries = unit_rows("rows", rng.standard_normal((n, 48)).astype(np.float32))
    items = unit_rows("rows", np.full((n, 48), 0.3, np.float32))
    own = np.arange(n)
    forward, backward = count_both(queries, items, Relevance.from_groups(own, own))
    assert summarise(forward)["R_at_1"] == 1 / n
    assert summarise(backward)["MRR"] == pytest.approx((1 / np.arange(1, n + 1)).mean(), rel=1e-9)


def test_near_twins_are_found_in_float64():
    """Families of rows 1e-4 apart: a cosine of 1 - 5e-9, which float32 cannot see."""
    rng = np.random.default_rng(0)
    family = np.repeat(rng.standard_normal((10, 64)), 20, axis=0)
    rows = unit_rows("rows", family + 1e-4 * rng.standard_normal(family.shape), dtype=np.float64)
    own = np.arange(200)
    relevance = Relevance.from_groups(own, own)
    assert summarise(count_ranks(rows, rows, relevance))["R_at_1"] == 1.0
    narrow = rows.astype(np.float32)
    assert summarise(count_ranks(narrow, narrow, relevance))["R_at_1"] == pytest.approx(1 / 20)


def test_directions_are_not_swapped():
    """Two queries, three items; scores worked by hand: [[.6, .8, 0], [1, 0, 0]]."""
    queries = np.array([[0.6, 0.8, 0], [1, 0, 0]], np.float32)
    items = np.eye(3, dtype=np.float32)
    relevance = Relevance.from_pairs(np.array([0, 1]), np.array([0, 2]), 2, 3)
    forward, backward = count_both(queries, items, relevance)
    assert as_rows(forward) == [(1, 0, 1), (1, 1, 1)]
    assert as_rows(backward) == [(1, 0, 1), (0, 0, 0), (0, 1, 1)]
    assert (forward.n_items, backward.n_items) == (3, 2)


def test_the_tolerance_is_inclusive_on_both_sides():
    items = np.array([[0.5], [0.5 + 2**-10], [0.5 - 2**-10], [0.5 + 2**-9], [0.25]], np.float64)
    relevance = Relevance.from_pairs(np.array([0]), np.array([0]), 1, 5)
    for tie, row in ((2**-10, (1, 2, 1)), (2**-9, (0, 3, 1)), (0.0, (2, 0, 1))):
        counts = count_ranks(np.ones((1, 1)), items, relevance, tie=tie)
        assert as_rows(counts) == [row]


def test_merged_rows_keep_their_multiplicity():
    """Five copies of a better item, three of a tied one: b = 5, t = 3 for each copy of a query."""
    items = np.array([[1.0]] * 5 + [[0.5]] * 4, np.float32)
    queries = np.ones((3, 1), np.float32)
    relevance = Relevance.from_pairs(np.arange(3), np.full(3, 8), 3, 9)
    for block in BLOCKS:
        forward, backward = count_both(queries, items, relevance, block=block)
        assert as_rows(forward) == [(5, 3, 1)] * 3
        assert as_rows(backward) == [(0, 0, 0)] * 8 + [(0, 0, 3)]


def test_wide_blocks_do_not_overflow_the_counting_bytes():
    n = 700
    queries = np.linspace(1, 2, n, dtype=np.float32)[:, None]
    items = np.linspace(1, 2, 3000, dtype=np.float32)[:, None]
    relevance = Relevance.from_pairs(np.arange(n), np.zeros(n, np.int64), n, 3000)
    for block in ((700, 3000), (512, 1024), (700, 2040)):
        forward, backward = count_both(queries, items, relevance, block=block)
        assert (forward.better == 2999).all()
        assert backward.better[0] == 0
    assert count_ranks(queries, items, relevance).tied.max() == 0
    lowest = Relevance.from_pairs(np.zeros(3000, np.int64), np.arange(3000), n, 3000)
    for block in ((700, 3000), (512, 1024), (700, 2040)):
        assert (count_both(queries, items, lowest, block=block)[1].better == n - 1).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", [0, 1])
def test_rows_that_are_not_finite_are_an_error_never_a_rank(bad, side):
    pair = [np.ones((8, 4), np.float32), np.ones((8, 4), np.float32)]
    pair[side][3, 2] = bad
    relevance = Relevance.from_groups(np.arange(8), np.arange(8))
    with pytest.raises(CheckFailed, match=r"1 of 8 embeddings hold NaN or infinity \(row 3\)"):
        count_both(*pair, relevance)


def test_scores_that_would_overflow_are_an_error():
    rows = np.full((2, 4), 1e30, np.float32)
    with pytest.raises(CheckFailed, match="do not fit their number format"):
        count_both(rows, rows, Relevance.from_groups(np.arange(2), np.arange(2)))


def test_shapes_and_types_must_fit():
    rows = np.ones((2, 4), np.float32)
    one_each = Relevance.from_groups(np.arange(2), np.arange(2))
    with pytest.raises(ValueError, match="float64"):
        count_ranks(rows, rows.astype(np.float64), one_each)
    with pytest.raises(ValueError, match="dimensions differ: 4 and 3"):
        count_ranks(rows, rows[:, :3].copy(), one_each)
    with pytest.raises(ValueError, match="relevance is for 2 x 2"):
        count_ranks(rows, rows[:1], one_each)
    with pytest.raises(ValueError, match="0 or more"):
        count_ranks(rows, rows, one_each, tie=-1.0)


def test_no_queries_or_no_relevant_items():
    rows = np.ones((3, 4), np.float32)
    none = Relevance.from_pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), 3, 3)
    forward, backward = count_both(rows, rows, none)
    assert as_rows(forward) == as_rows(backward) == [(0, 0, 0)] * 3
    empty = Relevance.from_pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), 0, 3)
    assert as_rows(count_ranks(rows[:0], rows, empty)) == []


def test_a_pair_scores_the_same_alone_and_among_others():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((50, 300)).astype(np.float32)
    q, i = rng.integers(0, 50, (2, 400))
    together = pair_scores(rows, q, rows, i)
    alone = [pair_scores(rows, q[k : k + 1], rows, i[k : k + 1])[0] for k in range(400)]
    assert together.tolist() == alone
    assert pair_scores(rows, i, rows, q).tolist() == alone


def _part_of_the_work(part):
    return _job().run(part, 2)


def _job():
    rng = np.random.default_rng(1)
    queries, items = make("near_twins", 90, 70, 16, rng)
    relevance = Relevance.from_groups(rng.integers(0, 30, 90), rng.integers(0, 30, 70))
    return RankJob(queries, items, relevance, block=(16, 24))


@pytest.mark.parametrize("workers", [2, 3, 50])
def test_threads_give_the_counts_of_one(workers):
    job = _job()
    shared = job.result(job.run(workers=workers))
    for together, alone in zip(shared, job.result(job.run(workers=1)), strict=True):
        assert as_rows(together) == as_rows(alone)


@pytest.mark.slow
def test_two_processes_give_the_counts_of_one():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        first, second = pool.map(_part_of_the_work, [0, 1])
    assert isinstance(first, Tallies)
    job = _job()
    for together, alone in zip(job.result(first + second), job.result(), strict=True):
        assert as_rows(together) == as_rows(alone)
