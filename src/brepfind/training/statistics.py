"""BatchNorm statistics that a forward pass changes, and how a skipped step puts them back."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from brepfind.distributed.group import Group


class LiveStatistics:
    """Buffers that a forward pass changes, so that a skipped step can put them back.

    Only modules in training mode whose running statistics are not frozen have any; with frozen
    statistics this costs nothing.
    """

    def __init__(self, module: nn.Module) -> None:
        self._modules = [m for m in module.modules() if hasattr(m, "running_mean")]
        self._kept: list[tuple[Tensor, Tensor]] = []

    def live(self) -> list[Tensor]:
        """The buffers that the next forward pass would change."""
        return [
            buffer
            for module in self._modules
            if module.training and not getattr(module, "frozen", False)
            for buffer in module.buffers(recurse=False)
        ]

    def remember(self) -> None:
        """Keep a copy."""
        self._kept = [(buffer, buffer.clone()) for buffer in self.live()]

    def restore(self) -> None:
        """Put the copy back."""
        with torch.no_grad():
            for buffer, kept in self._kept:
                buffer.copy_(kept)

    def average(self, group: Group) -> None:
        """Make live statistics the mean over the ranks, so that all validate the same model."""
        if group.world == 1:
            return
        for buffer in self.live():
            if buffer.is_floating_point():
                values = group.gather(buffer.cpu(), "average BatchNorm statistics")
                buffer.copy_(torch.stack(values).mean(0))
