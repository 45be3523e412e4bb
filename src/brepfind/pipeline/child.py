"""A child that works for a stage: started in a group of its own, followed, and never left behind.

Training runs in one, under torchrun. Its events come as lines of a file; they are passed on while
it works, so the child itself knows nothing of MLflow and cannot be held up by it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from brepfind.errors import Interrupted
from brepfind.events import Events, read_events
from brepfind.log import get_logger

_LOOK_EVERY_S = 0.2
# torchrun itself gives its workers 30 s before it ends them.
_AFTER_KILL_S = 10.0

log = get_logger(__name__)


def run_child(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    events: Path,
    listener: Events,
    grace_s: float,
) -> int:
    """Run ``command`` to its end and return its exit code (negative: the signal that ended it).

    Args:
        command: the program and its arguments.
        environment: variables to set on top of this process's own.
        events: the file the child writes its events to; it need not exist yet.
        listener: gets them while the child works.
        grace_s: seconds the child has to end by itself when this process is told to stop.

    Raises:
        Interrupted: if this process was told to stop; the child was told, too, and has ended.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "brepfind.pipeline.tether", str(os.getpid()), *command],
        env={**os.environ, **environment},
        # Ctrl-C reaches the child through this process, once, and not twice.
        start_new_session=True,
    )
    tail, family = _Tail(events, listener), _Family(child.pid)
    try:
        while child.poll() is None:
            tail.pass_on()
            family.look()
            time.sleep(_LOOK_EVERY_S)
        return child.returncode
    except Interrupted:
        _stop(child, tail, family, grace_s)
        raise
    finally:
        family.end()
        child.wait()
        tail.pass_on()


def _stop(child: subprocess.Popen[bytes], tail: _Tail, family: _Family, grace_s: float) -> None:
    """Tell the child to stop and wait until it has; a second signal to this process ends it."""
    log.warning("stopping: training saves its state (at most %g s; again to end it now)", grace_s)
    child.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    try:
        while child.poll() is None and time.monotonic() < deadline:
            tail.pass_on()
            family.look()
            time.sleep(_LOOK_EVERY_S)
    except Interrupted:
        log.warning("ended without waiting")


class _Tail:
    """Passes on what is new in an events file."""

    def __init__(self, path: Path, listener: Events) -> None:
        self._path, self._listener, self._offset = path, listener, 0

    def pass_on(self) -> None:
        if not self._path.exists():
            return
        for record, offset in read_events(self._path, self._offset):
            self._offset = offset
            if "point" in record:
                # A number that is not finite comes as its name.
                self._listener.point(record["point"], float(record["value"]), record["step"])
            else:
                self._listener.happened(record["happened"], record["facts"])


class _Family:
    """The child and all it started, remembered: torchrun puts each worker in a session of its own,
    and a worker whose torchrun was killed belongs to nobody.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._known: set[psutil.Process] = {self._root}

    def look(self) -> None:
        with suppress(psutil.NoSuchProcess):
            self._known.update(self._root.children(recursive=True))

    def end(self) -> None:
        """End whoever is left."""
        # is_running compares start times, so a number that was given away again is safe.
        left = [process for process in self._known if process.is_running()]
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=_AFTER_KILL_S)
