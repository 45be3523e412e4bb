"""What one step trains on, and in which order: pure functions of the seed and the step.

Nothing here keeps a position or a random state: the batch of a step follows from the seed, the
epoch and the step, so that a resumed run meets the same batches as an unbroken one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from brepfind.errors import InputError
from brepfind.graphs.batch import PartBatch

_ORDER, _CAPTIONS = 0, 1  # streams of random numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Micro:
    """Pairs that pass through the towers together.

    Attributes:
        parts: b parts.
        hidden: (b, T, h), what the frozen layers of the text tower give for the captions.
        mask: (b, T), 1 at tokens.
        numbers: (b, NUMBER_PLACES), the lengths and counts that the captions name.
    """

    parts: PartBatch
    hidden: Tensor
    mask: Tensor
    numbers: Tensor

    def to(self, device: torch.device) -> Micro:
        """The same pairs on another device; copies overlap with work where memory is pinned."""
        return Micro(
            parts=self.parts.to(device, non_blocking=True),
            hidden=self.hidden.to(device, non_blocking=True),
            mask=self.mask.to(device, non_blocking=True),
            numbers=self.numbers.to(device, non_blocking=True),
        )

    def pin_memory(self) -> Micro:
        """The same pairs in page-locked memory."""
        return Micro(
            parts=self.parts.pin_memory(),
            hidden=self.hidden.pin_memory(),
            mask=self.mask.pin_memory(),
            numbers=self.numbers.pin_memory(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """A rank's share of a step.

    Attributes:
        micros: this rank's pairs, cut into micro-batches of equal size.
        same: bool (N, N), pairs of all ranks that are not each other's negatives.
        ids: the part ids of all ranks, in the order of ranks: N of them.
        captions: this rank's captions.
        digest: a number that is equal on all ranks if they took the same batch.
        chance, alone: see :func:`brepfind.training.loss.guessing`.
    """

    micros: tuple[Micro, ...]
    same: Tensor
    ids: tuple[str, ...]
    captions: tuple[str, ...]
    digest: int
    chance: float
    alone: int

    def to(self, device: torch.device) -> StepBatch:
        """The same share on another device."""
        return replace(
            self,
            micros=tuple(micro.to(device) for micro in self.micros),
            same=self.same.to(device, non_blocking=True),
        )

    def pin_memory(self) -> StepBatch:
        """The same share in page-locked memory; the loader calls this where there is a GPU."""
        return replace(
            self,
            micros=tuple(micro.pin_memory() for micro in self.micros),
            same=self.same.pin_memory(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which items make up each step.

    Attributes:
        items: how many there are to train on.
        batch_size: items per step over all ranks; the rest of an epoch's items sits it out.
        seed: of the order and of the captions drawn.
    """

    items: int
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        if self.items < self.batch_size:
            raise InputError(
                f"train.batch_size is {self.batch_size} but there are {self.items} training parts "
                f"with captions; set it to {self.items} or less, or add parts"
            )

    @property
    def steps(self) -> int:
        """Steps in an epoch, at least 1, the same for every rank."""
        return self.items // self.batch_size

    def epoch(self, epoch: int) -> NDArray[np.int64]:
        """int64 (steps, batch_size), item numbers in random order."""
        order = np.random.default_rng([self.seed, epoch, _ORDER]).permutation(self.items)
        return order[: self.steps * self.batch_size].reshape(self.steps, self.batch_size)

    @property
    def sitting_out(self) -> int:
        """Items that an epoch leaves out, since every step has a whole batch."""
        return self.items - self.steps * self.batch_size

    def never_seen(self, epochs: int) -> int:
        """Items that so many epochs never train on."""
        seen = np.zeros(self.items, bool)
        for epoch in range(epochs if self.sitting_out else 1):
            seen[self.epoch(epoch).ravel()] = True
            if seen.all():
                break
        return int((~seen).sum())

    def captions(self, epoch: int, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64 (items,), which of its captions each item has in this epoch."""
        drawn = np.random.default_rng([self.seed, epoch, _CAPTIONS]).random(self.items)
        return (drawn * counts).astype(np.int64)


def share_of(rows: NDArray[np.int64], rank: int, world: int) -> NDArray[np.int64]:
    """A rank's part of a step's items: equal slices, in the order of ranks."""
    size = len(rows) // world
    return rows[rank * size : (rank + 1) * size]
