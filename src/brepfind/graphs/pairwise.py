"""What holds between each two faces of a part: hops, angle, distance and an edge path.

All of it follows from the graph, so the store does not keep it. Between two faces there is often
more than one shortest path; the one taken here has, step by step from the first face, the lowest
edge number that still leads along a shortest path.

BRepFormer's own script searches breadth first in the order of a node's successors, on a graph that
holds one edge per pair of faces, and writes infinity as the hops of faces that are not connected.
A version of it left the paths that are as long as the longest of the part at -1. Here every path is
written, up to the sixteen steps that the model reads; files that bring their own matrices keep them
(see the bins module).

F is the number of faces, D that of directed edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from brepfind.cad.arrays import PartArrays
from brepfind.graphs.batch import MAX_PATH

AngleRule = Literal["inside", "authors"]

# A mean of unit normals shorter than this has no direction worth the name: the face closes on
# itself, and what is left is rounding.
_MIN_MEAN_NORMAL = 1e-4

# Cells that the search for first edges works on at once, to bound its memory.
_BLOCK_CELLS = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairwise:
    """The matrices of one part.

    Attributes:
        hops: int16 (F, F), edges on a shortest path; 0 on the diagonal, -1 where there is none.
        angle: float32 (F, F), degrees between mean face normals, 0 to 180; never NaN.
        distance: float32 (F, F), between face centroids, box units.
        path: int32 (F, F, S), the first S edges of one shortest path from row to column, -1 past
            its end. S is the longest shortest path of the part, at most ``MAX_PATH``.
    """

    hops: NDArray[np.int16]
    angle: NDArray[np.float32]
    distance: NDArray[np.float32]
    path: NDArray[np.int32]


def pairwise(arrays: PartArrays, angle_rule: AngleRule = "inside") -> Pairwise:
    """All pairwise matrices of a part.

    Args:
        angle_rule: which samples the mean normal of a face is taken over: those inside the trimmed
            face, or, as BRepFormer's authors do, those outside it and on its border.
    """
    hops = hop_matrix(arrays)
    first = first_edges(arrays, hops)
    return assemble(arrays, hops, first, angle_rule)


def assemble(
    arrays: PartArrays,
    hops: NDArray[np.int16],
    first: NDArray[np.int32],
    angle_rule: AngleRule,
) -> Pairwise:
    """The matrices from the two that take the longest to find, which are what a cache keeps."""
    return Pairwise(
        hops=hops,
        angle=angle_matrix(arrays, angle_rule),
        distance=distance_matrix(arrays),
        path=edge_paths(arrays, hops, first),
    )


def hop_matrix(arrays: PartArrays) -> NDArray[np.int16]:
    """int16 (F, F), edges on a shortest path; -1 where there is none.

    A breadth-first search from all faces at once, level by level: each face holds, as bits, the
    set of faces that reach it, and hands it on along its edges.
    """
    n_faces = arrays.n_faces
    hops = np.full((n_faces, n_faces), -1, dtype=np.int16)
    np.fill_diagonal(hops, 0)
    order = np.argsort(arrays.edge_dst, kind="stable")
    src, dst = arrays.edge_src[order], arrays.edge_dst[order]
    if len(dst) == 0:
        return hops
    targets, starts = np.unique(dst, return_index=True)
    reached = np.packbits(np.eye(n_faces, dtype=bool), axis=1, bitorder="little")
    fresh = reached.copy()
    level = 0
    while fresh.any():
        level += 1
        handed = np.bitwise_or.reduceat(fresh[src], starts, axis=0)
        fresh = np.zeros_like(reached)
        fresh[targets] = handed & ~reached[targets]
        reached |= fresh
        # Few bytes hold a new bit on most levels of a long part, so only those are unpacked.
        rows, columns = np.nonzero(fresh)
        bits = np.unpackbits(fresh[rows, columns][:, None], axis=1, bitorder="little")
        which, bit = np.nonzero(bits)
        hops[columns[which].astype(np.int64) * 8 + bit, rows[which]] = level
    return hops


def first_edges(arrays: PartArrays, hops: NDArray[np.int16]) -> NDArray[np.int32]:
    """int32 (F, F), the first edge of the path from row to column; -1 where there is none."""
    n_faces, n_edges = arrays.n_faces, arrays.n_edges
    first = np.full((n_faces, n_faces), -1, dtype=np.int32)
    order = np.argsort(arrays.edge_src, kind="stable")
    src, dst = arrays.edge_src[order], arrays.edge_dst[order]
    sources, starts = np.unique(src, return_index=True)
    ends = np.append(starts[1:], n_edges)
    none = np.int32(np.iinfo(np.int32).max)
    at = 0
    while at < len(sources):
        limit = starts[at] + max(_BLOCK_CELLS // n_faces, 1)
        stop = max(int(np.searchsorted(ends, limit, side="right")), at + 1)
        block = slice(starts[at], ends[stop - 1])
        closer = (hops[dst[block]] >= 0) & (hops[dst[block]] + 1 == hops[src[block]])
        number = np.where(closer, order[block, None].astype(np.int32), none)
        lowest = np.minimum.reduceat(number, starts[at:stop] - starts[at], axis=0)
        first[sources[at:stop]] = np.where(lowest == none, -1, lowest)
        at = stop
    return first


def edge_paths(
    arrays: PartArrays, hops: NDArray[np.int16], first: NDArray[np.int32]
) -> NDArray[np.int32]:
    """int32 (F, F, S), the edges of one shortest path, -1 past its end; see :class:`Pairwise`."""
    steps = min(int(hops.max()), MAX_PATH)
    path = np.full((*hops.shape, steps), -1, dtype=np.int32)
    here, there = np.nonzero(hops > 0)
    at: NDArray[Any] = here
    for step in range(steps):
        edge = first[at, there]
        path[here, there, step] = edge
        at = arrays.edge_dst[edge]
        on = at != there
        here, there, at = here[on], there[on], at[on]
    return path


def angle_matrix(arrays: PartArrays, rule: AngleRule) -> NDArray[np.float32]:
    """float32 (F, F), degrees between mean face normals.

    A face whose mean normal has no direction is at 90 degrees to every other, which is also what
    the authors' formula gives for a face without a sample that their rule asks for.
    """
    wanted = (arrays.face_grid[..., 6] > 0.5) == (rule == "inside")
    normals = arrays.face_grid[..., 3:6].astype(np.float64)
    total = np.einsum("fuvk,fuv->fk", normals, wanted.astype(np.float64))
    count = wanted.sum(axis=(1, 2))
    mean = total / np.maximum(count, 1)[:, None]
    length = np.linalg.norm(mean, axis=1)
    directed = length > _MIN_MEAN_NORMAL
    unit = np.where(directed[:, None], mean / np.where(directed, length, 1.0)[:, None], 0.0)
    angle = np.degrees(np.arccos(np.clip(unit @ unit.T, -1.0, 1.0)))
    np.fill_diagonal(angle, 0.0)
    return angle.astype(np.float32)


def distance_matrix(arrays: PartArrays) -> NDArray[np.float32]:
    """float32 (F, F), distances between face centroids, box units."""
    centroid = arrays.face_centroid.astype(np.float64)
    return np.linalg.norm(centroid[:, None] - centroid[None], axis=2).astype(np.float32)
