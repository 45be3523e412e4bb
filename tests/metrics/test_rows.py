import numpy as np
import pytest

from brepfind.errors import CheckFailed
from brepfind.metrics.rows import check_finite, merge_identical, unit_rows


def test_unit_rows_survive_extreme_lengths():
    rows = np.array([[3e-30, 4e-30], [3e30, -4e30]], np.float32)
    assert unit_rows("rows", rows) == pytest.approx(np.array([[0.6, 0.8], [0.6, -0.8]]))
    assert unit_rows("rows", rows).dtype == np.float32
    assert unit_rows("rows", rows, dtype=np.float64).dtype == np.float64


def test_a_zero_row_is_an_error_with_its_id():
    with pytest.raises(
        CheckFailed, match=r"CAD: 1 of 2 embeddings are zero .*\(bolt-7\)"
    ) as caught:
        unit_rows("CAD", np.array([[1.0, 0.0], [0.0, 0.0]]), ["bolt-6", "bolt-7"])
    assert caught.value.findings[0].name == "CAD.rows_zero"


def test_a_row_that_is_not_finite_is_an_error_with_its_id():
    rows = np.full((9, 2), np.nan)
    with pytest.raises(CheckFailed, match=r"9 of 9 .*NaN or infinity \(row 0, .*row 4 and 4 more"):
        check_finite("text", rows)


def test_only_float_matrices():
    with pytest.raises(ValueError, match="need a float matrix, got int64"):
        check_finite("text", np.ones((2, 2), np.int64))


def test_identical_rows_are_merged_in_order_of_appearance():
    rows = np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 2.0], [-0.0, 1.0]])
    first, inverse = merge_identical(rows)
    assert first.tolist() == [0, 1]
    assert inverse.tolist() == [0, 1, 0, 1]
    first, inverse = merge_identical(rows, np.array([1.0, 1.0, 5.0, 1.0]))
    assert first.tolist() == [0, 1, 2]
    assert inverse.tolist() == [0, 1, 2, 1]
