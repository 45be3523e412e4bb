"""What one stretch of a tensor shows, and how stretches add up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch

from brepfind.checkpoints.bits import FLOATS, FloatBits, extent, magnitudes
from brepfind.checkpoints.blocks import blocks
from brepfind.checkpoints.crc import crc32
from brepfind.checkpoints.parts import Parts


@dataclass(slots=True)
class Signs:
    """What blocks add up to. Patterns are masked integers; positions are flat.

    Attributes:
        nan, inf, denormal: counts; ``first_...`` are the positions of the first of each.
        low, high: the least and the greatest pattern that is finite; ``low`` is None if none is.
        one: the pattern of every value so far, as stored, unless it ``varies``.
        crc: the CRC-32 of the bytes, where it was asked for.
        nbytes: how many bytes were looked at.
        alike: rows that begin with the same value twice; no other row can hold one value only.
    """

    nan: int = 0
    first_nan: int | None = None
    inf: int = 0
    first_inf: int | None = None
    denormal: int = 0
    first_denormal: int | None = None
    low: int | None = None
    high: int = 0
    one: int | None = None
    varies: bool = False
    crc: int = 0
    nbytes: int = 0
    alike: list[np.ndarray] = field(default_factory=list)

    def add(self, other: Signs) -> None:
        """Add a later stretch of the same tensor; checksums are joined by the caller."""
        self.nan += other.nan
        self.inf += other.inf
        self.denormal += other.denormal
        self.nbytes += other.nbytes
        self.alike += other.alike
        for first in ("first_nan", "first_inf", "first_denormal"):
            if getattr(self, first) is None:
                setattr(self, first, getattr(other, first))
        lows = [low for low in (self.low, other.low) if low is not None]
        self.low = min(lows) if lows else None
        self.high = max(self.high, other.high)
        both = self.one is not None and other.one is not None
        self.varies = self.varies or other.varies or (both and self.one != other.one)
        self.one = other.one if self.one is None else self.one


def look_at(parts: Parts, start: int, stop: int | None, summing: bool) -> Signs:
    """Look at the values from one flat position to another.

    Args:
        parts: the numbers of a tensor.
        start: the first position.
        stop: the position after the last; None for the end.
        summing: also sum the bytes, while the block is in the cache anyway.
    """
    part, width = parts.plain, parts.width
    total = Signs()
    low, high, varies = 1 << 64, 0, False
    bits = FLOATS.get(part.values.dtype)
    for at, block in blocks(part.integers(), start, stop):
        if summing:
            total.crc = crc32(block.data, total.crc)
        total.nbytes += block.nbytes
        if width:
            _note_alike(total, block, at, width)
        if bits is None:
            total.add(_of_integers(block))
            continue
        block_low, block_high = extent(block, bits)
        if _ordinary(block_low, block_high, bits):
            # Nearly every block of a sound checkpoint ends here; the rest is for the odd ones.
            low, high, varies = min(low, block_low), max(high, block_high), True
        else:
            dtype = part.values.dtype
            total.add(_of_odd_floats(block, dtype, bits, at, block_low, block_high))
    if varies:
        total.add(Signs(low=low, high=high, varies=True))
    return total


def _note_alike(total: Signs, integers: np.ndarray, at: int, width: int) -> None:
    # Here the block is in the cache; a walk down the columns of a large tensor later is not.
    ahead = -at % width
    one, other = integers[ahead::width], integers[ahead + 1 :: width]
    rows = np.flatnonzero(one[: len(other)] == other)
    if len(one) > len(other):  # the row goes on in the next block
        rows = np.append(rows, len(other))
    if len(rows):
        total.alike.append(rows + (at + ahead) // width)


def _ordinary(low: int, high: int, bits: FloatBits) -> bool:
    finite = bits.nonfinite is None or high < bits.nonfinite
    return low >= bits.tiny and low != high and finite and not bits.negative_zero_is_nan


def _of_integers(integers: np.ndarray) -> Signs:
    one = int(np.minimum.reduce(integers))
    return Signs(one=one, varies=one != int(np.maximum.reduce(integers)))


def _of_odd_floats(
    integers: np.ndarray, dtype: torch.dtype, bits: FloatBits, at: int, low: int, high: int
) -> Signs:
    total = Signs(low=low, high=high, varies=True)
    if low == high:
        total = replace(_of_integers(integers), low=low, high=high)
    if bits.negative_zero_is_nan or (bits.nonfinite is not None and high >= bits.nonfinite):
        _count_nonfinite(total, integers, dtype, bits, at)
    if bits.tiny and low < bits.tiny and high > 0:
        _count_denormals(total, integers, bits, at)
    return total


def _count_nonfinite(
    total: Signs, integers: np.ndarray, dtype: torch.dtype, bits: FloatBits, at: int
) -> None:
    block = torch.from_numpy(integers).view(dtype)
    # Upcast first: some float8 types have no isinf, and e8m0fnu calls its NaN finite.
    wide = block if block.dtype is torch.float64 else block.float()
    for kind, mask in (("nan", torch.isnan(wide)), ("inf", torch.isinf(wide))):
        count = int(mask.sum())
        if count:
            setattr(total, kind, count)
            setattr(total, f"first_{kind}", at + int(mask.int().argmax()))
    finite = magnitudes(integers, bits)[torch.isfinite(wide)]  # asked of the upcast values
    total.low, total.high = None, 0
    if finite.numel():
        total.low, total.high = map(int, torch.aminmax(finite))


def _count_denormals(total: Signs, integers: np.ndarray, bits: FloatBits, at: int) -> None:
    masked = magnitudes(integers, bits)
    if total.low == 0:
        # Zeros hide the smallest number above them: move zero past all others, look again.
        assert bits.mask is not None
        masked.sub_(1).bitwise_and_(bits.mask)
        least = int(masked.min()) + 1
        if least >= bits.tiny:
            return
        masked.add_(1).bitwise_and_(bits.mask)
    denormal = (masked > 0) & (masked < bits.tiny)
    total.denormal = int(denormal.sum())
    if total.denormal:
        total.first_denormal = at + int(denormal.int().argmax())
