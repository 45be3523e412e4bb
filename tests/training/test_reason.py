"""Who says why a run ended: the rank that failed first, whatever the others see."""

import errno
import os
import time

import pytest

from brepfind.distributed.watch import Ending
from brepfind.errors import CheckFailed, InputError, Interrupted
from brepfind.findings import at_least
from brepfind.training.reason import BUG, OtherRank, Reason, StepHalted, facts_of
from tests.ranks import run_ranks
from tests.training.runs import codes, reason
from tests.training.tiny import make_job


def _slow_to_leave(job: str) -> None:
    """Rank 1 takes its time to close the group after it failed; rank 0 is quick to end."""
    from brepfind.distributed import group, watch
    from brepfind.training.__main__ import main

    watch._LEAVE_S = 0.3
    close = group.dist.destroy_process_group
    if os.environ["RANK"] == "1":
        group.dist.destroy_process_group = lambda: (time.sleep(3), close())
    raise SystemExit(main([job]))


@pytest.mark.parametrize(
    ("fault", "code", "check", "words"),
    [
        ("raise@2@1", 2, "input", "the loader fails at step 2"),
        ("bug@2@1", BUG, "bug", "rank 1: AssertionError: a fault put in by a test"),
    ],
)
def test_the_rank_that_failed_gives_the_reason_though_another_ends_before_it(
    inputs, tmp_path, fault, code, check, words
) -> None:
    make_job(inputs, tmp_path, processes=2).write(tmp_path / "job.json")
    ended = run_ranks(
        _slow_to_leave,
        2,
        str(tmp_path / "job.json"),
        environment={"BREPFIND_TEST_FAULT": fault},
    )
    assert codes(ended) == [1, code]
    why = reason(tmp_path)
    assert (why["rank"], why["check"]) == (1, check)
    assert words in why["reason"]


def test_the_first_to_leave_a_reason_is_the_one_that_counts(tmp_path) -> None:
    first, second = Reason(tmp_path, 1), Reason(tmp_path, 0)
    first.leave(InputError("no such file"))
    first.leave(CheckFailed("told twice"))
    second.leave(OtherRank("rank 1 failed"))
    assert (first.exit_code, second.exit_code) == (2, 1)
    assert reason(tmp_path, folder=".")["reason"] == "no such file"
    assert {p.name for p in tmp_path.iterdir()} == {
        "reason.json",
        "reason-rank0.json",
        "reason-rank1.json",
    }


def test_a_hang_is_told_from_a_rank_that_is_gone_or_failed(tmp_path) -> None:
    for kind, check in (("hang", "hang"), ("gone", "rank"), ("failed", "rank")):
        mine = Reason(tmp_path / kind, 0)
        mine.leave_ending(
            Ending(kind=kind, message="said", place="agree", missing=(1,), stacks=None)
        )
        assert mine.exit_code == 1
        assert reason(tmp_path / kind, folder=".")["check"] == check


@pytest.mark.parametrize(
    ("error", "check", "code"),
    [
        (Interrupted("told to stop"), "interrupted", 130),
        (InputError("no file"), "input", 2),
        (CheckFailed("bad", [at_least("x", float("nan"), 1)]), "check", 1),
        (StepHalted("nan", {"step": 3}), "nonfinite", 1),
        (OtherRank("rank 1 failed"), "rank", 1),
        (OSError(errno.ENOSPC, "No space left", "state.pt"), "input", 2),
        (OSError(errno.EIO, "broken"), "bug", BUG),
        (ZeroDivisionError("oh"), "bug", BUG),
    ],
)
def test_every_kind_of_error_has_its_check_and_exit_code(error, check, code) -> None:
    facts = facts_of(error, 0)
    assert (facts["check"], facts["exit_code"]) == (check, code)


def test_a_reason_that_cannot_be_written_is_said_all_the_same(tmp_path, caplog) -> None:
    (tmp_path / "postmortem").write_text("a file where the folder should be")
    mine = Reason(tmp_path / "postmortem", 0)
    mine.leave(InputError("no such file: parts.csv"))
    assert mine.exit_code == 2
    assert "could not be written" in caplog.text and "no such file: parts.csv" in caplog.text


def test_an_error_of_a_loader_worker_is_told_without_its_traceback() -> None:
    text = (
        "Caught InputError in DataLoader worker process 0.\nOriginal Traceback (most recent call "
        "last):\n  File ...\nbrepfind.errors.InputError: no such file: parts.csv\n"
    )
    assert facts_of(InputError(text), 0)["reason"] == "no such file: parts.csv"
