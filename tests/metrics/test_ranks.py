"""Tables worked by hand for the one definition of a rank."""

import math
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

from brepfind.metrics.ranks import RankCounts, chance_counts, exact_mean, summarise
from brepfind.metrics.relevance import Relevance


def counts(*rows, n_items=10):
    better, tied, relevant = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return RankCounts(better, tied, relevant, n_items)


# (better, tied, tied_relevant): optimistic, pessimistic, expected, hit@1, hit@2, hit@5, 1/rank
HAND = {
    (0, 0, 1): (1, 1, 1.0, 1.0, 1.0, 1.0, 1.0),
    (2, 0, 1): (3, 3, 3.0, 0.0, 0.0, 1.0, 1 / 3),
    # one relevant among two tied: first or second with even chance
    (0, 1, 1): (1, 2, 1.5, 1 / 2, 1.0, 1.0, (1 + 1 / 2) / 2),
    # two relevant of three tied: the first relevant is at 1 (2/3) or at 2 (1/3)
    (0, 1, 2): (1, 2, 4 / 3, 2 / 3, 1.0, 1.0, (2 * 1 + 1 / 2) / 3),
    # one better, then one relevant of four tied: ranks 2, 3, 4, 5
    (1, 3, 1): (2, 5, 3.5, 0.0, 1 / 4, 1.0, (1 / 2 + 1 / 3 + 1 / 4 + 1 / 5) / 4),
}


@pytest.mark.parametrize("row", HAND)
def test_a_row_worked_by_hand(row):
    one = counts(row)
    low, high, expected, at_1, at_2, at_5, reciprocal = HAND[row]
    assert (one.optimistic[0], one.pessimistic[0]) == (low, high)
    assert one.expected[0] == pytest.approx(expected, abs=1e-15)
    assert [one.hits(k)[0] for k in (1, 2, 5)] == [at_1, at_2, at_5]
    assert one.reciprocal()[0] == pytest.approx(reciprocal, abs=1e-15)


@pytest.mark.parametrize("better", [0, 2])
@pytest.mark.parametrize(("tied", "relevant"), [(0, 1), (1, 1), (3, 1), (2, 2), (3, 3), (0, 2)])
def test_expectation_is_the_mean_over_all_orders_of_the_tied(better, tied, relevant):
    ranks = [
        better + 1 + order.index(True) for order in permutations([True] * relevant + [False] * tied)
    ]
    one = counts((better, tied, relevant))
    assert one.expected[0] == pytest.approx(sum(ranks) / len(ranks))
    assert one.reciprocal()[0] == pytest.approx(sum(1 / r for r in ranks) / len(ranks))
    for k in (1, 2, 3, 4, 50):
        assert one.hits(k)[0] == pytest.approx(sum(r <= k for r in ranks) / len(ranks))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 49, 1025, 7475])
def test_all_tied_gives_exactly_one_in_n(n):
    table = summarise(counts(*[(0, n - 1, 1)] * n, n_items=n))
    assert table["R_at_1"] == 1 / n
    assert table["median_rank"] == table["mean_rank"] == (n + 1) / 2
    assert (table["optimistic"]["R_at_1"], table["pessimistic"]["R_at_1"]) == (1.0, float(n == 1))


def test_k_beyond_the_gallery_is_the_whole_gallery():
    assert summarise(counts((0, 2, 1), n_items=3), ks=(50,))["R_at_50"] == 1.0


def test_a_query_without_an_answer_is_left_out_and_counted():
    table = summarise(counts((0, 0, 1), (0, 0, 0)))
    assert (table["n_queries"], table["n_unanswerable"], table["R_at_1"]) == (1.0, 1.0, 1.0)


def test_no_query_at_all_gives_no_number():
    table = summarise(counts((0, 0, 0)))
    assert table["n_queries"] == 0.0
    assert table["R_at_1"] is table["median_rank"] is table["tie_gap"] is None


def test_the_tie_gap_is_the_widest_between_the_extremes():
    table = summarise(counts((0, 1, 1), (0, 0, 1)), ks=(1, 5))
    assert table["optimistic"] == {"R_at_1": 1.0, "R_at_5": 1.0}
    assert table["pessimistic"] == {"R_at_1": 0.5, "R_at_5": 1.0}
    assert table["tie_gap"] == 0.5
    assert table["R_at_1"] == 0.75


def test_one_item_gallery():
    table = summarise(counts((0, 0, 1), n_items=1))
    assert (table["R_at_1"], table["n_items"]) == (1.0, 1.0)


def test_chance_counts_twins():
    relevance = Relevance.from_groups(np.array([0, 1, 9]), np.array([0, 0, 1, 2]))
    chance = chance_counts(relevance)
    assert chance.hits(1).tolist() == [2 / 4, 1 / 4, 0.0]
    assert summarise(chance)["R_at_1"] == 3 / 8


def test_exact_mean_rounds_once():
    values = np.array([0.1] * 10 + [0.7] * 3)
    exact = (Fraction(0.1) * 10 + Fraction(0.7) * 3) / 13
    assert exact_mean(values) == float(exact)
    assert math.isnan(exact_mean(np.zeros(0)))


def test_k_must_be_positive():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        counts((0, 0, 1)).hits(0)
