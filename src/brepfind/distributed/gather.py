"""Gather features from all ranks so that gradients flow back to the rank they came from.

torch has such a function, but it is deprecated in torch 2.13 and fails where warnings are errors.
Both directions make their tensors contiguous: gloo and NCCL refuse others, and the gradient of a
``sum`` is an expanded tensor, which is not.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        rows = rows.contiguous()
        parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, rows)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        pieces = list(grads[0].contiguous().chunk(dist.get_world_size()))
        mine = torch.empty_like(pieces[0])
        # The sum over ranks: every rank's loss depends on every rank's rows.
        dist.reduce_scatter(mine, pieces)
        return mine


def gather_with_grad(rows: Tensor) -> Tensor:
    """All ranks' rows, in the order of ranks.

    Args:
        rows: (B, D), the same shape on every rank.

    Returns:
        (world x B, D). Its gradient comes back as the sum over the ranks' losses; divide by the
        number of ranks (as DistributedDataParallel does with parameters) to get the gradient of
        their mean. With one process the rows themselves.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return rows
    gathered: Tensor = _GatherRows.apply(rows)
    return gathered
