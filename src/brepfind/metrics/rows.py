"""Embedding rows: checked, made unit length, and merged where they are identical."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brepfind.errors import CheckFailed
from brepfind.findings import Finding

Rows = NDArray[np.floating[Any]]

_BLOCK = 8192


def slices(n: int) -> Iterator[slice]:
    """Slices that cover n rows, some thousand at a time.

    What is computed in float64 is computed so: a whole copy of millions of rows is gigabytes.
    """
    return (slice(at, min(at + _BLOCK, n)) for at in range(0, n, _BLOCK))


def directions(rows: Rows) -> Iterator[tuple[slice, NDArray[np.float64], NDArray[np.float64]]]:
    """The rows made unit length, some at a time.

    Yields:
        which rows; float64 (n, D), unit length, zero where a row is zero; their lengths as given.
        A row that is not finite is NaN throughout.
    """
    for some in slices(len(rows)):
        wide = rows[some].astype(np.float64)
        wide[~np.isfinite(wide).all(axis=1)] = np.nan
        # Scaled by the largest entry first: squares of very large or small entries leave float64.
        scale = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
        wide /= np.where(scale == 0.0, 1.0, scale)
        length = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
        wide /= np.where(length == 0.0, 1.0, length)
        yield some, wide, (length * scale)[:, 0]


def directed(rows: Rows, dtype: type[np.floating]) -> tuple[Rows, NDArray[np.float64]]:
    """:func:`directions` of all rows, rounded once to ``dtype``; and the lengths (N,)."""
    unit, lengths = np.empty(rows.shape, dtype), np.empty(len(rows))
    for some, block, length in directions(rows):
        unit[some], lengths[some] = block, length
    return unit, lengths


def check_finite(name: str, rows: Rows, ids: Sequence[str] | None = None) -> None:
    """Refuse rows that hold NaN or infinity: every comparison with NaN is false, so ranks made
    from them would look perfect.

    Raises:
        CheckFailed: naming the first rows that are not finite.
        ValueError: if ``rows`` is not a float matrix.
    """
    if rows.ndim != 2 or rows.dtype.kind != "f":
        raise ValueError(f"{name}: need a float matrix, got {rows.dtype} {rows.shape}")
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        _refuse(name, "rows_not_finite", bad, len(rows), "hold NaN or infinity", ids)


def unit_rows(
    name: str, rows: Rows, ids: Sequence[str] | None = None, dtype: type[np.floating] = np.float32
) -> Rows:
    """Rows of length 1; norms are taken in float64 and the result is rounded once to ``dtype``.

    Raises:
        CheckFailed: if a row is not finite, or is zero and so has no direction; ids are named.
    """
    check_finite(name, rows, ids)
    unit, lengths = directed(rows, dtype)
    zero = np.flatnonzero(lengths == 0.0)
    if len(zero):
        _refuse(name, "rows_zero", zero, len(rows), "are zero and have no direction", ids)
    return unit


def _refuse(
    name: str,
    what: str,
    bad: NDArray[np.int64],
    total: int,
    complaint: str,
    ids: Sequence[str] | None,
) -> None:
    shown = ", ".join(str(ids[i]) if ids is not None else f"row {i}" for i in bad[:5])
    more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
    raise CheckFailed(
        f"{name}: {len(bad)} of {total} embeddings {complaint} ({shown}{more}); "
        "the model that made them is broken: run `brepfind doctor` on its checkpoint",
        [Finding(name=f"{name}.{what}", value=len(bad), limit="0", verdict="failed")],
    )


def row_keys(rows: Rows, *extra: NDArray[Any]) -> list[bytes]:
    """A key per row, equal exactly where the rows (and ``extra``) hold the same numbers."""
    keys: list[bytes] = []
    for some in slices(len(rows)):
        # Adding zero turns -0.0 into 0.0: equal numbers, other bytes.
        parts = [np.ascontiguousarray(part + 0.0 if part.dtype.kind == "f" else part)
                 for part in (whole[some] for whole in (rows, *extra))]  # fmt: skip
        keys += [
            hashlib.blake2b(b"".join(part[i].tobytes() for part in parts), digest_size=16).digest()
            for i in range(some.stop - some.start)
        ]
    return keys


def merge_identical(
    rows: Rows, *extra: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """One row of each kind, and where every row went.

    Returns:
        first: int64 (U,), the first row of each kind, in order of appearance.
        inverse: int64 (N,), the kind of each row.
    """
    kinds: dict[bytes, int] = {}
    first: list[int] = []
    inverse = np.empty(len(rows), np.int64)
    for i, key in enumerate(row_keys(rows, *extra)):
        kind = kinds.setdefault(key, len(first))
        if kind == len(first):
            first.append(i)
        inverse[i] = kind
    return np.array(first, np.int64), inverse
