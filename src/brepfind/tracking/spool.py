"""Spool: the record of one run while the store is away, a line of JSON for each op."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


class Spool:
    """A file of ops, and a folder beside it with copies of the artifacts they name.

    Args:
        path: ``<key>.jsonl``; made on the first append.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._good = 0  # bytes; what stands behind them was cut by a full disk

    @property
    def is_empty(self) -> bool:
        return self._good == 0

    def append(self, ops: Iterable[Mapping[str, Any]]) -> None:
        """Add all of ``ops``, or none: where a write fails, the next one begins before it.

        Raises:
            OSError: a disk that is full or cannot be written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = "".join(json.dumps(self._with_copy(op)) + "\n" for op in ops)
        with self.path.open("ab") as file:
            file.truncate(self._good)
            file.write(lines.encode())
            file.flush()
            os.fsync(file.fileno())
            self._good = file.tell()

    def remove(self) -> None:
        """Delete the file and the copies."""
        self.path.unlink(missing_ok=True)
        shutil.rmtree(self._copies, ignore_errors=True)
        self._good = 0

    def set_aside(self, suffix: str) -> Path:
        """Rename the file, so that it is kept and not read again; returns where it is."""
        return self.path.rename(self.path.with_suffix(suffix))

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """The ops, and whether the last line was cut by a crash.

        Raises:
            ValueError: a line that is no op.
        """
        *lines, rest = self.path.read_bytes().decode("utf-8").split("\n")
        ops = [json.loads(line) for line in lines]
        if not all(isinstance(op, dict) and {"op", "key"} <= op.keys() for op in ops):
            raise ValueError("a line is no op")
        return ops, bool(rest)

    @property
    def _copies(self) -> Path:
        return self.path.with_suffix("")

    def _with_copy(self, op: Mapping[str, Any]) -> Mapping[str, Any]:
        """Files that have to wait are copied, since their originals may not wait with them."""
        if "path" not in op or not Path(op["path"]).exists():
            return op
        source = Path(op["path"])
        copy = self._copies / uuid.uuid4().hex[:8] / source.name
        copy.parent.mkdir(parents=True)
        if source.is_dir():
            shutil.copytree(source, copy)
        else:
            shutil.copy2(source, copy)
        return {**op, "path": str(copy)}
