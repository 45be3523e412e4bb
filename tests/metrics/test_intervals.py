import numpy as np
import pytest

from brepfind.metrics.intervals import bootstrap_mean


def test_a_constant_has_no_width():
    assert bootstrap_mean(np.ones(8), np.arange(8)) == (1.0, 1.0)


def test_one_unit_says_nothing_of_spread():
    assert bootstrap_mean(np.array([0.0, 1.0]), np.array([3, 3])) is None
    assert bootstrap_mean(np.zeros(0), np.zeros(0, np.int64)) is None


def test_queries_of_one_part_are_drawn_together():
    """Four equal queries a part are worth one: the interval must not shrink by half."""
    values = np.random.default_rng(0).integers(0, 2, 100).astype(np.float64)
    alone = bootstrap_mean(values, np.arange(100))
    together = bootstrap_mean(np.repeat(values, 4), np.repeat(np.arange(100), 4))
    apart = bootstrap_mean(np.repeat(values, 4), np.arange(400))
    assert together == pytest.approx(alone)
    assert apart[1] - apart[0] < 0.65 * (alone[1] - alone[0])


def test_it_covers_about_95_percent():
    rng = np.random.default_rng(1)
    covered = 0
    for trial in range(200):
        low, high = bootstrap_mean(rng.random(60), np.arange(60), draws=300, seed=trial)
        covered += low <= 0.5 <= high
    assert 0.88 <= covered / 200 <= 0.99


def test_the_seed_decides():
    values = np.random.default_rng(0).random(30)
    first = bootstrap_mean(values, np.arange(30), seed=1)
    assert first == bootstrap_mean(values, np.arange(30), seed=1)
    assert first != bootstrap_mean(values, np.arange(30), seed=2)
