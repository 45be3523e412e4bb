"""A safetensors file written piece by piece: larger than memory, and the bytes of ``save_file``."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

# By NumPy's name, in the order in which they lie in a file: wide numbers first, so that none lies
# across its own size when the file is mapped.
_NAMES = {
    "int64": "I64",
    "float64": "F64",
    "float32": "F32",
    "int32": "I32",
    "float16": "F16",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}


class TensorFile:
    """The tensors of a file that is open for writing; each has its place from the start.

    What is never written holds zeros, or is missing at the file's end: the caller writes all rows.

    Args:
        file: open for writing bytes, at its beginning.
        tensors: NumPy's name of the dtype, and the shape, by name.
        metadata: text by key.
    """

    def __init__(
        self,
        file: IO[bytes],
        tensors: Mapping[str, tuple[str, tuple[int, ...]]],
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self._file = file
        self._places: dict[str, tuple[int, int, str, tuple[int, ...]]] = {}
        head: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
        at = 0
        order = list(_NAMES)
        for name in sorted(tensors, key=lambda one: (order.index(tensors[one][0]), one)):
            dtype, shape = tensors[name]
            row = math.prod(shape[1:]) * np.dtype(dtype).itemsize
            end = at + shape[0] * row
            head[name] = {"dtype": _NAMES[dtype], "shape": shape, "data_offsets": [at, end]}
            self._places[name] = at, row, dtype, shape
            at = end
        text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        file.write(len(text).to_bytes(8, "little") + text)
        self._start = 8 + len(text)

    def write(self, name: str, row: int, values: NDArray[Any]) -> None:
        """Rows of a tensor from ``row`` on, of its own dtype."""
        at, width, dtype, shape = self._places[name]
        assert values.dtype == dtype and values.shape[1:] == shape[1:], (name, values.shape)
        assert row + len(values) <= shape[0], f"{name}: {row} + {len(values)} rows of {shape[0]}"
        self._file.seek(self._start + at + row * width)
        self._file.write(values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes())

    def copy(self, name: str, source: IO[bytes]) -> None:
        """The whole of a tensor, its bytes read from ``source``."""
        at, width, _, shape = self._places[name]
        self._file.seek(self._start + at)
        shutil.copyfileobj(source, self._file, 1 << 20)
        copied = self._file.tell() - self._start - at
        assert copied == shape[0] * width, (name, copied)
