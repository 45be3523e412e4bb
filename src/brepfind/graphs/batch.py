"""PartBatch: several parts as one frozen bundle of plain tensors, which is all a model sees.

Shape letters: B parts, F faces of all parts together, E directed edges of all parts together,
P = sum of f_i squared, the face pairs of each part (row-major, part after part), G grid size,
S longest edge path in the batch (at most ``MAX_PATH``).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

# BRepFormer reads at most this many edges of a path, and clamps its length to it.
MAX_PATH = 16

# Names of the columns of ``PartBatch.size``; natural logs of millimetres, mm^2 and mm^3.
SIZE_FIELDS = ("log_box_min", "log_box_mid", "log_box_max", "log_area", "log_volume")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBatch:
    """Attributes:

    face_counts: int64 (B,), faces of each part.
    edge_counts: int64 (B,), directed edges of each part.
    face_grid: float32 (F, 7, G, G), channels first, or None where ``face_surface`` is given.
    face_surface: float32 (F, dim/2), what a frozen surface CNN gives for ``face_grid``, or None.
    face_type: float32 (F, 9), one-hot; all zero for Bezier and B-spline faces.
    face_area: float32 (F,), box units squared.
    face_rational: int64 (F,), 0 or 1.
    face_centroid: float32 (F, 3), box units.
    edge_src, edge_dst: int64 (E,), faces of the edge, counted within the part.
    edge_grid: float32 (E, 12, G), channels first, or None where ``edge_curve`` is given.
    edge_curve: float32 (E, heads), what a frozen curve CNN gives for ``edge_grid``, or None.
    edge_type: float32 (E, 11), flags.
    edge_length: float32 (E,), box units.
    edge_convexity: float32 (E, 3), one-hot.
    hops: int64 (P,), edges on a shortest path between two faces; -1 where there is none.
    angle: float32 (P,), degrees between mean face normals; never NaN.
    distance: float32 (P,), between face centroids, box units.
    path: int64 (P, S), edges on one shortest path, counted within the part; -1 past its end. S is
        0 when no part has an edge.
    size: float32 (B, 5), the part's original size in the order of ``SIZE_FIELDS``.
    shape: float32 (B, 26), descriptors in the order of ``descriptors.SHAPE_FIELDS``.
    lengths: float32 (B, LENGTH_PLACES), the lengths one would name of the part; see
        :func:`~brepfind.graphs.lengths.length_row`.
    patterns: float32 (B, PATTERN_PLACES), what repeats in the part; see
        :func:`~brepfind.graphs.patterns.pattern_row`.
    """

    face_counts: Tensor
    edge_counts: Tensor
    face_grid: Tensor | None
    face_surface: Tensor | None = None
    face_type: Tensor
    face_area: Tensor
    face_rational: Tensor
    face_centroid: Tensor
    edge_src: Tensor
    edge_dst: Tensor
    edge_grid: Tensor | None
    edge_curve: Tensor | None = None
    edge_type: Tensor
    edge_length: Tensor
    edge_convexity: Tensor
    hops: Tensor
    angle: Tensor
    distance: Tensor
    path: Tensor
    size: Tensor
    shape: Tensor
    lengths: Tensor
    patterns: Tensor

    def __len__(self) -> int:
        """Number of parts."""
        return len(self.face_counts)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> PartBatch:
        """The same batch on another device."""
        moved = {
            item.name: value.to(device, non_blocking=non_blocking)
            for item in fields(self)
            if (value := getattr(self, item.name)) is not None
        }
        return replace(self, **moved)

    def pin_memory(self) -> PartBatch:
        """The same batch in page-locked memory; the loader calls this where there is a GPU."""
        pinned = {
            item.name: value.pin_memory()
            for item in fields(self)
            if (value := getattr(self, item.name)) is not None
        }
        return replace(self, **pinned)
