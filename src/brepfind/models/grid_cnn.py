"""The CNNs over a face's or an edge's grid of samples."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from brepfind.models.linear import Linear
from brepfind.models.norm import BatchNorm

_WIDTHS = (64, 128, 256)
_SLOPE = 0.01  # of LeakyReLU, torch's default
# Grid samples per pass on a CPU: what a pass computes stays in its cache. A GPU takes all at once.
_CHUNK_SAMPLES = 6_400


class GridCNN(nn.Module):
    """Three 3-wide convolutions, the mean over the grid, one linear layer; in 1 or 2 dimensions.

    Args:
        dims: 1 for curves (N, channels, G), 2 for surfaces (N, channels, G, G).
        channels: of the input.
        width: of the output (N, width).
    """

    def __init__(self, dims: Literal[1, 2], channels: int, width: int) -> None:
        super().__init__()
        conv = nn.Conv1d if dims == 1 else nn.Conv2d
        self._convolve = functional.conv1d if dims == 1 else functional.conv2d
        before = channels
        for number, after in enumerate(_WIDTHS, start=1):
            block = nn.Sequential(
                conv(before, after, kernel_size=3, padding=1, bias=False), BatchNorm(after)
            )
            self.add_module(f"conv{number}", block)
            before = after
        self.fc = nn.Sequential(Linear(before, width, bias=False), BatchNorm(width))

    def forward(self, grid: Tensor) -> Tensor:
        """Args: grid: (N, channels, G) or (N, channels, G, G). Returns (N, width)."""
        if any(isinstance(m, BatchNorm) and m.uses_batch(2) for m in self.modules()):
            pooled = self._with_batch_statistics(grid)
        else:
            pooled = self._with_fixed_statistics(grid)
        return self.fc(pooled)

    def _blocks(self) -> list[tuple[nn.Module, BatchNorm]]:
        return [getattr(self, f"conv{number}") for number in range(1, len(_WIDTHS) + 1)]

    def _with_batch_statistics(self, grid: Tensor) -> Tensor:
        x = grid
        for conv, norm in self._blocks():
            x = functional.leaky_relu(norm(conv(x)), _SLOPE, inplace=True)
        return x.flatten(2).mean(2)

    def _with_fixed_statistics(self, grid: Tensor) -> Tensor:
        """Norms folded into the kernels, a few grids at a time."""
        kernels = []
        for conv, norm in self._blocks():
            scale, shift = norm.affine()
            assert isinstance(conv.weight, Tensor)
            kernels.append((conv.weight * scale.view(-1, *[1] * (conv.weight.dim() - 1)), shift))
        size = len(grid)
        if grid.device.type == "cpu":
            size = max(1, _CHUNK_SAMPLES // max(1, grid[0, 0].numel() if size else 1))
        pooled = []
        for x in grid.split(max(size, 1)):
            for kernel, shift in kernels[:-1]:
                x = functional.leaky_relu(
                    self._convolve(x, kernel, shift, padding=1), _SLOPE, inplace=True
                )
            kernel, shift = kernels[-1]
            pooled.append(_LeakyMean.apply(self._convolve(x, kernel, shift, padding=1)))
        return torch.cat(pooled)


class _LeakyMean(torch.autograd.Function):
    """Mean over the grid of LeakyReLU; keeps the signs only, a byte for each number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = x > 0
        ctx.save_for_backward(positive)
        return functional.leaky_relu(x, _SLOPE).flatten(2).mean(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        samples = positive[0, 0].numel()
        gradient = (gradient / samples).view(*gradient.shape, *[1] * (positive.dim() - 2))
        return torch.where(positive, gradient, gradient * _SLOPE)
