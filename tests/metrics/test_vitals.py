"""Vital signs of small cases worked by hand."""

import json
import math

import numpy as np
import pytest

from brepfind.metrics import rows as blockwise
from brepfind.metrics.vitals import _sample, pair_vitals, vitals

SQUARE = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]], np.float32)


def test_a_square_by_hand():
    v = vitals(3.0 * SQUARE)
    assert (v.n, v.inputs, v.dim, v.nonfinite_rows, v.zero_rows) == (4, 4, 2, 0, 0)
    assert v.norm_min == v.norm_mean == v.norm_max == 3.0
    assert v.mean_col_std == pytest.approx(math.sqrt(1 / 2))
    assert v.column_std == pytest.approx(1.0)
    assert v.mean_cosine == pytest.approx((2 * 0 - 1) / 3)
    assert v.rank == pytest.approx(2.0)
    assert v.rank_share == v.rank_share_centred == pytest.approx(1.0)
    assert v.participation == pytest.approx(2.0)
    assert (v.distinct, v.near_copies, v.dead_columns) == (1.0, 0.0, 0.0)
    # squared distances: 2, 4, 2 from each
    assert v.uniformity == pytest.approx(math.log((2 * math.exp(-4) + math.exp(-8)) / 3))


@pytest.mark.parametrize("shape", [(40, 9), (9, 40), (30, 1)])
@pytest.mark.parametrize("block", [8192, 4])
def test_against_the_whole_matrix(shape, block, monkeypatch):
    monkeypatch.setattr(blockwise, "_BLOCK", block)
    rows = np.random.default_rng(0).standard_normal(shape) + 0.5
    n = len(rows)
    v = vitals(rows)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    assert (v.norm_min, v.norm_mean) == pytest.approx((norms.min(), norms.mean()))
    unit = rows / norms
    assert v.mean_cosine == pytest.approx(((unit @ unit.T).sum() - n) / (n * (n - 1)))
    assert v.rank == pytest.approx(rank_me(unit))
    assert v.mean_col_std == pytest.approx(unit.std(axis=0).mean())
    centred = unit - unit.mean(axis=0)
    assert v.rank_centred == pytest.approx(rank_me(centred))
    variances = np.linalg.svd(centred, compute_uv=False) ** 2
    assert v.participation == pytest.approx(variances.sum() ** 2 / (variances**2).sum())
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    wanted = ((centred @ centred.T).sum() - n) / (n * (n - 1))
    assert v.mean_cosine_centred == pytest.approx(wanted)


def rank_me(rows):
    singular = np.linalg.svd(rows, compute_uv=False)
    shares = singular[singular > 1e-7 * singular.max()] / singular.sum()
    return np.exp(-(shares * np.log(shares)).sum())


def test_known_ranks():
    assert vitals(np.eye(5)).rank == pytest.approx(5.0)
    # Nine rows one way and one another have singular values 3 and 1.
    assert vitals(np.eye(2)[[0] * 9 + [1]]).rank == pytest.approx(
        math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    )
    assert vitals(np.ones((6, 3))).rank == pytest.approx(1.0)


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_rows_have_no_number_of_pairs(n):
    v = vitals(np.ones((n, 3)))
    assert (v.n, v.nonfinite_rows, v.zero_rows) == (n, 0, 0)
    for number in (v.mean_cosine, v.mean_cosine_centred, v.rank_centred, v.uniformity):
        assert math.isnan(number)


def test_a_constant_has_no_centred_rank():
    v = vitals(np.full((70, 33), 0.1, np.float32))
    assert v.column_std == pytest.approx(0.0, abs=1e-12)
    assert v.mean_cosine == pytest.approx(1.0)
    for number in (v.rank_centred, v.rank_share_centred, v.participation, v.mean_cosine_centred):
        assert math.isnan(number)
    assert v.distinct == 1 / 70
    assert v.near_copies == 1.0


@pytest.mark.parametrize("n", [70, 2100])  # all rows are drawn for what asks of pairs; not all
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_row_that_is_not_finite_leaves_no_number(n, bad):
    rows = np.random.default_rng(0).standard_normal((n, 5))
    rows[min(set(range(n)) - set(_sample(n)), default=3), 1] = bad
    v = vitals(rows)
    assert v.nonfinite_rows == 1
    for name in ("norm_mean", "column_std", "mean_cosine", "rank", "rank_centred", "participation",
                 "near_copies", "dead_columns", "uniformity"):  # fmt: skip
        assert math.isnan(getattr(v, name)), name
    json.dumps(v.as_json(), allow_nan=False)


def test_zero_rows_are_counted_and_break_nothing():
    v = vitals(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]))
    assert (v.zero_rows, v.norm_min) == (1, 0.0)
    assert v.mean_cosine == pytest.approx(0.0)


def test_huge_and_tiny_rows_keep_their_direction():
    for scale in (1e-300, 1e300):
        v = vitals(scale * SQUARE.astype(np.float64))
        assert v.column_std == pytest.approx(1.0)
        assert v.zero_rows == 0


def test_distinct_counts_inputs_not_rows():
    rows = SQUARE[[0, 0, 1, 2, 2, 2]]
    assert vitals(rows).distinct == 3 / 6
    # rows 0 and 1 are twins, rows 3 to 5 the same caption: all that may differ does
    assert vitals(rows, np.array([7, 7, 8, 9, 9, 9])).distinct == 1.0
    assert vitals(rows, np.array([7, 7, 8, 9, 9, 9])).near_copies == 0.0
    assert vitals(rows).near_copies == 5 / 6


def test_minus_zero_is_zero():
    assert vitals(np.array([[0.0, 1.0], [-0.0, 1.0]])).distinct == 0.5


def test_what_is_not_a_matrix_is_refused():
    with pytest.raises(ValueError, match="float matrix"):
        vitals(np.ones(3))
    with pytest.raises(ValueError, match="float matrix"):
        vitals(np.ones((3, 2), np.int64))
    with pytest.raises(ValueError, match="inputs of shape"):
        vitals(np.ones((3, 2)), np.arange(2))


def test_a_pair_by_hand():
    cad = np.array([[2.0, 0.0], [0.0, 3.0]], np.float32)
    text = np.array([[1.0, 0.0], [4.0, 0.0], [0.0, 1.0]], np.float32)
    pair = pair_vitals(text, cad, np.array([0, 1, 1]))
    assert pair.alignment == pytest.approx((0 + 2 + 0) / 3)
    assert pair.modality_gap == pytest.approx(math.hypot(2 / 3 - 1 / 2, 1 / 3 - 1 / 2))
    assert pair.hub_text_to_cad == pytest.approx(2 / 3)
    assert pair.hub_cad_to_text == pytest.approx(1 / 2)
    assert pair.never_first_cad == 0.0
    assert pair.never_first_text == pytest.approx(1 / 3)


@pytest.mark.parametrize("bad", [np.nan, 0.0])
def test_a_pair_with_a_broken_row_has_no_numbers(bad):
    cad = np.array([[bad, 0.0], [0.0, 3.0]], np.float32)
    pair = pair_vitals(cad, cad, np.arange(2))
    assert math.isnan(pair.alignment) and math.isnan(pair.hub_text_to_cad)
    assert set(pair.as_json().values()) == {None}
