"""Matrix products by the faster of torch's two CPU libraries.

torch multiplies float32 matrices on a CPU with MKL. On AMD processors that leaves half of the
vector unit idle, and oneDNN, which torch carries for convolutions, does not (235 against 105
GFLOP/s per core); on Intel's MKL is the faster one (150 against 125, and 135 against 90 for the
gradients of weights, which oneDNN copies first). What :func:`linear` cannot hand to oneDNN goes to
``torch.nn.functional.linear``, too: other devices, other dtypes, autocast, functional transforms.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional


def _is_amd() -> bool:
    """Whether MKL would take its slow path; only Linux says it without a further library."""
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


# An operator that torch's own compiler emits; absent from builds without oneDNN.
_OPERATOR = (
    getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    if torch.backends.mkldnn.is_available() and _is_amd()
    else None
)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias``; x: (N, inputs), weight: (outputs, inputs), bias: (outputs,)."""
    if _OPERATOR is None or not _suits(x, weight):
        return functional.linear(x, weight, bias)
    product: Tensor = _Linear.apply(x, weight, bias)
    return product


class Linear(nn.Linear):
    """``nn.Linear`` on (N, inputs) through :func:`linear`; the same parameters and keys."""

    def forward(self, x: Tensor) -> Tensor:
        """Args: x: (N, inputs). Returns (N, outputs)."""
        return linear(x, self.weight, self.bias)


def _suits(x: Tensor, weight: Tensor) -> bool:
    return (
        x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.dim() == 2
        and x.numel() > 0
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """As :func:`linear`, for code that has its own gradient; float32 on the CPU or any other."""
    if _OPERATOR is None or not _suits(x, weight):
        return functional.linear(x, weight, bias)
    return _OPERATOR(x, weight, bias, "none", [], "")


def add_product(total: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """``total += x @ weight.T`` in place, for code that has its own gradient."""
    if _OPERATOR is None or not _suits(x, weight):
        return total.addmm_(x, weight.t())
    return total.add_(product(x, weight))


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        to_x, to_weight, to_bias = ctx.needs_input_grad
        return (
            product(gradient, weight.t()) if to_x else None,
            product(gradient.t(), x.t()) if to_weight else None,
            gradient.sum(0) if to_bias else None,
        )
