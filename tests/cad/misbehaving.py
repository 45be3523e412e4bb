"""Work that misbehaves as its file says, in a real worker; each attempt is written to a log.

A file holds a word or two. The log beside it gets a line when an attempt begins, and one when it
ends, if it comes to that: what, process, time, file.
"""

import ctypes
import os
import signal
import time
from pathlib import Path

import numpy as np
import psutil

from brepfind.cad.extract import ExtractConfig
from brepfind.errors import RejectedPart


class DiesWhenPickled:
    """Ends the process in the middle of its answer, while it holds the pipe."""

    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGKILL)


def work(path: Path, config: ExtractConfig) -> list[object]:
    said = path.read_text()
    log = path.parent / "log"
    begin = time.monotonic()
    first = not log.exists() or path.name not in log.read_text()
    _write(log, f"begin {os.getpid()} {begin:.6f} {path.name}")
    if (said == "slow once" and first) or said == "slow":
        time.sleep(60)
    elif said == "a second":
        time.sleep(1)
    elif said == "stuck":  # in C, with the interpreter's lock: no handler of Python's can run
        ctypes.PyDLL(None).sleep(600)
    elif said == "segv":
        ctypes.string_at(0)
    elif said == "abort":
        os.abort()
    elif said == "exit":
        os._exit(3)
    elif said == "bug":
        raise KeyError("no\nsuch <b>thing</b>")
    elif said == "hungry":
        np.empty(2**28)
    elif said == "reject":
        raise RejectedPart("no_solid", "it holds no solid")
    elif said == "murder" and first:
        time.sleep(0.5)  # the neighbours are at work
        me = psutil.Process()
        for other in me.parent().children():
            if other.pid != me.pid:
                other.kill()
    elif said == "dies in its answer":
        return [DiesWhenPickled()]
    else:
        time.sleep(0.2)
    _write(log, f"end {os.getpid()} {time.monotonic():.6f} {path.name}")
    return [said]


def _write(log: Path, line: str) -> None:
    with log.open("a") as file:  # short appends are whole
        file.write(f"{line}\n")
