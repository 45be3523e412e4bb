"""The gated feed-forward block with what is cheap computed twice instead of kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from brepfind.models.linear import linear, product


def swiglu(x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
    """``(silu(x @ w1.T) * (x @ w3.T)) @ w2.T``.

    Only ``x`` and its two products are kept for the backward pass; the activation and the gated
    product, as large as these, are computed again there.

    Args:
        x: (T, dim). w1, w3: (hidden, dim). w2: (dim, hidden).

    Returns:
        (T, dim).
    """
    if torch.is_autocast_enabled(x.device.type):
        return linear(functional.silu(linear(x, w1)) * linear(x, w3), w2)
    out: Tensor = _SwiGLU.apply(x, w1, w2, w3)
    return out


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
        gate, value = product(x, w1), product(x, w3)
        ctx.save_for_backward(x, w1, w2, w3, gate, value)
        return product(functional.silu(gate).mul_(value), w2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        x, w1, w2, w3, gate, value = ctx.saved_tensors
        active = functional.silu(gate)
        to_gated = product(gradient, w2.t())
        to_w2 = product(gradient.t(), (active * value).t())
        to_value = active.mul_(to_gated)
        to_gate = torch.ops.aten.silu_backward(to_gated.mul_(value), gate)
        to_x = product(to_gate, w1.t()).add_(product(to_value, w3.t()))
        return to_x, product(to_gate.t(), x.t()), to_w2, product(to_value.t(), x.t())
