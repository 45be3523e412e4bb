"""Rotary position embedding with two real tables instead of one complex table.

A complex table is a trap: NCCL refuses it while gloo takes it, ``.to(bfloat16)`` keeps only its
cosine, and not every writer saves it. Cosine and sine as two float32 tensors hold the same numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

THETA = 500_000.0  # BRepFormer's base
POSITIONS = 4096  # rows of its table: the graph token and at most 4,095 faces


def rope_tables(
    head_dim: int, positions: int = POSITIONS, theta: float = THETA
) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each float32 (positions, head_dim / 2).

    The angle of pair ``i`` at position ``p`` is ``p / theta ** (2 i / head_dim)``, computed in
    float32 as the authors' table is.
    """
    pairs = torch.arange(0, head_dim, 2)[: head_dim // 2].float()
    speeds = 1.0 / (theta ** (pairs / head_dim))
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), speeds)
    return torch.cos(angles), torch.sin(angles)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair of neighbouring elements (2i, 2i + 1) by its angle.

    Args:
        x: (..., heads, head_dim); any floating dtype.
        cos, sin: float32 (..., 1, head_dim / 2), the rows of the tables for the positions of ``x``.

    Returns:
        As ``x``; the product is taken in float32 (float64 for a float64 ``x``).
    """
    wide = at_least_float32(x)
    even, odd = wide[..., 0::2], wide[..., 1::2]
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return turned.flatten(-2).to(x.dtype)


def at_least_float32(x: Tensor) -> Tensor:
    """``x`` in float32, or as it is where it is float64."""
    return x if x.dtype == torch.float64 else x.float()
