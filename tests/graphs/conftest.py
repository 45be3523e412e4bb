"""Small parts of random numbers and chosen edges."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from brepfind.cad.arrays import PartArrays, PartFacts

MakePart = Callable[..., PartArrays]


def _make_part(
    n_faces: int = 6,
    pairs: Sequence[tuple[int, int]] = ((0, 1), (1, 2), (0, 2)),
    seed: int = 0,
    grid: int = 4,
    **facts: object,
) -> PartArrays:
    r = np.random.default_rng(seed)
    ends = np.array([end for a, b in pairs for end in ((a, b), (b, a))], np.int32).reshape(-1, 2)
    n_edges = len(ends)
    face_grid = r.normal(size=(n_faces, grid, grid, 7)).astype(np.float32)
    face_grid[..., 6] = r.random((n_faces, grid, grid)) > 0.3
    return PartArrays(
        face_grid=face_grid,
        face_type=r.integers(0, 11, n_faces).astype(np.uint8),
        face_area=r.random(n_faces).astype(np.float32),
        face_rational=r.integers(0, 2, n_faces).astype(np.uint8),
        face_centroid=r.normal(size=(n_faces, 3)).astype(np.float32),
        face_loops=r.integers(1, 4, n_faces).astype(np.uint8),
        edge_src=ends[:, 0].copy(),
        edge_dst=ends[:, 1].copy(),
        edge_grid=r.normal(size=(n_edges, grid, 12)).astype(np.float32),
        edge_type=np.eye(11, dtype=np.uint8)[r.integers(0, 11, n_edges)],
        edge_length=r.random(n_edges).astype(np.float32),
        edge_convexity=r.integers(0, 3, n_edges).astype(np.uint8),
        edge_dihedral=r.normal(size=n_edges).astype(np.float32),
        facts=PartFacts(
            **{
                "unit": "mm",
                "box_min": (0.0, 0.0, 0.0),
                "box_max": (3.0, 1.0, 2.0),
                "volume": 5.0,
                "area": 4.0,
                "solids": 1,
                "signature": r.normal(size=5),
                **facts,
            }
        ),
    )


@pytest.fixture
def make_part() -> MakePart:
    """A function that makes a part: ``make_part(n_faces, pairs, seed=..., grid=...)``."""
    return _make_part
