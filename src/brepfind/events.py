"""How lower rooms report what happens without knowing who listens."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Protocol


class Events(Protocol):
    """A listener. Implementations must not raise: reporting never stops the work."""

    def point(self, name: str, value: float, step: int) -> None:
        """One point of a curve, such as ``train/loss`` at step 40."""

    def happened(self, what: str, facts: Mapping[str, Any]) -> None:
        """Something worth keeping, such as ``step_skipped``; ``facts`` is plain data."""


class Silent:
    """Nobody listens."""

    def point(self, name: str, value: float, step: int) -> None:
        """Drop the point."""

    def happened(self, what: str, facts: Mapping[str, Any]) -> None:
        """Drop the fact."""


class EventFile:
    """Writes events as JSON lines, each flushed at once, for another process to follow.

    A training rank writes; the stage that started it reads with :func:`read_events` and passes
    them to MLflow. So training does not import MLflow and cannot be stopped by its outage, and
    the file is evidence after a crash.

    A number that is not finite is written as its name in text (``"nan"``), since JSON has none.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] = path.open("a", encoding="utf-8")

    def _write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(_plain(record), allow_nan=False) + "\n")
        self._file.flush()

    def point(self, name: str, value: float, step: int) -> None:
        """Write one point of a curve."""
        self._write({"time": time.time(), "point": name, "value": value, "step": step})

    def happened(self, what: str, facts: Mapping[str, Any]) -> None:
        """Write something that happened."""
        self._write({"time": time.time(), "happened": what, "facts": dict(facts)})

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_events(path: Path, offset: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
    """The whole records from byte ``offset`` on, each with the offset after it.

    A last line without its newline is still being written and is left for the next call.
    """
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            yield json.loads(line), offset


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value
