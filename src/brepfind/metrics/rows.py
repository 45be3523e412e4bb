"""Embedding rows: checked, made unit length, and merged where they are identical."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brepfind.errors import CheckFailed
from brepfind.findings import Finding

Rows = NDArray[np.floating[Any]]


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
    wide = rows.astype(np.float64)
    # Scaled by the largest entry first: squares of very large or small entries leave float64.
    scale = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    zero = np.flatnonzero(scale[:, 0] == 0.0)
    if len(zero):
        _refuse(name, "rows_zero", zero, len(rows), "are zero and have no direction", ids)
    wide /= scale
    wide /= np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    return wide.astype(dtype)


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
    # Adding zero turns -0.0 into 0.0: equal numbers, other bytes.
    parts = [np.ascontiguousarray(part + 0.0 if part.dtype.kind == "f" else part)
             for part in (rows, *extra)]  # fmt: skip
    return [
        hashlib.blake2b(b"".join(part[i].tobytes() for part in parts), digest_size=16).digest()
        for i in range(len(rows))
    ]


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
