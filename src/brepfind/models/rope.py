"""Rotary position embedding with two real tables instead of one complex table.

A complex table is a trap: NCCL refuses it while gloo takes it, ``.to(bfloat16)`` keeps only its
cosine, and not every writer saves it. Cosine and sine as two float32 tensors hold the same numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

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
    turned: Tensor = _Rotation.apply(at_least_float32(x), cos, sin)
    return turned.to(x.dtype)


class _Rotation(torch.autograd.Function):
    """The gradient is turned back by the same angle; torch's own would go through slices, each of
    which fills a tensor of zeros.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turn(x, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turn(gradient, cos, -sin), None, None


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """A pair times (cosine, sine) is a product of complex numbers, for which torch has a kernel.

    Only here, between two views of real tensors, and with a factor for each element: a factor
    spread over the heads would be walked in steps of one head.
    """
    pairs = torch.view_as_complex(x.contiguous().unflatten(-1, (-1, 2)))
    factors = torch.complex(cos, sin).expand(pairs.shape).contiguous()
    return torch.view_as_real(pairs * factors).flatten(-2)


def at_least_float32(x: Tensor) -> Tensor:
    """``x`` in float32, or as it is where it is float64."""
    return x if x.dtype == torch.float64 else x.float()
