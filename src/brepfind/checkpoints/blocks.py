"""Cut a tensor of any layout into short flat blocks without copying it whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import torch

from brepfind.checkpoints.bits import integer_of

BLOCK_BYTES = 1 << 19  # this and what is made of it stay in a core's own cache


@dataclass(frozen=True, slots=True)
class Plain:
    """A dense tensor with its dimensions in storage order.

    Attributes:
        values: real, strided, detached; repeated (expanded) dimensions are cut to one, and of
            windows that overlap the stretch of memory under them is taken, in one dimension.
        order: ``order[i]`` is the dimension of the original that dimension i of ``values`` was.
    """

    values: torch.Tensor
    order: tuple[int, ...]

    @property
    def flat(self) -> torch.Tensor | None:
        """All values in one dimension, if that is possible without a copy."""
        return self.values.view(-1) if self.values.is_contiguous() else None

    def integers(self) -> np.ndarray:
        """The values as the integers they are stored as; not a copy."""
        return self.values.view(integer_of(self.values.dtype)).numpy()

    def index(self, position: int) -> tuple[int, ...]:
        """Where the value at a flat position stands in the original tensor."""
        index = [0] * len(self.order)
        for dimension in reversed(range(len(self.order))):
            position, place = divmod(position, self.values.shape[dimension])
            index[self.order[dimension]] = place
        return tuple(index)


def plain(tensor: torch.Tensor) -> Plain:
    """A dense real tensor, made ready for :func:`blocks`."""
    sizes = [
        slice(0, 1) if stride == 0 and size > 1 else slice(None)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    ]
    once = tensor[tuple(sizes)] if sizes else tensor
    strides = once.stride()
    reach = 1 + sum((size - 1) * step for size, step in zip(once.shape, strides, strict=True))
    if once.numel() > max(reach, 0):  # of nothing, the reach is below nothing
        # Windows over one stretch: its values once, where the view would show them without end.
        return Plain(once.as_strided((reach,), (1,)), (0,))
    order = tuple(sorted(range(once.dim()), key=lambda d: (-strides[d], d)))
    if once.is_contiguous():
        order = tuple(range(once.dim()))
    return Plain(once.permute(order), order)


def blocks(
    values: np.ndarray, start: int = 0, stop: int | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """Flat blocks with their position in C order; views where possible, short copies elsewhere.

    NumPy's, because slicing a tensor takes as long as looking at the slice.

    Args:
        values: as :meth:`Plain.integers` gives them.
        start: the first flat position, for contiguous values only.
        stop: the position after the last, for contiguous values only.
    """
    length = max(1, BLOCK_BYTES // values.itemsize)
    if values.flags.c_contiguous:
        flat = values.reshape(-1)
        stop = len(flat) if stop is None else stop
        for at in range(start, stop, length):
            yield at, flat[at : min(at + length, stop)]
        return
    yield from _strided(values, 0, length)


def _strided(values: np.ndarray, at: int, length: int) -> Iterator[tuple[int, np.ndarray]]:
    if values.size <= length:
        yield at, values.reshape(-1)
        return
    row = prod(values.shape[1:])
    if row > length:
        for number, part in enumerate(values):
            yield from _strided(part, at + number * row, length)
        return
    rows = max(1, length // row)
    for first in range(0, values.shape[0], rows):
        yield at + first * row, values[first : first + rows].reshape(-1)
