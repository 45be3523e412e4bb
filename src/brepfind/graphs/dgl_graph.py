"""A part as a DGLGraph with BRepFormer's field names.

Faces (``ndata``), N of them:

    x   float32 (N, G, G, 7)   point, outward normal, 1 where inside the trimmed face
    t   float32 (N, 9)         one-hot type; zeros for Bezier and B-spline faces
    a   float32 (N,)           area, box units squared
    r   float32 (N,)           1 where the surface is rational
    c   float32 (N, 3)         centroid, box units
    l   float32 (N,)           label of the face; 0 where there is none

Edges (``edata``), both directions of each, E of them:

    x   float32 (E, G, 12)     point, tangent, normal of the left face, of the right face
    t   float32 (E, 11)        type flags
    l   float32 (E,)           length, box units
    c   float32 (E, 3)         one-hot concave, convex, smooth

The graph is a multigraph with its number of faces given, so that two faces may share two edges and
a sphere is a graph of one face and no edge; its fields are there all the same, with no rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from brepfind.cad.arrays import CONVEXITIES, N_FACE_SLOTS, PartArrays
from brepfind.graphs.backend import DGLGraph, dgl

_FACE_ONE_HOT = np.eye(N_FACE_SLOTS + 2, N_FACE_SLOTS, dtype=np.float32)
_CONVEXITY_ONE_HOT = np.eye(len(CONVEXITIES), dtype=np.float32)


def to_dgl(
    arrays: PartArrays,
    labels: NDArray[Any] | None = None,
    *,
    face_grids: bool = True,
    edge_grids: bool = True,
) -> DGLGraph:
    """The graph of a part on the CPU, with the fields above.

    Args:
        labels: (N,) numbers of the faces, or None for zeros.
        face_grids, edge_grids: whether to set the fields ``x``, which hold nearly all the bytes;
            what a frozen CNN has read already is not needed again.
    """
    graph = dgl.graph(
        (tensor(arrays.edge_src).long(), tensor(arrays.edge_dst).long()), num_nodes=arrays.n_faces
    )
    face: dict[str, Tensor] = {
        "t": tensor(_FACE_ONE_HOT[arrays.face_type]),
        "a": tensor(arrays.face_area),
        "r": tensor(arrays.face_rational).float(),
        "c": tensor(arrays.face_centroid),
        "l": torch.zeros(arrays.n_faces) if labels is None else tensor(labels).float(),
    }
    edge: dict[str, Tensor] = {
        "t": tensor(arrays.edge_type).float(),
        "l": tensor(arrays.edge_length),
        "c": tensor(_CONVEXITY_ONE_HOT[arrays.edge_convexity]),
    }
    if face_grids:
        face["x"] = tensor(arrays.face_grid)
    if edge_grids:
        edge["x"] = tensor(arrays.edge_grid)
    graph.ndata.update(face)
    graph.edata.update(edge)
    return graph


def tensor(array: NDArray[Any]) -> Tensor:
    """A tensor over the same memory where that may be written to, else over a copy."""
    array = np.ascontiguousarray(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy())
