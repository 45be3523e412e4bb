"""The finer signs of a float tensor: rows that hold one value, values far out of range."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch

from brepfind.checkpoints.bits import FLOATS, integer_of, magnitudes, number, pattern
from brepfind.checkpoints.blocks import Plain, blocks

_SAMPLE = 1024
_FAR = 1000.0  # times the 90th percentile of the magnitudes
_FAR_NEEDS = 64  # values; a percentile of fewer says nothing


@dataclass(frozen=True, slots=True)
class Far:
    """Values above a thousand times the 90th percentile of the magnitudes."""

    count: int
    first: int
    factor: float


def constant_rows(tensor: torch.Tensor) -> tuple[int, int | None]:
    """How many rows (along the first dimension) hold one value each, and the first of them."""
    rows = tensor.shape[0] if tensor.dim() else 0
    width = prod(tensor.shape[1:])
    dense = tensor.layout is torch.strided and not tensor.is_complex()
    if rows < 2 or width < 4 or not dense or not tensor.is_contiguous():
        return 0, None
    table = tensor.view(integer_of(tensor.dtype)).view(rows, width)
    first = table[:, 0]
    # Four columns tell nearly all rows apart; only what is left is read whole.
    same = (first == table[:, -1]) & (first == table[:, width // 2]) & (first == table[:, 1])
    found = [row for row in same.nonzero().flatten().tolist() if _constant(table[row])]
    return len(found), found[0] if found else None


def _constant(row: torch.Tensor) -> bool:
    low, high = torch.aminmax(row)
    return int(low) == int(high)


def far_values(part: Plain, largest: float) -> Far | None:
    """Values far out of the rest's range, if there are any; ``largest`` is the largest of all."""
    flat = part.flat
    if flat is None or flat.numel() < _FAR_NEEDS or flat.element_size() == 1:
        return None
    bits = FLOATS[flat.dtype]
    sample = flat[:: -(-flat.numel() // _SAMPLE)]
    patterns = (sample.view(bits.integer) & (bits.mask or 0)).sort().values
    patterns = patterns[patterns > 0]
    if not patterns.numel():
        return None
    usual = number(int(patterns[int(0.9 * (patterns.numel() - 1))]), flat.dtype)
    if not largest > _FAR * usual:
        return None
    limit = pattern(min(_FAR * usual, torch.finfo(flat.dtype).max), flat.dtype)
    count, first = 0, None
    for at, block in blocks(part.values):
        masked = magnitudes(block.view(bits.integer), bits)
        far = (masked > limit) & (masked < (bits.nonfinite or 0))
        here = int(far.sum())
        if here and first is None:
            first = at + int(far.int().argmax())
        count += here
    return Far(count, first, largest / usual) if first is not None else None
