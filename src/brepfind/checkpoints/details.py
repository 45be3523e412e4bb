"""The finer signs of a float tensor: rows that hold one value, values far out of range."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from brepfind.checkpoints.bits import FLOATS, integer_of, magnitudes, number, pattern
from brepfind.checkpoints.blocks import BLOCK_BYTES, Plain, blocks

_SAMPLE = 1024
_FAR = 1000.0  # times the 90th percentile of the magnitudes
_FAR_NEEDS = 64  # values; a percentile of fewer says nothing


@dataclass(frozen=True, slots=True)
class Far:
    """Values above a thousand times the 90th percentile of the magnitudes."""

    count: int
    first: int
    factor: float


def constant_rows(tensor: torch.Tensor, alike: list[np.ndarray]) -> tuple[int, int | None]:
    """How many rows (along the first dimension) hold one value each, and the first of them.

    Args:
        tensor: contiguous.
        alike: the only rows that can, as :class:`brepfind.checkpoints.signs.Signs` names them.
    """
    if not alike:
        return 0, None
    table = tensor.view(integer_of(tensor.dtype)).view(tensor.shape[0], -1)
    rows = torch.from_numpy(np.concatenate(alike))
    for column in (table.shape[1] // 2, table.shape[1] - 1):
        rows = rows[table[rows, column] == table[rows, 0]]
    together = max(1, BLOCK_BYTES // (table.shape[1] * table.element_size()))
    found = [
        part[(table[part] == table[part][:, :1]).all(dim=1)]
        for part in rows.split(together)
        if len(part)
    ]
    constant = torch.cat(found) if found else rows
    return len(constant), int(constant[0]) if len(constant) else None


def far_values(part: Plain, largest: float) -> Far | None:
    """Values far out of the rest's range, if there are any; ``largest`` is the largest of all."""
    flat = part.flat
    if flat is None or flat.numel() < _FAR_NEEDS or flat.element_size() == 1:
        return None
    bits = FLOATS[flat.dtype]
    sample = flat.view(bits.integer).numpy()[:: -(-flat.numel() // _SAMPLE)]
    patterns = np.sort(sample & (bits.mask or 0))
    patterns = patterns[patterns > 0]
    if not len(patterns):
        return None
    usual = number(int(patterns[int(0.9 * (len(patterns) - 1))]), flat.dtype)
    if not largest > _FAR * usual:
        return None
    limit = pattern(min(_FAR * usual, torch.finfo(flat.dtype).max), flat.dtype)
    count, first = 0, None
    for at, block in blocks(part.integers()):
        masked = magnitudes(block, bits)
        far = (masked > limit) & (masked < (bits.nonfinite or 0))
        here = int(far.sum())
        if here and first is None:
            first = at + int(far.int().argmax())
        count += here
    return Far(count, first, largest / usual) if first is not None else None
