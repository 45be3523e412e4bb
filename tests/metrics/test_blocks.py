"""Comparing a block with its thresholds, against plain NumPy."""

import numpy as np
import pytest

from brepfind.metrics.blocks import Scratch, count_lines, round_down, round_up


def test_rounding_never_crosses_the_value():
    values = np.random.default_rng(0).standard_normal(2000)
    assert (round_up(values) >= values).all()
    assert (round_down(values) <= values).all()
    assert (np.nextafter(round_up(values), np.float32(-np.inf)) < values).all()
    assert (np.nextafter(round_down(values), np.float32(np.inf)) > values).all()
    exact = np.array([0.5, -2.0, np.inf, -np.inf])
    assert (round_up(exact) == exact).all() and (round_down(exact) == exact).all()


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 8), (9, 13), (16, 24)])
@pytest.mark.parametrize("axis", [0, 1])
def test_split(shape, axis):
    rng = np.random.default_rng(0)
    scratch = Scratch(16, 24)
    larger = scratch.product(np.ones((16, 2), np.float32), np.ones((24, 2), np.float32))
    scratch.split(larger, np.float32([[0]]), np.float32([[9]]))  # leaves its entries behind
    rows, columns = (rng.integers(0, 3, (n, 2)).astype(np.float32) for n in shape)
    scores = scratch.product(rows, columns)
    assert (scores == rows @ columns.T).all()
    low = rng.integers(0, 3, (shape[0], 1) if axis == 0 else (1, shape[1])).astype(np.float32)
    above, row, column = scratch.split(scores, low, low + 2)
    assert (above == (scores > low + 2)).all()
    between = np.nonzero((scores >= low) & (scores <= low + 2))
    assert (row.tolist(), column.tolist()) == tuple(where.tolist() for where in between)


@pytest.mark.parametrize("shape", [(1, 8), (600, 16), (3, 2040), (3, 2048), (5, 7)])
def test_count_lines(shape):
    rng = np.random.default_rng(0)
    for mask in (np.ones(shape, bool), rng.random(shape) < 0.5):
        assert count_lines(mask, 0, None).tolist() == mask.sum(axis=1).tolist()
        assert count_lines(mask, 1, None).tolist() == mask.sum(axis=0).tolist()
        weights = rng.integers(1, 9, shape[1])
        assert count_lines(mask, 0, weights).tolist() == (mask * weights).sum(axis=1).tolist()
        weights = rng.integers(1, 9, shape[0])
        assert count_lines(mask, 1, weights).tolist() == (mask.T * weights).sum(axis=1).tolist()
