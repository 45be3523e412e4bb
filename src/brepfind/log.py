"""Messages for people: rank-aware, coloured on a terminal, plain and quiet when piped."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

# Everything for people goes to stderr, so that stdout stays free for what a command returns.
console = Console(stderr=True)


class _RankFilter(logging.Filter):
    """Names the process rank in every record, and keeps ranks above 0 to warnings."""

    def filter(self, record: logging.LogRecord) -> bool:
        rank = int(os.environ.get("RANK", "0"))
        record.msg = f"[rank {rank}] {record.msg}" if "RANK" in os.environ else record.msg
        return rank == 0 or record.levelno >= logging.WARNING


def setup_logging(level: str = "INFO") -> None:
    """Send brepfind's own log to stderr; called once by each command and training rank."""
    logger = logging.getLogger("brepfind")
    logger.setLevel(level)
    logger.propagate = False
    handler: logging.Handler
    if console.is_terminal:
        handler = RichHandler(
            console=console, show_time=False, show_path=False, markup=False, highlighter=None
        )
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    handler.addFilter(_RankFilter())
    logger.handlers[:] = [handler]


def get_logger(name: str) -> logging.Logger:
    """A logger below ``brepfind``; pass ``__name__``."""
    return logging.getLogger(name if name.startswith("brepfind") else f"brepfind.{name}")


class ProgressBar:
    """What :func:`progress` hands out."""

    def __init__(self, bar: Progress, what: str, total: int | None) -> None:
        self._bar = bar
        self._task = bar.add_task(what, total=total)

    def advance(self, steps: int = 1) -> None:
        """Go on by ``steps``."""
        self._bar.advance(self._task, steps)


class _RateColumn(ProgressColumn):
    """Steps per second of late."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:.3g}/s")


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[ProgressBar]:
    """A progress bar with count, rate, time spent and time remaining; silent when piped."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _RateColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal or int(os.environ.get("RANK", "0")) != 0,
    ) as bar:
        yield ProgressBar(bar, what, total)


def printable(text: str, length: int | None = None) -> str:
    """Text from outside as a terminal can show it: a file's or product's name is data.

    Control characters (escape sequences among them), line breaks and marks that turn the reading
    direction become their escapes; what is longer than ``length`` is cut in the middle. Print it
    with markup off, or in a cell.
    """
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )
    if length is not None and len(shown) > length:
        half = (length - 1) // 2
        shown = f"{shown[:half]}…{shown[len(shown) - half :]}"
    return shown
