"""CRC-32 of long stretches at the speed of memory, with NumPy's exclusive or.

The polynomial P of CRC-32 divides ``x^91639 + x^41678 + 1``, its shortest multiple of three terms.
Squaring is linear over GF(2), so P also divides that trinomial's 64th power, which is the same
with 64 times the exponents: whole 64-bit words may be moved. Each word of the message, once read,
is therefore added (exclusive or) to the words 49,961 and 91,639 places further on, and is gone::

    v[t] = m[t] ^ v[t - 49961] ^ v[t - 91639]

What is left of a stretch of any length is 91,639 words, and zlib sums those. Blocks shorter than
49,961 words have no word that depends on another of the same block.
"""

from __future__ import annotations

import threading
import zlib
from functools import lru_cache

import numpy as np

FAR, NEAR = 91_639, 49_961  # in words: the trinomial's degree, and that less its middle exponent
WORD = 8
BLOCK_WORDS = 32_768  # 256 KiB: with the ring it stays in a core's own cache
_RING = -(-(FAR + BLOCK_WORDS) // BLOCK_WORDS) * BLOCK_WORDS  # 1 MiB in whole blocks
WORTH_IT = 4 * FAR * WORD  # below some multiple of what zlib sums anyway, zlib alone is as fast

_own = threading.local()


class Folding:
    """The CRC-32 of a stretch that is given block by block.

    Args:
        words: all words of the stretch; ``int64``, at least ``FAR`` of them.
    """

    def __init__(self, words: np.ndarray) -> None:
        self._words = words
        self._end = len(words) - FAR  # words beyond are not folded but left for zlib
        self._ring = _ring()
        self._ring.fill(0)

    def fold(self, start: int) -> None:
        """Fold the block of ``BLOCK_WORDS`` words at ``start``; blocks come in order."""
        stop = min(start + BLOCK_WORDS, self._end)
        if stop <= start:
            return
        place = start % _RING
        out = self._ring[place : place + stop - start]
        first = True
        for back in (NEAR, FAR):
            for at, end, theirs in _pieces(start - back, stop - back):
                mine = out[at:end]
                source = self._words[start + at : start + end] if first else mine
                np.bitwise_xor(source, self._ring[theirs : theirs + end - at], out=mine)
            first = False

    def crc(self, tail: bytes | memoryview = b"") -> int:
        """The CRC-32 of all words and of what follows them, once every block was folded."""
        rest = self._words[self._end :].copy()
        for back, length in ((FAR, FAR), (NEAR, NEAR)):
            for at, end, theirs in _pieces(self._end - back, self._end - back + length):
                rest[at:end] ^= self._ring[theirs : theirs + end - at]
        # A CRC starts from ones and ends inverted: what that adds depends on the length alone.
        crc = zlib.crc32(rest.data)
        crc ^= of_zeros(rest.nbytes) ^ of_zeros(self._words.nbytes)
        return zlib.crc32(tail, crc)


def crc32(content: memoryview) -> int:
    """The CRC-32 of some bytes."""
    if len(content) < WORTH_IT:
        return zlib.crc32(content)
    whole = len(content) // WORD * WORD
    words = np.frombuffer(content[:whole], np.int64)
    folding = Folding(words)
    for start in range(0, len(words), BLOCK_WORDS):
        folding.fold(start)
    return folding.crc(content[whole:])


def _ring() -> np.ndarray:
    if not hasattr(_own, "ring"):
        _own.ring = np.zeros(_RING, np.int64)
    return _own.ring


def _pieces(start: int, stop: int) -> list[tuple[int, int, int]]:
    """A stretch of past words as (from, to, place in the ring), cut where the ring wraps."""
    place, length = start % _RING, stop - start
    head = min(length, _RING - place)
    pieces = [(0, head, place)]
    return pieces if head == length else [*pieces, (head, length, 0)]


@lru_cache(maxsize=256)
def of_zeros(length: int) -> int:
    """The CRC-32 of ``length`` zero bytes."""
    if length <= 64:
        return zlib.crc32(bytes(length))
    half = of_zeros(length // 2)
    twice = append(half, half, length // 2)
    return zlib.crc32(b"\0", twice) if length % 2 else twice


def append(crc: int, block: int, length: int) -> int:
    """The CRC-32 of A then B from those of A and B: A's is moved past B's length of zeros."""
    moved = 0
    for bit, column in enumerate(_past_zeros(length)):
        if crc >> bit & 1:
            moved ^= column
    return moved ^ block


@lru_cache(maxsize=64)
def _past_zeros(length: int) -> tuple[int, ...]:
    """The 32 x 32 matrix over GF(2), as columns, that appends ``length`` zero bytes."""
    step = [0xEDB88320, *(1 << bit for bit in range(31))]  # one zero bit; P with its bits reversed
    for _ in range(3):
        step = _times(step, step)  # one zero byte
    matrix = [1 << bit for bit in range(32)]
    while length:
        if length & 1:
            matrix = _times(step, matrix)
        step = _times(step, step)
        length >>= 1
    return tuple(matrix)


def _times(a: list[int], b: list[int]) -> list[int]:
    product = []
    for vector in b:
        total = 0
        for bit, column in enumerate(a):
            if vector >> bit & 1:
                total ^= column
        product.append(total)
    return product
