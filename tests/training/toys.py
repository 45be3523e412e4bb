"""Small stand-ins for the towers, so that a step can be tested without parts and captions."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from brepfind.distributed.group import Group, open_group
from brepfind.training.batches import StepBatch
from brepfind.training.faults import Fault, Faults
from brepfind.training.loss import same_pairs
from brepfind.training.step import GuardedStep
from tests.training.tiny import config


class Toy(nn.Module):
    """Two linear towers on vectors; optionally a BatchNorm and dropout."""

    def __init__(self, norm: bool = False, dropout: float = 0.0, blow_up: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.parts = nn.Linear(5, 4)
        self.texts = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(5) if norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.logit_scale = nn.Parameter(torch.tensor(1.0))
        self.blow_up = blow_up

    def forward(self, micro: Toys) -> tuple[Tensor, Tensor, Tensor]:
        parts = self.parts(self.dropout(self.norm(micro.parts))) * self.blow_up
        # Transposed twice: what comes out is not contiguous.
        return parts.t().contiguous().t(), self.texts(micro.hidden), self.logit_scale.exp()


class Toys:
    """A micro-batch of vectors."""

    def __init__(self, parts: Tensor, hidden: Tensor) -> None:
        self.parts, self.hidden = parts, hidden


def pairs(step: int, size: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """The vectors of a whole step: the same whatever the number of ranks."""
    generator = torch.Generator().manual_seed(step)
    return (
        torch.randn(size, 5, generator=generator, dtype=torch.float64).to(dtype),
        torch.randn(size, 3, generator=generator, dtype=torch.float64).to(dtype),
    )


def batch_of(
    step: int, size: int, group: Group, micro: int | None = None, dtype: Any = torch.float32
) -> StepBatch:
    """A rank's share of a step of ``size`` pairs; pairs 1 and 2 are twins."""
    parts, texts = pairs(step, size, dtype)
    share = size // group.world
    mine = slice(group.rank * share, (group.rank + 1) * share)
    cut = micro or share
    groups = torch.arange(size)
    groups[2] = 1
    micros = zip(parts[mine].split(cut), texts[mine].split(cut), strict=True)
    return StepBatch(
        micros=tuple(Toys(a, b) for a, b in micros),
        same=same_pairs(groups, torch.arange(size)),
        ids=tuple(f"part-{number}" for number in range(size)),
        captions=(),
        digest=step,
        chance=1.0,
        alone=0,
    )


@contextmanager
def guarded_toy(toy: Toy | None = None, faults: tuple[Fault, ...] = (), **changes: Any):
    """A guarded step on a toy, in a group if the environment has one."""
    with open_group(20.0, device="cpu") as group:
        yield guard(group, toy, faults, **changes)


def guard(
    group: Group, toy: Toy | None = None, faults: tuple[Fault, ...] = (), **changes: Any
) -> GuardedStep:
    """A guarded step on a toy in a group."""
    settings = config(
        **{"warmup_steps": 0, "schedule": "constant", "processes": group.world, **changes}
    )
    toy = toy or Toy()
    optimizer = torch.optim.AdamW([{"params": list(toy.parameters()), "lr": 1e-2, "base_lr": 1e-2}])
    return GuardedStep(toy, optimizer, group, settings, 100, Faults(faults, group.rank))
