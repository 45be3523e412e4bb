"""Several parts made into one :class:`PartBatch`, through ``dgl.batch``.

This runs in the loader for every step of training. Only tensors leave it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from brepfind.cad.arrays import PartArrays, PartFacts
from brepfind.graphs.backend import DGLGraph, dgl
from brepfind.graphs.batch import MAX_PATH, SIZE_FIELDS, PartBatch
from brepfind.graphs.descriptors import shape_features
from brepfind.graphs.dgl_graph import tensor, to_dgl
from brepfind.graphs.lengths import length_row, named_lengths
from brepfind.graphs.pairwise import Pairwise
from brepfind.graphs.patterns import PATTERN_PLACES, pattern_row

# Lengths, areas and volumes below this are taken for it before the logarithm: a flat part has no
# height, an open one no volume. In millimetres, their squares and cubes.
MIN_SIZE = 1e-6


def collate(
    parts: Sequence[PartArrays],
    pairs: Sequence[Pairwise],
    face_surface: Sequence[Tensor] | None = None,
    edge_curve: Sequence[Tensor] | None = None,
    *,
    patterns: bool = True,
) -> PartBatch:
    """The batch of ``parts``, in their order.

    Args:
        pairs: the pairwise matrices of each part.
        face_surface: per part, (faces, dim/2) from a frozen surface CNN; the grids of faces are
            left out of the batch then.
        edge_curve: per part, (edges, heads) from a frozen curve CNN; likewise.
        patterns: look for what repeats in the parts, a millisecond each; zeros otherwise, for a
            model that does not read it.

    Raises:
        ValueError: if there is no part, or a sequence is not as long as ``parts``.
    """
    if not parts:
        raise ValueError("a batch needs at least one part")
    for name, given in (("pairs", pairs), ("face_surface", face_surface), ("curve", edge_curve)):
        if given is not None and len(given) != len(parts):
            raise ValueError(f"{name} has {len(given)} entries for {len(parts)} parts")
    graphs = [
        to_dgl(part, face_grids=face_surface is None, edge_grids=edge_curve is None)
        for part in parts
    ]
    return batch_from_dgl(
        dgl.batch(graphs),
        pairs,
        size=torch.from_numpy(np.stack([size_features(part.facts) for part in parts])),
        shape=torch.from_numpy(np.stack([shape_features(part) for part in parts])),
        lengths=torch.from_numpy(np.stack([length_row(named_lengths(part)) for part in parts])),
        patterns=torch.from_numpy(np.stack([pattern_row(part) for part in parts]))
        if patterns
        else torch.zeros(len(parts), PATTERN_PLACES),
        face_surface=None if face_surface is None else torch.cat(list(face_surface)),
        edge_curve=None if edge_curve is None else torch.cat(list(edge_curve)),
    )


def batch_from_dgl(
    graph: DGLGraph,
    pairs: Sequence[Pairwise],
    *,
    size: Tensor,
    shape: Tensor,
    lengths: Tensor,
    patterns: Tensor,
    face_surface: Tensor | None = None,
    edge_curve: Tensor | None = None,
) -> PartBatch:
    """A batched graph with BRepFormer's fields as plain tensors.

    Args:
        graph: what ``dgl.batch`` gives for graphs of :func:`~brepfind.graphs.dgl_graph.to_dgl`.
        pairs: the pairwise matrices of each part in it.
        size, shape, lengths, patterns: a row per part, see :class:`PartBatch`.
        face_surface, edge_curve: (F, dim/2) and (E, heads); the fields ``x`` are not read then.
    """
    face_counts, edge_counts = graph.batch_num_nodes().long(), graph.batch_num_edges().long()
    shift = torch.repeat_interleave(face_counts.cumsum(0) - face_counts, edge_counts)
    src, dst = graph.edges()
    face, edge = graph.ndata, graph.edata
    return PartBatch(
        face_counts=face_counts,
        edge_counts=edge_counts,
        face_grid=None if face_surface is not None else face["x"].permute(0, 3, 1, 2).contiguous(),
        face_surface=face_surface,
        face_type=face["t"],
        face_area=face["a"],
        face_rational=face["r"].long(),
        face_centroid=face["c"],
        edge_src=src.long() - shift,
        edge_dst=dst.long() - shift,
        edge_grid=None if edge_curve is not None else edge["x"].permute(0, 2, 1).contiguous(),
        edge_curve=edge_curve,
        edge_type=edge["t"],
        edge_length=edge["l"],
        edge_convexity=edge["c"],
        hops=torch.cat([tensor(pair.hops).flatten() for pair in pairs]).long(),
        angle=torch.cat([tensor(pair.angle).flatten() for pair in pairs]),
        distance=torch.cat([tensor(pair.distance).flatten() for pair in pairs]),
        path=_paths(pairs),
        size=size,
        shape=shape,
        lengths=lengths,
        patterns=patterns,
    )


def size_features(facts: PartFacts) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """float32 (5,), natural logs of a part's size in the order of ``SIZE_FIELDS``."""
    extent = np.sort(np.subtract(facts.box_max, facts.box_min))
    size = np.array([*extent, facts.area, facts.volume], dtype=np.float64)
    assert len(size) == len(SIZE_FIELDS)
    return np.log(np.maximum(size, MIN_SIZE)).astype(np.float32)


def _paths(pairs: Sequence[Pairwise]) -> Tensor:
    steps = min(max(pair.path.shape[2] for pair in pairs), MAX_PATH)
    path = torch.full((sum(pair.hops.size for pair in pairs), steps), -1, dtype=torch.int64)
    at = 0
    for pair in pairs:
        mine = tensor(pair.path).flatten(0, 1)[:, :steps]
        path[at : at + len(mine), : mine.shape[1]] = mine
        at += len(mine)
    return path
