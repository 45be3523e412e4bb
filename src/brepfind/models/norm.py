"""Normalisation: BatchNorm that can be frozen and never divides by nothing, and RMSNorm."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from brepfind.models.rope import at_least_float32


class BatchNorm(nn.Module):
    """BatchNorm over every axis but the second, with the state-dict keys of ``nn.BatchNorm1d``.

    Two things differ from torch's own:

    - ``frozen`` statistics stay frozen through ``train()``; weight and bias still learn;
    - a batch with one value per channel, or none, has no variance: the running statistics are
      used and not moved, where torch raises.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps = eps
        self.momentum: float | None = momentum
        self.frozen = False
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.register_buffer("num_batches_tracked", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, no batch seen."""
        self.running_mean.zero_()
        self.running_var.fill_(1.0)
        self.num_batches_tracked.zero_()

    def uses_batch(self, values_per_channel: int) -> bool:
        """Whether a forward pass over so many values would use the batch's own statistics."""
        return self.training and not self.frozen and values_per_channel > 1

    def affine(self) -> tuple[Tensor, Tensor]:
        """The running statistics as one scale and shift per channel: ``x * scale + shift``."""
        scale = self.weight * torch.rsqrt(self.running_var + self.eps)
        return scale, self.bias - self.running_mean * scale

    def forward(self, x: Tensor) -> Tensor:
        """Args: x: (N, C) or (N, C, ...). Returns the same shape."""
        if not self.uses_batch(x.numel() // len(self.weight)):
            scale, shift = self.affine()
            shape = (1, -1, *[1] * (x.dim() - 2))
            return torch.addcmul(shift.view(shape), x, scale.view(shape))
        self.num_batches_tracked += 1
        momentum = self.momentum
        if momentum is None:  # a plain mean over all batches since the last reset
            momentum = 1.0 / float(self.num_batches_tracked)
        return nn.functional.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=True,
            momentum=momentum,
            eps=self.eps,
        )


class RMSNorm(nn.Module):
    """Root-mean-square norm with a weight, computed in float32."""

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Args: x: (..., dim). Returns the same shape; normed in the dtype of ``x``, weighted."""
        normed: Tensor = _RMSNorm.apply(x, self.weight, self.eps)
        return normed


class _RMSNorm(torch.autograd.Function):
    """torch has no kernel for it on a CPU, and the gradients of its parts take twice as long."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = at_least_float32(x)
        scale = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        scale = scale.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        normed = (wide * scale).to(x.dtype)
        ctx.save_for_backward(normed, scale, weight)
        return normed * weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        normed, scale, weight = ctx.saved_tensors
        normed, gradient, weight = map(at_least_float32, (normed, gradient, weight))
        by_weight = (gradient * normed).reshape(-1, len(weight))
        along = torch.mv(by_weight, weight).div_(-len(weight)).view_as(scale)
        to_x = (gradient * weight).addcmul_(normed, along).mul_(scale)
        return to_x, by_weight.sum(0), None


def freeze_batch_norm(module: nn.Module, frozen: bool = True) -> int:
    """Freeze (or free) the statistics of every :class:`BatchNorm` in ``module``.

    Weights and biases go on learning. Returns how many there are.
    """
    norms = [child for child in module.modules() if isinstance(child, BatchNorm)]
    for norm in norms:
        norm.frozen = frozen
    return len(norms)
