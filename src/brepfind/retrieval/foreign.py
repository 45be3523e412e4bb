"""Anyone's matrices: .npy, .parquet and .safetensors files, none of which may run code or lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from brepfind.errors import InputError

Matrix = NDArray[np.floating[Any]]

SUFFIXES = (".npy", ".parquet", ".safetensors")


def read_matrices(path: Path) -> dict[str, Matrix]:
    """Every matrix of numbers in a file, by name; at least one.

    A ``.npy`` file has one. A ``.parquet`` file has one per column of lists of equal length or, if
    there is no such column, one made of all its number columns. A ``.safetensors`` file has one
    per two-dimensional tensor of floats.

    Raises:
        InputError: if the file cannot be read, or holds no matrix; the message says what it holds.
    """
    readers = {".npy": _npy, ".parquet": _parquet, ".safetensors": _safetensors}
    if path.suffix not in readers:
        raise InputError(f"{path}: need a file of {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    matrices = readers[path.suffix](path)
    found = {name: rows for name, rows in matrices.items() if rows.ndim == 2 and rows.shape[1]}
    if not found:
        shapes = ", ".join(f"{name} {rows.shape}" for name, rows in matrices.items())
        raise InputError(f"{path}: holds no matrix of numbers (there is: {shapes or 'nothing'})")
    return found


def read_table(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """A Parquet file, and which of its columns are lists.

    Raises:
        InputError: if it cannot be read; two columns of one name cannot.
    """
    try:
        table = pq.read_table(path)
        lists = [field.name for field in table.schema if _is_list(field.type)]
        frame: pd.DataFrame = table.to_pandas()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{path}: is not a Parquet file that can be read ({error})") from error
    return frame, lists


def matrix_of_lists(path: Path, name: str, column: pd.Series) -> Matrix:
    """A column of lists of numbers, all of one length.

    Raises:
        InputError: naming the column and what is wrong with it.
    """
    missing = np.flatnonzero(column.isna().to_numpy())
    if len(missing):
        raise InputError(f"{path}: column {name!r} holds nothing in row {missing[0]}")
    if not len(column):
        return np.zeros((0, 0), np.float32)
    rows = [np.asarray(row) for row in column]
    widths = {row.shape for row in rows}
    if len(widths) > 1 or rows[0].ndim != 1:
        raise InputError(f"{path}: the lists of column {name!r} differ in length, or hold lists")
    return _floats(path, name, np.stack(rows))


def safetensors(path: Path, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """The tensors of a file (torch's), or those of the given names that it has.

    Raises:
        InputError: if it cannot be read.
    """
    try:
        with safe_open(path, framework="pt") as file:  # torch knows bfloat16
            wanted = sorted(file.keys()) if not names else [n for n in names if n in file.keys()]  # noqa: SIM118
            return {name: file.get_tensor(name) for name in wanted}
    except (SafetensorError, OSError, RuntimeError) as error:
        raise InputError(f"{path}: is not a whole safetensors file ({error})") from error


def _npy(path: Path) -> dict[str, Matrix]:
    try:
        # No pickles: they run whatever they like.
        rows = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise InputError(f"{path}: is not a plain .npy file ({error})") from error
    if not isinstance(rows, np.ndarray):
        rows.close()
        raise InputError(f"{path}: is not a plain .npy file (it is an archive of several)")
    return {path.stem: _floats(path, path.stem, rows)}


def _safetensors(path: Path) -> dict[str, Matrix]:
    return {
        name: tensor.float().numpy() if tensor.element_size() < 4 else tensor.numpy()
        for name, tensor in safetensors(path).items()
        if tensor.is_floating_point()
    }


def _parquet(path: Path) -> dict[str, Matrix]:
    table, lists = read_table(path)
    if lists:
        return {name: matrix_of_lists(path, name, table[name]) for name in lists}
    numbers = table.select_dtypes("number")
    return {"columns": numbers.to_numpy(np.float64)} if numbers.shape[1] else {}


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _floats(path: Path, name: str, rows: NDArray[Any]) -> Matrix:
    if rows.dtype.kind not in "fiu":
        raise InputError(f"{path}: {name!r} holds {rows.dtype}, not numbers")
    exact = rows.dtype.itemsize <= 2 or rows.dtype == np.float32
    return rows.astype(np.float32 if exact else np.float64, copy=False)
