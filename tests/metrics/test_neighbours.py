import numpy as np
import pytest

from brepfind.errors import CheckFailed
from brepfind.metrics.neighbours import nearest_other_agrees


def unit(*angles):
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


@pytest.mark.parametrize("block", [1, 2, 512])
def test_by_hand(block):
    rows = unit(0.0, 0.1, 0.3, 2.0)
    labels = np.array([0, 0, 1, 1])
    found = nearest_other_agrees(rows, labels, np.arange(4), block)
    assert found.tolist() == [1.0, 1.0, 0.0, 1.0]


def test_twins_are_not_looked_at():
    rows = unit(0.0, 0.0, 0.1, 3.0)
    found = nearest_other_agrees(rows, np.array([0, 0, 1, 0]), np.array([5, 5, 6, 7]))
    assert found[:2].tolist() == [0.0, 0.0]
    assert np.isnan(found[2])  # no other group has its label
    assert found[3] == 0.0


def test_ties_are_shared():
    rows = unit(0.0, 1.0, -1.0)
    assert nearest_other_agrees(rows, np.array([0, 0, 1]), np.arange(3))[0] == 0.5


def test_not_finite_is_an_error():
    with pytest.raises(CheckFailed, match="NaN"):
        nearest_other_agrees(np.full((2, 2), np.nan), np.zeros(2, int), np.arange(2))
