"""Comparing a block of scores with a threshold per row or per column, at memory speed.

Masks are counted and searched eight entries at a time, as the bytes of 64-bit words. Shapes: a
block has n rows and m columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Block = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
Counts = NDArray[np.int64]


class Scratch:
    """Memory for one block of float32 scores and two masks, used again for each block.

    Fresh arrays of this size come from the system page by page, which costs as much as a
    comparison does.
    """

    def __init__(self, rows: int, columns: int) -> None:
        size = rows * columns
        self._scores = np.empty(size, np.float32)
        # Whole words, so that the last entries of a block can be read as one.
        self._masks = [np.zeros(-(-size // 8) * 8, np.bool_) for _ in range(2)]

    def product(self, rows: Block, columns: Block) -> Block:
        """``rows @ columns.T`` (n, m), valid until the next block."""
        shape = len(rows), len(columns)
        out = self._scores[: shape[0] * shape[1]].reshape(shape)
        return np.matmul(rows, columns.T, out=out)

    def split(self, scores: Block, low: Block, high: Block) -> tuple[Mask, Counts, Counts]:
        """Where scores are above ``high``, and what lies from ``low`` to ``high``, both included.

        Args:
            low, high: (n, 1) or (1, m), low <= high.

        Returns:
            A mask (n, m), valid until the next call; rows and columns of the entries between.
        """
        size = scores.size
        above, reached = (mask[:size].reshape(scores.shape) for mask in self._masks)
        np.greater(scores, high, out=above)
        np.greater_equal(scores, low, out=reached)
        whole = -(-size // 8) * 8
        for mask in self._masks:
            mask[size:whole] = False  # an earlier, larger block may have left entries here
        surely, perhaps = (mask[:whole].view(np.uint64) for mask in self._masks)
        found = np.flatnonzero(surely != perhaps)
        between = (surely[found] ^ perhaps[found]).view(np.uint8).reshape(-1, 8)
        word, byte = np.nonzero(between)
        row, column = np.divmod(found[word] * 8 + byte, scores.shape[1])
        return above, row, column


def count_lines(mask: Mask, axis: int, weights: Counts | None) -> Counts:
    """True entries of each row (axis 0) or each column (axis 1), int64.

    Args:
        weights: what an entry counts, per column (axis 0) or per row (axis 1); 1 each if None.
    """
    if weights is not None:
        wide = weights.astype(np.float64)  # exact, and a matrix product
        return np.asarray(mask @ wide if axis == 0 else wide @ mask).astype(np.int64)
    return _count_rows(mask) if axis == 0 else _count_columns(mask)


def _count_rows(mask: Mask) -> Counts:
    n, m = mask.shape
    # A byte of the sum holds up to 255: one from each of at most 255 words.
    if m % 8 or m > 8 * 255 or not mask.flags.c_contiguous:
        return np.count_nonzero(mask, axis=1).astype(np.int64)
    lanes = np.add.reduce(mask.view(np.uint64), axis=1)
    return lanes.view(np.uint8).reshape(n, 8).sum(axis=1, dtype=np.int64)


def _count_columns(mask: Mask) -> Counts:
    n, m = mask.shape
    if m % 8 or not mask.flags.c_contiguous:
        return np.count_nonzero(mask, axis=0).astype(np.int64)
    words = mask.view(np.uint64)
    total = np.zeros(m, np.int64)
    for a in range(0, n, 255):
        total += np.add.reduce(words[a : a + 255], axis=0).view(np.uint8)
    return total


def round_up(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rounded to float32, never below the value."""
    near = values.astype(np.float32)
    return np.where(near < values, np.nextafter(near, np.float32(np.inf)), near)


def round_down(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rounded to float32, never above the value."""
    near = values.astype(np.float32)
    return np.where(near > values, np.nextafter(near, np.float32(-np.inf)), near)
