"""The gated feed-forward block with a backward pass that keeps no more than it needs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from brepfind.models.linear import add_product, linear, product


def swiglu(x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
    """``(silu(x @ w1.T) * (x @ w3.T)) @ w2.T``.

    For the backward pass ``x`` is kept, the product ``silu(..) * (..)`` and its two derivatives;
    what they were computed from is not.

    Args:
        x: (T, dim). w1, w3: (hidden, dim). w2: (dim, hidden).

    Returns:
        (T, dim).
    """
    if torch.is_autocast_enabled(x.device.type) or not torch.is_grad_enabled():
        return linear(functional.silu(linear(x, w1)) * linear(x, w3), w2)
    out: Tensor = _SwiGLU.apply(x, w1, w2, w3)
    return out


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
        gate, value = product(x, w1), product(x, w3)
        by_value = functional.silu(gate)
        gated = by_value * value
        by_gate = torch.ops.aten.silu_backward(value, gate, grad_input=value)
        ctx.save_for_backward(x, w1, w2, w3, gated, by_gate, by_value)
        return product(gated, w2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        x, w1, w2, w3, gated, by_gate, by_value = ctx.saved_tensors
        to_w2 = product(gradient.t(), gated.t())
        to_gated = product(gradient, w2.t())
        to_value = to_gated * by_value
        to_gate = to_gated.mul_(by_gate)
        to_x = add_product(product(to_gate, w1.t()), to_value, w3.t())
        return to_x, product(to_gate.t(), x.t()), to_w2, product(to_value.t(), x.t())
