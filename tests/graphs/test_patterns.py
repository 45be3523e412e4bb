"""What repeats in a part, and counts as rows that can be compared."""

from __future__ import annotations

import numpy as np
import pytest

from brepfind.cad.arrays import PartArrays, PartFacts
from brepfind.graphs.lengths import LENGTH_PLACES
from brepfind.graphs.patterns import (
    COUNT_PLACES,
    PATTERN_PLACES,
    count_row,
    numbers_row,
    pattern_row,
)


def test_small_counts_have_a_place_each_and_large_ones_share() -> None:
    row = count_row([4])
    assert row.shape == (COUNT_PLACES,) and row.dtype == np.float32
    assert row.nonzero()[0].tolist() == [2] and row[2] == 1.0
    assert count_row([16]).nonzero()[0].tolist() == [14]
    # 20 is 2.575 eighths of an octave above 16.
    assert count_row([20])[16:18] == pytest.approx([0.425, 0.575], abs=1e-3)


def test_counts_out_of_range_leave_no_trace() -> None:
    assert count_row([2])[0] == count_row([512])[-1] == 1.0
    assert not count_row([1, 0, -3, 513, 10**400]).any()
    assert not count_row([]).any()


def test_both_rows_weigh_the_same() -> None:
    row = numbers_row([2.54, 40.0, 8.0], [10])
    assert row.shape == (PATTERN_PLACES,)
    assert np.linalg.norm(row[:LENGTH_PLACES]) == pytest.approx(1.0)
    assert np.linalg.norm(row[LENGTH_PLACES:]) == pytest.approx(1.0)
    assert not numbers_row([], []).any()


def test_two_rows_of_five_pins() -> None:
    """Ten tops of pins at 2.54 mm, in a part of 20 mm: 2x5."""
    at = np.array([[x, y, 0.5] for y in (0.0, 0.254) for x in 0.254 * np.arange(5)], np.float32)
    row = pattern_row(_faces(at, area=[0.01] * 10))
    expected = numbers_row([2.54, 4 * 2.54], [10, 5, 2])
    assert row == pytest.approx(expected, abs=1e-4)


def test_faces_that_differ_are_no_copies() -> None:
    at = np.array([[0, 0, 0], [0.5, 0, 0]], np.float32)
    assert pattern_row(_faces(at, area=[0.01, 0.01])).any()
    assert not pattern_row(_faces(at, area=[0.01, 0.0101])).any()
    assert not pattern_row(_faces(at, area=[0.01, 0.01], types=(0, 1))).any()
    assert not pattern_row(_faces(at, area=[0.01, 0.01], normals=((0, 0, 1), (1, 0, 0)))).any()
    assert not pattern_row(_faces(at[:1], area=[0.01])).any()


def test_the_order_of_faces_means_nothing() -> None:
    random = np.random.default_rng(0)
    at = random.uniform(-1, 1, (12, 3)).astype(np.float32)
    area = np.repeat([0.01, 0.02, 0.03], 4)
    order = random.permutation(12)
    one, other = (
        pattern_row(_faces(at, area=area)),
        pattern_row(_faces(at[order], area=area[order])),
    )
    assert one == pytest.approx(other, abs=1e-6)


def _faces(
    centroids: np.ndarray,
    area: object,
    types: object = 0,
    normals: object = (0.0, 0.0, 1.0),
) -> PartArrays:
    n = len(centroids)
    grid = np.zeros((n, 10, 10, 7), np.float32)
    grid[..., 3:6] = np.broadcast_to(np.asarray(normals, np.float32), (n, 3))[:, None, None]
    grid[:, 2:8, 2:8, 6] = 1.0
    return PartArrays(
        face_grid=grid,
        face_type=np.broadcast_to(np.asarray(types, np.uint8), n).copy(),
        face_area=np.asarray(area, np.float32),
        face_rational=np.zeros(n, np.uint8),
        face_centroid=centroids,
        face_loops=np.ones(n, np.uint8),
        edge_src=np.zeros(0, np.int32),
        edge_dst=np.zeros(0, np.int32),
        edge_grid=np.zeros((0, 10, 12), np.float32),
        edge_type=np.zeros((0, 11), np.uint8),
        edge_length=np.zeros(0, np.float32),
        edge_convexity=np.zeros(0, np.uint8),
        edge_dihedral=np.zeros(0, np.float32),
        facts=PartFacts(
            unit="mm",
            box_min=(0.0, 0.0, 0.0),
            box_max=(20.0, 20.0, 20.0),
            volume=1.0,
            area=1.0,
            solids=1,
        ),
    )
