"""The order of a part's faces, which RoPE makes the encoder see.

The order is the file's and means nothing: the same part exported by another system lists its faces
differently, and its embedding moves. Training on shuffled orders teaches the encoder to ignore it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from brepfind.graphs.batch import PartBatch
from brepfind.models.ragged import owners_of, starts_of


def random_order(face_counts: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """A random order of the faces of each part.

    Args:
        face_counts: int64 (B,).
        generator: on the CPU; the global one if None.

    Returns:
        int64 (F,), for :func:`reorder_faces`, on the device of ``face_counts``.
    """
    total = int(face_counts.sum())
    owner = owners_of(face_counts.cpu(), total)
    # A part's faces stay between those of its neighbours: their keys lie in its own unit interval.
    keys = torch.rand(total, generator=generator, dtype=torch.float64) + owner
    order = torch.argsort(keys, stable=True) - starts_of(face_counts.cpu())[owner]
    return order.to(face_counts.device)


def reorder_faces(batch: PartBatch, order: Tensor) -> PartBatch:
    """The same parts with their faces listed in another order.

    Edges keep their places, because paths name them.

    Args:
        order: int64 (F,), for each place in the new lists the face of the same part, counted
            within the part, that stands there. Each part's entries are a permutation.
    """
    counts = batch.face_counts
    owner = owners_of(counts, len(order))
    starts = starts_of(counts)[owner]
    face = order + starts
    place_of = torch.empty_like(order)
    place_of[face] = torch.arange(len(order), device=order.device) - starts
    edge_start = starts_of(counts)[owners_of(batch.edge_counts, len(batch.edge_src))]
    pair = _pair_rows(counts, order, len(batch.hops))
    return replace(
        batch,
        face_grid=None if batch.face_grid is None else batch.face_grid[face],
        face_surface=None if batch.face_surface is None else batch.face_surface[face],
        face_type=batch.face_type[face],
        face_area=batch.face_area[face],
        face_rational=batch.face_rational[face],
        face_centroid=batch.face_centroid[face],
        edge_src=place_of[batch.edge_src + edge_start],
        edge_dst=place_of[batch.edge_dst + edge_start],
        hops=batch.hops[pair],
        angle=batch.angle[pair],
        distance=batch.distance[pair],
        path=batch.path[pair],
    )


def _pair_rows(counts: Tensor, order: Tensor, total: int) -> Tensor:
    """For each face pair in the new order, its row in the old one; int64 (P,)."""
    owner = owners_of(counts**2, total)
    start, faces, first = starts_of(counts**2)[owner], counts[owner], starts_of(counts)[owner]
    within = torch.arange(total, device=order.device) - start
    row, column = within // faces, within % faces
    return start + order[first + row] * faces + order[first + column]
