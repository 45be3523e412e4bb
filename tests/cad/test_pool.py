"""What a file may do to its worker, and what that costs: real processes that really die."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from brepfind.cad.extract import ExtractConfig
from brepfind.cad.pool import Outcome, extract_many, work_on
from tests.cad.misbehaving import work

ZOO = Path(__file__).parents[1] / "fixtures" / "cad" / "zoo"


def config(**changes: object) -> ExtractConfig:
    settings: dict[str, object] = {
        "grid": 10,
        "max_faces": 1000,
        "multi_solid": "merge",
        "timeout_s": 20.0,
        "memory_gb": 4.0,
        "max_reject_rate": 1.0,
        "shards": 1,
    }
    return ExtractConfig(**(settings | changes))  # type: ignore[arg-type]


def run(
    folder: Path, words: Sequence[str], workers: int = 2, **changes: object
) -> dict[str, Outcome[object]]:
    """The outcome of each word, by its place and itself."""
    files = []
    for number, word in enumerate(words):
        path = folder / f"{number} {word}"
        path.write_text(word)
        files.append((path.name, path))
    outcomes = list(work_on(files, work, config(**changes), workers))
    assert sorted(outcome.key for outcome in outcomes) == sorted(key for key, _ in files)
    return {outcome.key: outcome for outcome in outcomes}


def began(folder: Path) -> list[tuple[str, float, str]]:
    """Process, time and file of each attempt, in the order in which they began."""
    lines = (line.split(" ", 3) for line in (folder / "log").read_text().splitlines())
    return [(pid, float(when), key) for what, pid, when, key in lines if what == "begin"]


def attempts(folder: Path, key: str) -> list[str]:
    """The processes that began to work on a file."""
    return [pid for pid, _, name in began(folder) if name == key]


def reason(outcome: Outcome[object]) -> str:
    assert outcome.reject is not None and outcome.parts == []
    return outcome.reject.reason


def test_no_files_are_no_outcomes(tmp_path: Path) -> None:
    assert list(extract_many([], config(), workers=2)) == []


def test_a_file_that_ran_out_of_time_on_a_busy_machine_gets_a_second_try(tmp_path: Path) -> None:
    found = run(tmp_path, ["slow once", "fine", "fine"], timeout_s=1.0)
    assert all(outcome.reject is None for outcome in found.values())
    assert len(attempts(tmp_path, "0 slow once")) == 2
    assert len(attempts(tmp_path, "1 fine")) == 1


def test_timeout_is_said_only_after_the_second_try_and_that_one_is_alone(tmp_path: Path) -> None:
    found = run(tmp_path, ["slow", "slow", "fine", "fine", "fine"], timeout_s=1.0)
    assert [reason(found[key]) for key in ("0 slow", "1 slow")] == ["timeout", "timeout"]
    assert str(found["0 slow"].reject) == "timeout: took longer than 1 s"
    first, second = began(tmp_path)[:-2], began(tmp_path)[-2:]
    # The second tries come last, in the order given, one after the other.
    assert [key for _, _, key in second] == ["0 slow", "1 slow"]
    assert len(first) == 5
    assert second[1][1] - second[0][1] >= 1.0


def test_a_second_try_is_in_a_process_that_has_seen_no_other_file(tmp_path: Path) -> None:
    found = run(tmp_path, ["slow once", "slow once", "fine"], timeout_s=1.0)
    assert all(outcome.reject is None for outcome in found.values())
    pids = [pid for pid, _, _ in began(tmp_path)]
    assert len(pids) == 5 and all(pids.count(pid) == 1 for pid in pids[-2:])


@pytest.mark.parametrize("word", ["stuck", "slow"])
def test_an_endless_loop_costs_one_file(tmp_path: Path, word: str) -> None:
    found = run(tmp_path, ["fine", word, *["fine"] * 4], timeout_s=1.0)
    assert [key for key, outcome in found.items() if outcome.reject] == [f"1 {word}"]
    assert reason(found[f"1 {word}"]) == "timeout"


@pytest.mark.parametrize(
    ("word", "said"),
    [("segv", "SIGSEGV"), ("abort", "SIGABRT"), ("exit", "exit code 3")],
)
def test_a_crash_costs_one_file_and_is_confirmed_alone(
    tmp_path: Path, word: str, said: str
) -> None:
    found = run(tmp_path, ["fine", word, "fine", "fine", word, "fine"])
    bad = sorted(key for key, outcome in found.items() if outcome.reject)
    assert bad == [f"1 {word}", f"4 {word}"]
    for key in bad:
        assert str(found[key].reject) == f"crash: Open CASCADE crashed on it ({said})"
        assert len(set(attempts(tmp_path, key))) == 2


def test_an_error_of_the_program_is_a_reason_on_one_line(tmp_path: Path) -> None:
    found = run(tmp_path, ["bug", "fine"])
    assert found["0 bug"].reject is not None
    message = found["0 bug"].reject.message
    assert "KeyError" in message and "\n" not in message
    assert len(attempts(tmp_path, "0 bug")) == 1  # the file decided, not the machine


def test_memory_is_limited(tmp_path: Path) -> None:
    found = run(tmp_path, ["hungry", "fine"], memory_gb=1.0)
    assert str(found["0 hungry"].reject) == "memory: needs more than 1 GiB"
    assert found["1 fine"].reject is None
    assert run(tmp_path, ["hungry"], memory_gb=4.0)["0 hungry"].reject is None


def test_neighbours_that_are_killed_are_innocent(tmp_path: Path) -> None:
    found = run(tmp_path, ["slow once", "murder", "slow once", "fine"], workers=3)
    assert all(outcome.reject is None for outcome in found.values())
    assert len(attempts(tmp_path, "0 slow once")) == 2


def test_a_worker_that_dies_in_its_answer_costs_one_file(tmp_path: Path) -> None:
    found = run(tmp_path, ["fine", "dies in its answer", *["fine"] * 5])
    assert [key for key, outcome in found.items() if outcome.reject] == ["1 dies in its answer"]


def test_a_rejection_is_not_tried_again(tmp_path: Path) -> None:
    found = run(tmp_path, ["reject", "fine"])
    assert str(found["0 reject"].reject) == "no_solid: it holds no solid"
    assert len(attempts(tmp_path, "0 reject")) == 1


def test_workers_are_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brepfind.cad.isolation.RENEW_AFTER", 2)
    run(tmp_path, ["reject"] * 6, workers=1)
    pids = [pid for pid, _, _ in began(tmp_path)]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [2, 2, 2]


SCRIPT = """
import sys
from pathlib import Path
from brepfind.cad.pool import work_on
from tests.cad.misbehaving import work
from tests.cad.test_pool import config

files = [(path.name, path) for path in sorted(Path(sys.argv[1]).glob("? *"))]
try:
    for outcome in work_on(files, work, config(timeout_s=float(sys.argv[2])), 2):
        print(outcome.key, flush=True)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


def start(folder: Path, words: Sequence[str], timeout_s: float) -> subprocess.Popen[str]:
    for number, word in enumerate(words):
        (folder / f"{number} {word}").write_text(word)
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder), str(timeout_s)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def test_ctrl_c_stops_and_leaves_nobody(tmp_path: Path) -> None:
    process = start(tmp_path, ["fine", "stuck", "stuck"], timeout_s=100)
    assert process.stdout is not None
    assert process.stdout.readline() == "0 fine\n"
    children = family(process)
    assert len(children) >= 3  # the fork server and two workers
    # A terminal sends it to all of them.
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=30)[0] == "stopped\n"
    assert process.returncode == 0
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []


@pytest.mark.slow  # the grace is ten seconds
def test_a_worker_of_a_killed_command_ends_by_itself(tmp_path: Path) -> None:
    process = start(tmp_path, ["stuck"], timeout_s=1)
    deadline = time.monotonic() + 60
    while not (tmp_path / "log").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    children = family(process)
    process.kill()
    process.communicate()
    assert children
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []


def test_one_worker_or_two_make_no_difference() -> None:
    names = ["ok_box.step", "sphere.step", "html_404.step", "spline_face.step", "one_face.step"]
    files = [(name, ZOO / name) for name in names]
    one = {outcome.key: outcome for outcome in extract_many(files, config(), workers=1)}
    two = {outcome.key: outcome for outcome in extract_many(files[::-1], config(), workers=2)}
    for name in names:
        assert str(one[name].reject) == str(two[name].reject)
        for left, right in zip(one[name].parts, two[name].parts, strict=True):
            assert left.face_grid.tobytes() == right.face_grid.tobytes()
            assert left.edge_grid.tobytes() == right.edge_grid.tobytes()
