"""Processes by a name that outlives them: who started this one, and is it still there?"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys

import psutil

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "ash", "busybox"})
_PR_SET_PDEATHSIG = 1


def cores() -> int:
    """Cores that this process may use: a container or a job scheduler may give less than all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def this_process() -> str:
    """The name of this process: ``pid/start time@host``, so that a reused number is not taken
    for it.
    """
    return _name(psutil.Process())


def owner_process() -> str:
    """The name of the command this process is a part of.

    Under DVC that is the nearest ancestor that is not a shell (DVC runs its stages through one);
    anywhere else it is this process itself.
    """
    process = psutil.Process()
    if "DVC_STAGE" not in os.environ:
        return _name(process)
    try:
        for ancestor in process.parents():
            if ancestor.name() not in _SHELLS:
                return _name(ancestor)
    except psutil.Error:  # an ancestor ended while we looked
        pass
    return _name(process)


def is_alive(name: str) -> bool | None:
    """Whether the process of that name still runs; None for one of another machine."""
    process, _, host = name.partition("@")
    pid, _, started = process.partition("/")
    if host != socket.gethostname() or not pid.isdecimal():
        return None
    try:
        found = psutil.Process(int(pid))
        return found.status() != psutil.STATUS_ZOMBIE and f"{found.create_time():.2f}" == started
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True  # there, but not ours to look at


def _name(process: psutil.Process) -> str:
    return f"{process.pid}/{process.create_time():.2f}@{socket.gethostname()}"


def die_with_parent(parent: int) -> None:
    """Ask the kernel to send SIGTERM to this process when its parent ends, however it ends.

    Args:
        parent: the parent's process number; if it is already gone, this process ends at once.

    It survives ``exec``, not ``fork``. Only Linux has it; elsewhere this does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:  # it ended before we asked
        os.kill(os.getpid(), signal.SIGTERM)
