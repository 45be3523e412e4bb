"""What a command takes: seconds, and the peak memory of it and of every process below it.

Counted is what only the kernel's killer can get back: anonymous and shared memory, each page once
over all processes (Pss). Pages of mapped files, such as libraries and shards, are left out: they
are dropped when memory is needed. Read from /proc, so Linux only; a peak between two readings is
missed.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

_EVERY_S = 0.25
# Reading a process of gigabytes takes a while: at most so much of the time is spent on it.
_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds by the clock, and the peak in GB (10^9 bytes) of the process tree."""

    seconds: float
    peak_gb: float


def measured(
    command: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str]
) -> Cost:
    """Run a command in ``folder`` to its end.

    Raises:
        SystemExit: if it does not end well; the message names its log.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    peak = 0
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)
        try:
            while process.returncode is None:
                asked = time.perf_counter()
                peak = max(peak, sum(_private(pid) for pid in _tree(process.pid)))
                spent = time.perf_counter() - asked
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(_EVERY_S, spent / _SHARE))
            seconds = time.perf_counter() - start
        finally:
            if process.poll() is None:  # the bench itself is stopped
                process.terminate()
                process.wait()
    if process.returncode:
        raise SystemExit(f"{command[-1]} ended with code {process.returncode}; see {log}")
    return Cost(seconds, peak / 1e9)


def private_gb() -> float:
    """What this process alone has now, GB."""
    return _private(os.getpid()) / 1e9


def _tree(pid: int) -> Iterator[int]:
    try:
        yield pid
        yield from (child.pid for child in psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return


def _private(pid: int) -> int:
    """Bytes of one process; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(
        int(line.split()[1]) * 1024
        for line in lines
        if line.startswith(("Pss_Anon:", "Pss_Shmem:"))
    )
