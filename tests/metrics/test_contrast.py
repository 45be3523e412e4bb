"""The loss of a whole set, against numbers worked by hand and against torch."""

import math

import numpy as np
import pytest
import torch

from brepfind.errors import CheckFailed
from brepfind.metrics.contrast import held_out_loss
from brepfind.metrics.relevance import Relevance
from brepfind.metrics.rows import unit_rows

OWN = Relevance.from_groups(np.arange(2), np.arange(2))


def test_two_pairs_by_hand():
    """Each row has the score 2 with its own and 0 with the other: -log(e^2 / (e^2 + 1))."""
    assert held_out_loss(np.eye(2), np.eye(2), OWN, 2.0) == pytest.approx(math.log1p(math.exp(-2)))


def test_equal_rows_give_the_log_of_their_number():
    rows = np.tile([1.0, 0.0], (6, 1))
    own = Relevance.from_groups(np.arange(6), np.arange(6))
    assert held_out_loss(rows, rows, own, 50.0) == pytest.approx(math.log(6))
    twins = Relevance.from_groups(np.arange(6) // 2, np.arange(6) // 2)
    assert held_out_loss(rows, rows, twins, 50.0) == pytest.approx(math.log(3))


@pytest.mark.parametrize("block", [1, 7, 512])
def test_it_is_the_cross_entropy_of_the_full_matrix(block):
    rng = np.random.default_rng(0)
    a, b = (unit_rows("x", rng.standard_normal((20, 5)), None, np.float64) for _ in range(2))
    own = Relevance.from_groups(np.arange(20), np.arange(20))
    logits = torch.from_numpy(30.0 * a @ b.T)
    wanted = sum(torch.nn.functional.cross_entropy(x, torch.arange(20)) for x in (logits, logits.T))
    assert held_out_loss(a, b, own, 30.0, block=block) == pytest.approx(float(wanted) / 2)


def test_rows_without_an_answer_are_left_out():
    only = Relevance.from_pairs(np.array([0]), np.array([0]), 2, 2)
    assert held_out_loss(np.eye(2), np.eye(2), only, 2.0) == pytest.approx(math.log1p(math.exp(-2)))
    nothing = Relevance.from_pairs(np.zeros(0), np.zeros(0), 2, 2)
    assert math.isnan(held_out_loss(np.eye(2), np.eye(2), nothing, 2.0))


def test_a_row_that_is_not_finite_is_an_error():
    with pytest.raises(CheckFailed, match="items: 1 of 2 embeddings hold NaN"):
        held_out_loss(np.eye(2), np.array([[1.0, np.nan], [0.0, 1.0]]), OWN, 2.0)
