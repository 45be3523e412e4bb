"""The lengths of a part, and lengths as rows that can be compared."""

from __future__ import annotations

import math

import numpy as np
import pytest

from brepfind.cad.arrays import EDGE_TYPES, PartArrays, PartFacts
from brepfind.graphs.lengths import LENGTH_PLACES, length_row, named_lengths


def test_a_length_is_shared_by_the_two_places_beside_it() -> None:
    row = length_row([8.0])  # 2^3, five octaves above 0.25
    assert row.shape == (LENGTH_PLACES,) and row.dtype == np.float32
    assert row.nonzero()[0].tolist() == [20]
    assert row[20] == 1.0
    between = length_row([8.0 * 2 ** (1 / 16)])  # a quarter of the way to the next place
    assert between[20:22] == pytest.approx([0.75, 0.25])


def test_naming_a_length_twice_changes_nothing() -> None:
    assert np.array_equal(length_row([8.0, 8.0, 40.0]), length_row([40.0, 8.0]))


def test_both_ends_of_the_range_are_in_it_and_nothing_beyond() -> None:
    assert length_row([0.25])[0] == length_row([4096.0])[-1] == 1.0
    assert not length_row([0.2, 5000.0, 0.0, -3.0, math.nan, math.inf]).any()
    assert not length_row([]).any()


def test_lengths_of_a_part_are_its_box_and_its_diameters() -> None:
    turn = np.linspace(0.0, math.pi, 10)
    half_circle = np.zeros((10, 12), np.float32)
    half_circle[:, 0], half_circle[:, 1] = 0.5 * np.cos(turn), 0.5 * np.sin(turn)
    half_circle[:, 3], half_circle[:, 4] = -np.sin(turn), np.cos(turn)
    line = np.zeros((10, 12), np.float32)
    line[:, 0], line[:, 3] = np.linspace(-1, 1, 10), 1.0
    flags = np.zeros((2, len(EDGE_TYPES)), np.uint8)
    flags[0, EDGE_TYPES.index("circular")] = 1
    flags[1, EDGE_TYPES.index("straight")] = 1
    part = PartArrays(
        face_grid=np.zeros((1, 10, 10, 7), np.float32),
        face_type=np.zeros(1, np.uint8),
        face_area=np.ones(1, np.float32),
        face_rational=np.zeros(1, np.uint8),
        face_centroid=np.zeros((1, 3), np.float32),
        face_loops=np.ones(1, np.uint8),
        edge_src=np.zeros(2, np.int32),
        edge_dst=np.zeros(2, np.int32),
        edge_grid=np.stack([half_circle, line]),
        edge_type=flags,
        edge_length=np.ones(2, np.float32),
        edge_convexity=np.zeros(2, np.uint8),
        edge_dihedral=np.zeros(2, np.float32),
        facts=PartFacts(
            unit="mm",
            box_min=(0.0, 0.0, 0.0),
            box_max=(40.0, 10.0, 5.0),
            volume=1.0,
            area=1.0,
            solids=1,
        ),
    )
    # A box unit is 20 mm here, so a circle of radius 0.5 is 20 mm across.
    assert sorted(named_lengths(part)) == pytest.approx([5.0, 10.0, 20.0, 40.0], rel=1e-6)
