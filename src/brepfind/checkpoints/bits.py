"""Floating-point values seen as the integers they are stored as.

With its sign bit cleared, a float orders as an integer: zero, then denormals, then normal numbers,
then infinity and NaN. One integer minimum and maximum over a block therefore tell whether anything
in it is not finite, zero or denormal, for every float type alike: no float8 comparison is needed
(``isfinite`` raises on some of them and answers True for a NaN of ``float8_e8m0fnu``), and integer
reductions run at the speed of memory.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatBits:
    """How one float dtype is laid out.

    Attributes:
        integer: the integer dtype of the same width.
        mask: clears the sign; None where there is no sign bit.
        nonfinite: the smallest masked value that is Inf or NaN; None if there is none such.
        tiny: the smallest masked value of a normal number; 0 where denormals are not worth a look.
        negative_zero_is_nan: NaN is the pattern of the sign bit alone (the ``fnuz`` types).
        zero: whether the pattern 0 is the number 0.
    """

    integer: torch.dtype
    mask: int | None
    nonfinite: int | None
    tiny: int = 0
    negative_zero_is_nan: bool = False
    zero: bool = True


FLOATS: dict[torch.dtype, FloatBits] = {
    torch.float64: FloatBits(
        integer=torch.int64, mask=(1 << 63) - 1, nonfinite=0x7FF << 52, tiny=1 << 52
    ),
    torch.float32: FloatBits(
        integer=torch.int32, mask=(1 << 31) - 1, nonfinite=0xFF << 23, tiny=1 << 23
    ),
    torch.bfloat16: FloatBits(integer=torch.int16, mask=0x7FFF, nonfinite=0x7F80, tiny=0x0080),
    torch.float16: FloatBits(integer=torch.int16, mask=0x7FFF, nonfinite=0x7C00, tiny=0x0400),
}
for _name, _bits in (
    ("float8_e4m3fn", FloatBits(integer=torch.uint8, mask=0x7F, nonfinite=0x7F)),
    ("float8_e5m2", FloatBits(integer=torch.uint8, mask=0x7F, nonfinite=0x7C)),
    (
        "float8_e4m3fnuz",
        FloatBits(integer=torch.uint8, mask=0x7F, nonfinite=None, negative_zero_is_nan=True),
    ),
    (
        "float8_e5m2fnuz",
        FloatBits(integer=torch.uint8, mask=0x7F, nonfinite=None, negative_zero_is_nan=True),
    ),
    ("float8_e8m0fnu", FloatBits(integer=torch.uint8, mask=None, nonfinite=0xFF, zero=False)),
):
    if hasattr(torch, _name):  # some came with later versions of torch
        FLOATS[getattr(torch, _name)] = _bits

_OF_WIDTH = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_NUMPY = {
    torch.float16: (np.int16, np.float16),
    torch.float32: (np.int32, np.float32),
    torch.float64: (np.int64, np.float64),
}
_buffers = threading.local()


def integer_of(dtype: torch.dtype) -> torch.dtype:
    """The integer dtype in which values of ``dtype`` are compared bit for bit."""
    return FLOATS[dtype].integer if dtype in FLOATS else _OF_WIDTH[dtype.itemsize]


def extent(integers: np.ndarray, bits: FloatBits) -> tuple[int, int]:
    """The least and the greatest magnitude of a block, as masked patterns."""
    masked = _masked(integers, bits)
    return int(np.minimum.reduce(masked)), int(np.maximum.reduce(masked))


def magnitudes(block: np.ndarray, bits: FloatBits) -> torch.Tensor:
    """The block with its sign bits cleared, in a buffer of this thread's that is used again."""
    return torch.from_numpy(_masked(block, bits))


def _masked(integers: np.ndarray, bits: FloatBits) -> np.ndarray:
    if bits.mask is None:
        return integers
    # A fresh allocation of this size is fresh pages from the system each time: half of the cost.
    held: dict[np.dtype, np.ndarray] = _buffers.__dict__.setdefault("held", {})
    if len(held.get(integers.dtype, ())) < len(integers):
        held[integers.dtype] = np.empty(len(integers), integers.dtype)
    return np.bitwise_and(integers, bits.mask, out=held[integers.dtype][: len(integers)])


def number(pattern: int, dtype: torch.dtype) -> float:
    """The float that a masked pattern stands for."""
    if dtype in _NUMPY:  # asked of every tensor, where torch takes ten times as long
        integer, floating = _NUMPY[dtype]
        return float(np.array(pattern, integer).view(floating))
    bits = FLOATS[dtype]
    return float(torch.tensor([pattern], dtype=bits.integer).view(dtype).to(torch.float64))


def pattern(value: float, dtype: torch.dtype) -> int:
    """The masked pattern of a positive number, rounded into ``dtype``."""
    bits = FLOATS[dtype]
    return int(torch.tensor([value], dtype=torch.float64).to(dtype).view(bits.integer))
