"""``brepfind extract`` as a person uses it."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from brepfind.graphs.store import GraphStore

ZOO = Path(__file__).parents[1] / "fixtures" / "cad" / "zoo"


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "NO_COLOR": "1", "COLUMNS": "100", "XDG_CACHE_HOME": str(home / "cache")}


def extract(home: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "brepfind.cli", "extract", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=home,
        env=environment(home),
        timeout=120,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "raw" / "sub").mkdir(parents=True)
    shutil.copy(ZOO / "ok_box.step", tmp_path / "raw" / "box.step")
    shutil.copy(ZOO / "sphere.step", tmp_path / "raw" / "sub" / "box.step")
    shutil.copy(ZOO / "html_404.step", tmp_path / "raw" / "[red]page\x1b[31m.step")
    return tmp_path


def test_it_says_what_became_of_the_files_and_what_was_known(home: Path) -> None:
    done = extract(home, "raw", "-o", "out", "--workers", "1", "--shards", "2")
    assert done.returncode == 0, done.stderr
    assert "2 graphs in out from 2 of 3 files (3 extracted), 1 files rejected" in done.stdout
    assert "unreadable" in done.stdout and "[red]page\\x1b[31m.step" in done.stdout
    assert "\x1b" not in done.stdout
    store = GraphStore(home / "out")
    assert store.ids == ["box.step", "sub/box.step"]
    assert {path.name for path in (home / "out").iterdir()} <= {
        "manifest.parquet",
        "rejects.csv",
        "shard-00000.safetensors",
        "shard-00001.safetensors",
    }
    again = extract(home, "raw", "-o", "again", "--shards", "2")
    assert "(0 extracted, 3 known from before)" in again.stdout
    for path in (home / "out").iterdir():
        assert path.read_bytes() == (home / "again" / path.name).read_bytes()
    other = extract(home, "raw", "-o", "other", "--no-cache")
    assert "(3 extracted)" in other.stdout


def test_the_exit_code_tells_too_many_rejects(home: Path) -> None:
    for rate, code in (("0.4", 0), ("0.3", 1)):
        done = extract(home, "raw", "-o", "out", "--max-reject-rate", rate)
        assert done.returncode == code
        assert len(GraphStore(home / "out")) == 2  # written all the same
    (home / "raw" / "box.step").unlink()
    (home / "raw" / "sub" / "box.step").unlink()
    assert extract(home, "raw", "-o", "out").returncode == 1


def test_an_address_that_is_none_is_said(home: Path) -> None:
    done = extract(home, "raw", "-o", "out", "--cluster", "somewhere")
    assert done.returncode == 2
    assert "extract.cluster is 'somewhere'" in done.stderr


def test_ctrl_c_stops_in_one_line_and_the_same_command_goes_on(home: Path) -> None:
    for number in range(60):
        text = (ZOO / "spline_face.step").read_text()
        (home / "raw" / f"x{number}.step").write_text(f"{text}/* {number} */\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "brepfind.cli", "extract", "raw", "-o", "out", "--workers", "1"],
        cwd=home,
        env=environment(home),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not list((home / "cache").glob("brepfind/extracted/*/*.result")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    children = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "of 63 files done; their results are kept" in said
    assert said.splitlines()[-1] == "brepfind: stopped by Ctrl-C"
    assert "Traceback" not in said
    assert psutil.wait_procs(children, timeout=10)[1] == []
    assert not list((home / "out").iterdir())  # half a store is none
    kept = len(list((home / "cache").glob("brepfind/extracted/*/*.result")))
    done = extract(home, "raw", "-o", "out")
    assert f"({63 - kept} extracted, {kept} known from before)" in done.stdout
