"""The runner around a stage's function: what DVC must never see, and what a person must."""

from __future__ import annotations

import math
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from brepfind.errors import InputError, Interrupted
from brepfind.pipeline import runner
from brepfind.pipeline.context import StageContext, StageFunction
from brepfind.pipeline.failure import explain
from brepfind.pipeline.runner import run_stage
from tests.pipeline.project import REPO, TAG, Project

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")

Run = Callable[[Any], int]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose store is made once: its migrations cost a second."""
    root = tmp_path_factory.mktemp("runner")
    (root / "src").symlink_to(REPO / "src")
    shutil.copy2(REPO / "params.yaml", root)
    return root


@pytest.fixture
def run(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.chdir(place)
    for name in ("DVC_ROOT", "DVC_STAGE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    # The runner fills these in where they are missing; here they must not outlive the test.
    for name in ("OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, os.environ.get(name, "1"))

    def run(result: Any) -> int:
        def work(context: StageContext) -> Mapping[str, Any]:
            if isinstance(result, BaseException):
                raise result
            assert isinstance(result, Mapping)
            return result

        def load() -> StageFunction:
            return work

        return run_stage("split", load, place)

    yield run
    shutil.rmtree(place / "metrics", ignore_errors=True)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_stops_the_stage(
    bad: float, run: Run, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run({"well": 1.0, "deep": {"er": [1.0, bad]}, "flat": bad}) == 1
    assert not (place / "metrics/split.json").exists()
    stage, pipeline = Project(place).runs("stage")[0], Project(place).runs()[0]
    assert stage.info.status == pipeline.info.status == "FAILED"
    reason = stage.data.tags[f"{TAG}reason"]
    assert "not finite in its metrics" in reason
    assert "flat" in reason and "deep.er" in reason
    assert (place / "reports/split-failure.md").is_file()


def test_a_stage_that_passes_writes_numbers_and_cost_and_clears_the_report(
    run: Run, place: Path
) -> None:
    assert run(InputError("the table is not there")) == 2
    assert (place / "reports/split-failure.md").is_file()
    # Mended and then taken from DVC's cache: no run of its own clears it.
    (place / "reports/extract-failure.md").write_text("old")
    (place / "reports/train-failure.md").write_text("of a stage that has yet to run")
    assert run({"parts": 3}) == 0
    left = [file.name for file in (place / "reports").glob("*-failure.md")]
    assert left == ["train-failure.md"]
    (place / "reports/train-failure.md").unlink()
    assert (place / "metrics/split.json").is_file()
    assert (place / "metrics/cost/split.json").is_file()


def test_a_failure_by_hand_leaves_no_older_pass_behind(run: Run, place: Path) -> None:
    assert run({"parts": 3}) == 0
    assert run(InputError("gone")) == 2
    assert not (place / "metrics/split.json").exists()
    assert not (place / "metrics/cost/split.json").exists()


def test_evidence_that_cannot_be_written_does_not_hide_the_reason(
    run: Run, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad(path: Path, value: Any) -> None:
        raise ValueError("a name that is no text")

    monkeypatch.setattr("brepfind.pipeline.runner.write_json", bad)
    assert run(InputError("the table is not there")) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "STOPPED at split: the table is not there" in said
    assert "could not be written: a name that is no text" in said


def test_evidence_too_large_to_send_is_named_and_stays(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brepfind.pipeline.runner._MAX_SENT_BYTES", 10)
    assert run(InputError("no parts")) == 2
    tags = Project(place).runs("stage")[0].data.tags
    (kept,) = [text for name, text in tags.items() if name.endswith("not_sent.report.md")]
    assert Path(kept.partition("kept in ")[2]).is_file()


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (InputError("no such table"), 2, "FAILED"),
        (ZeroDivisionError("division by zero"), 70, "FAILED"),
        (SystemExit(0), 70, "FAILED"),  # a library that ends the process is no success
        (KeyboardInterrupt(), 130, "KILLED"),
    ],
)
def test_whatever_ends_a_stage_is_reported(
    error: BaseException, code: int, status: str, run: Run, place: Path
) -> None:
    assert run(error) == code
    assert Project(place).runs("stage")[0].info.status == status
    assert "split stopped" in (place / "reports/split-failure.md").read_text(encoding="utf-8")


def test_a_bug_keeps_its_traceback_for_the_report_only() -> None:
    failure = explain("split", ZeroDivisionError("division by zero"))
    assert failure.reason == "a bug in brepfind: ZeroDivisionError: division by zero"
    assert "ZeroDivisionError" in failure.traceback


def test_the_reason_does_not_repeat_the_stage() -> None:
    assert explain("split", InputError("split: no parts")).reason == "no parts"


def test_a_stage_whose_command_is_gone_is_told_to_stop_but_never_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner, "_WATCH_EVERY_S", 0.01)
    # A process of that number is there, but not the one that started then.
    monkeypatch.setattr(runner, "owner_process", lambda: f"1/0.00@{socket.gethostname()}")
    with runner._stop_signals() as told:
        with pytest.raises(Interrupted, match="SIGTERM"), runner._owner_watched(told):
            time.sleep(20)
        assert told.is_set()
        with runner._owner_watched(told):
            time.sleep(0.3)
