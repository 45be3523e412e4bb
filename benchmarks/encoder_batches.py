"""Seeded batches of random parts for ``make bench-encoder``.

The graphs have the shape of real parts: connected, two to three shared edges per face, most of
them between faces that stand near each other in the file. Hops and paths are true shortest paths.
"""

from collections import deque

import numpy as np
import torch

from brepfind.graphs.batch import MAX_PATH, PartBatch
from brepfind.graphs.descriptors import SHAPE_FIELDS
from brepfind.graphs.lengths import LENGTH_PLACES
from brepfind.graphs.patterns import PATTERN_PLACES

GRID = 10


def random_batch(sizes: list[int], seed: int) -> PartBatch:
    """A batch of parts with ``sizes`` faces."""
    rng = np.random.default_rng(seed)
    shared = [_shared_edges(size, rng) for size in sizes]
    pairs = [_shortest(size, edges) for size, edges in zip(sizes, shared, strict=True)]
    faces, edges = sum(sizes), 2 * sum(map(len, shared))
    directed = np.concatenate(
        [[end for a, b in part for end in ((a, b), (b, a))] for part in shared]
    )
    longest = max(path.shape[1] for _, path in pairs)
    angles = [_symmetric(rng.uniform(0, 180, (size, size))) for size in sizes]
    distances = [_symmetric(rng.uniform(0, 3, (size, size))) for size in sizes]

    def normal(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))

    def one_hot(rows: int, slots: int) -> torch.Tensor:
        return torch.from_numpy(np.eye(slots, dtype=np.float32)[rng.integers(slots, size=rows)])

    return PartBatch(
        face_counts=torch.tensor(sizes),
        edge_counts=torch.tensor([2 * len(part) for part in shared]),
        face_grid=normal(faces, 7, GRID, GRID),
        face_type=one_hot(faces, 9),
        face_area=normal(faces).abs(),
        face_rational=torch.from_numpy(rng.integers(2, size=faces)),
        face_centroid=normal(faces, 3),
        edge_src=torch.from_numpy(directed[:, 0]),
        edge_dst=torch.from_numpy(directed[:, 1]),
        edge_grid=normal(edges, 12, GRID),
        edge_type=one_hot(edges, 11),
        edge_length=normal(edges).abs(),
        edge_convexity=one_hot(edges, 3),
        hops=torch.from_numpy(np.concatenate([hops for hops, _ in pairs])),
        angle=torch.from_numpy(np.concatenate(angles)),
        distance=torch.from_numpy(np.concatenate(distances)),
        path=torch.from_numpy(
            np.concatenate(
                [
                    np.pad(path, ((0, 0), (0, longest - path.shape[1])), constant_values=-1)
                    for _, path in pairs
                ]
            )
        ),
        size=normal(len(sizes), 5),
        shape=normal(len(sizes), len(SHAPE_FIELDS)),
        lengths=normal(len(sizes), LENGTH_PLACES),
        patterns=normal(len(sizes), PATTERN_PLACES),
    )


def _shared_edges(faces: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    edges = []
    for face in range(1, faces):
        for _ in range(int(rng.integers(2, 4))):
            edges.append((face, max(0, face - 1 - int(rng.exponential(5)))))
    return edges


def _shortest(faces: int, shared: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Hops (faces**2,) and edges (faces**2, longest) of one shortest path for every pair."""
    leaving: list[list[tuple[int, int]]] = [[] for _ in range(faces)]
    for number, (a, b) in enumerate(shared):
        leaving[a].append((2 * number, b))
        leaving[b].append((2 * number + 1, a))
    rows: list[list[int]] = []
    for start in range(faces):
        found: dict[int, list[int]] = {start: []}
        queue = deque([start])
        while queue:
            face = queue.popleft()
            for edge, other in leaving[face]:
                if other not in found:
                    found[other] = [*found[face], edge]
                    queue.append(other)
        rows += [found[face] for face in range(faces)]
    hops = np.array([len(row) for row in rows])
    path = np.full((faces * faces, min(int(hops.max()), MAX_PATH)), -1)
    for place, row in enumerate(rows):
        path[place, : len(row[:MAX_PATH])] = row[:MAX_PATH]
    return hops, path


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    return ((matrix + matrix.T) / 2).astype(np.float32).ravel()
