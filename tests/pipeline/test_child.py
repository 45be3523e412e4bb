"""A stage's child is followed while it works and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from brepfind.errors import Interrupted
from brepfind.pipeline.child import run_child


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.points: list[tuple[str, float, int]] = []
        self.facts: list[tuple[str, Mapping[str, Any]]] = []

    def point(self, name: str, value: float, step: int) -> None:
        self.points.append((name, value, step))

    def happened(self, what: str, facts: Mapping[str, Any]) -> None:
        self.facts.append((what, facts))


def run(code: str, events: Path, heard: Heard, grace_s: float = 20) -> int:
    return run_child(
        [sys.executable, "-c", textwrap.dedent(code)],
        environment={"EVENTS": str(events)},
        events=events,
        listener=heard,
        grace_s=grace_s,
    )


def wait_for(file: Path, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not file.exists() or not file.read_text():
        assert time.monotonic() < deadline, f"{file} did not appear"
        time.sleep(0.05)


def gone(pid: int, timeout_s: float = 15) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def interrupt(number: int, frame: object) -> None:
    raise Interrupted("told to stop")


def test_events_arrive_and_the_exit_code_is_the_childs(tmp_path: Path) -> None:
    heard = Heard()
    code = """
        import os
        from pathlib import Path
        from brepfind.events import EventFile
        events = EventFile(Path(os.environ["EVENTS"]))
        events.point("train/loss", 2.0, 1)
        events.point("train/loss", float("nan"), 2)
        events.happened("halted", {"step": 2})
        os._exit(7)
    """
    assert run(code, tmp_path / "events.jsonl", heard) == 7
    (first, second) = heard.points
    assert first == ("train/loss", 2.0, 1)
    assert second[0] == "train/loss" and second[1] != second[1]
    assert heard.facts == [("halted", {"step": 2})]


def test_a_child_killed_by_a_signal_has_its_number(tmp_path: Path) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert run(code, tmp_path / "events.jsonl", Heard()) == -signal.SIGKILL


@pytest.mark.parametrize("obeys", [True, False])
def test_told_to_stop_it_tells_the_child_and_waits_no_longer_than_its_grace(
    obeys: bool, tmp_path: Path
) -> None:
    ready, saved = tmp_path / "ready", tmp_path / "saved"
    code = f"""
        import os, signal, sys, time
        from pathlib import Path
        def stop(number, frame):
            Path({str(saved)!r}).write_text("state")
            {"sys.exit(130)" if obeys else "pass"}
        signal.signal(signal.SIGTERM, stop)
        Path({str(ready)!r}).write_text(str(os.getpid()))
        while True:
            time.sleep(0.05)
    """

    def tell() -> None:
        wait_for(ready)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    teller = threading.Thread(target=tell)
    teller.start()
    try:
        with pytest.raises(Interrupted, match="told to stop"):
            run(code, tmp_path / "events.jsonl", Heard(), grace_s=20 if obeys else 1)
    finally:
        teller.join()
        signal.signal(signal.SIGUSR1, before)
    assert saved.read_text() == "state"
    assert gone(int(ready.read_text()))


def test_what_the_child_started_in_a_session_of_its_own_is_ended_with_it(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = f"""
        import os, subprocess, sys, time
        from pathlib import Path
        worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                                  start_new_session=True)
        time.sleep(1.5)  # long enough to be seen
        Path({str(ready)!r}).write_text(str(worker.pid))
        os._exit(1)
    """
    assert run(code, tmp_path / "events.jsonl", Heard()) == 1
    assert gone(int(ready.read_text()))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can ask for it")
def test_a_child_whose_parent_is_killed_is_told_to_stop(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    child = (
        "import os, time; from pathlib import Path; "
        f"Path({str(ready)!r}).write_text(str(os.getpid())); time.sleep(600)"
    )
    parent = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        from brepfind.events import Silent
        from brepfind.pipeline.child import run_child
        run_child([sys.executable, "-c", {child!r}], environment={{}},
                  events=Path({str(tmp_path / "events.jsonl")!r}), listener=Silent(), grace_s=5)
    """)
    started = subprocess.Popen([sys.executable, "-c", parent])
    wait_for(ready)
    started.send_signal(signal.SIGKILL)
    started.wait()
    assert gone(int(ready.read_text()))
