"""SIGTERM and Ctrl-C raise a flag; the loop acts on it where all ranks agree."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopFlag:
    """Whether this process was asked to stop, and by what."""

    def __init__(self) -> None:
        self.reason = ""

    def __bool__(self) -> bool:
        return bool(self.reason)

    def __call__(self) -> bool:
        return bool(self.reason)


@contextmanager
def stop_flag() -> Iterator[StopFlag]:
    """A flag that SIGTERM and SIGINT set for the length of the block."""
    flag = StopFlag()

    def handle(number: int, frame: FrameType | None) -> None:
        flag.reason = signal.Signals(number).name

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_in_worker(worker: int) -> None:
    """Let a loader worker leave signals to the rank it works for: it ends with it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
