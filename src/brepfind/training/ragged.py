"""Rows of many things end to end in a file, with offsets; read from the disk as they are needed."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from torch import Tensor

from brepfind.checkpoints import checksums
from brepfind.errors import InputError
from brepfind.files import atomic_path
from brepfind.graphs.tensor_file import TensorFile


def write_ragged(path: Path, column: str, entries: Iterable[Tensor]) -> None:
    """Write a ragged column, with a SHA-256 beside it.

    Each entry is (rows, ...) on the CPU, rows may be 0. Entries are taken one by one and none is
    kept, so that a column may be larger than memory.

    Raises:
        ValueError: if an entry's dtype, or shape after its rows, is not that of the first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    offsets = array("q", [0])
    kind: tuple[str, tuple[int, ...]] | None = None
    with TemporaryFile(dir=path.parent) as spool:
        for entry in entries:
            rows = entry.numpy()
            mine = rows.dtype.name, rows.shape[1:]
            if kind is None:
                kind = mine
            elif kind != mine:
                raise ValueError(f"{column}: entry {len(offsets) - 1} is {mine}, the first {kind}")
            offsets.append(offsets[-1] + len(rows))
            spool.write(rows.tobytes())
        spool.seek(0)
        dtype, tail = kind or ("float32", ())
        tensors = {
            f"{column}.offsets": ("int64", (len(offsets),)),
            column: (dtype, (offsets[-1], *tail)),
        }
        with atomic_path(path) as aside:
            with aside.open("wb") as file:
                whole = TensorFile(file, tensors)
                whole.write(f"{column}.offsets", 0, np.array(offsets))
                whole.copy(column, spool)
            digest = checksums.publish(aside, path)
    checksums.settle(path, digest)


class Ragged:
    """Reads what :func:`write_ragged` wrote, from one file or from several pieces in turn.

    Cheap to pickle: another process opens the files again. Entry i of n pieces is entry i // n of
    piece i % n.
    """

    def __init__(self, pieces: Sequence[Path]) -> None:
        self._paths = tuple(pieces)
        self._open: list[tuple[Any, dict[str, Tensor]] | None] = [None] * len(self._paths)

    def __getstate__(self) -> dict[str, Any]:
        return {"_paths": self._paths, "_open": [None] * len(self._paths)}

    def entry(self, column: str, number: int) -> Tensor:
        """Entry ``number`` of a column, (rows, ...).

        Raises:
            InputError: if a file is missing or damaged; it is named.
        """
        piece, within = number % len(self._paths), number // len(self._paths)
        path = self._paths[piece]
        try:
            found = self._open[piece]
            if found is None:
                found = (safe_open(path, framework="pt"), {})
                self._open[piece] = found
            file, offsets = found
            if column not in offsets:
                offsets[column] = file.get_tensor(f"{column}.offsets")
            start, end = offsets[column][within : within + 2].tolist()
            rows: Tensor = file.get_slice(column)[start:end]
        except (OSError, SafetensorError, ValueError) as error:
            raise InputError(f"{path}: cannot be read ({error}); delete its folder") from error
        return rows
