import numpy as np
import pytest

from brepfind.metrics.relevance import Relevance


def as_lists(table):
    return [table.items[a:b].tolist() for a, b in zip(table.starts, table.starts[1:], strict=False)]


def test_from_pairs_sorts_and_counts_a_pair_once():
    table = Relevance.from_pairs(np.array([2, 0, 2, 2]), np.array([1, 3, 0, 1]), 4, 5)
    assert as_lists(table) == [[3], [], [0, 1], []]
    assert table.counts.tolist() == [1, 0, 2, 0]
    assert (table.n_queries, table.n_items) == (4, 5)


def test_from_groups():
    table = Relevance.from_groups(np.array([5, 7, 6]), np.array([7, 5, 7]))
    assert as_lists(table) == [[1], [0, 2], []]


def test_from_group_sets():
    table = Relevance.from_group_sets([(1, 2), (), (3, 1)], np.array([2, 1, 1, 4]))
    assert as_lists(table) == [[0, 1, 2], [], [1, 2]]


def test_transpose_and_back():
    table = Relevance.from_group_sets([(1, 2), (), (3, 1)], np.array([2, 1, 1, 4]))
    assert as_lists(table.transpose()) == [[0], [0, 2], [0, 2], []]
    assert as_lists(table.transpose().transpose()) == as_lists(table)


def test_select():
    table = Relevance.from_pairs(np.array([0, 1, 1]), np.array([2, 0, 1]), 3, 3)
    assert as_lists(table.select(np.array([1, 2, 1]))) == [[0, 1], [], [0, 1]]


def test_indices_must_be_in_range():
    with pytest.raises(ValueError, match=r"item index outside 0\.\.2"):
        Relevance.from_pairs(np.array([0]), np.array([3]), 1, 3)
    with pytest.raises(ValueError, match=r"query index outside 0\.\.0"):
        Relevance.from_pairs(np.array([-1]), np.array([0]), 1, 3)
    with pytest.raises(ValueError, match="pairs do not match"):
        Relevance.from_pairs(np.array([0, 0]), np.array([0]), 1, 3)
