"""Rows of many things end to end in a file, with offsets; read from the disk as they are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from brepfind.checkpoints import checksums
from brepfind.errors import InputError
from brepfind.files import atomic_path


def write_ragged(path: Path, columns: Mapping[str, Sequence[Tensor]]) -> None:
    """Write several ragged columns, with a SHA-256 beside them.

    Each entry of a column is (rows, ...), rows may be 0.
    """
    tensors = {}
    for name, entries in columns.items():
        lengths = torch.tensor([0, *map(len, entries)], dtype=torch.int64)
        tensors[f"{name}.offsets"] = lengths.cumsum(0)
        tensors[name] = torch.cat(list(entries)).contiguous() if entries else torch.zeros(0)
    with atomic_path(path) as aside:
        save_file(tensors, aside)
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
