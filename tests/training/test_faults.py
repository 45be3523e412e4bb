"""The fault matrix: each cell ends as it should, in time, and loses nothing good.

A few cells go through torchrun; the others start their ranks from a server that has torch loaded.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from brepfind.events import read_events
from tests.ranks import Ended
from tests.training.runs import codes, reason, train, weights
from tests.training.tiny import make_job

TIMEOUT_S = 8.0
SPARE_S = 10.0
# The start of two ranks on a busy machine is not part of a hang.
START_S = 60.0

# fault, ranks, exit codes that are right, check in reason.json, words of the reason
CELLS = [
    ("nan_loss", 1, {1}, "nonfinite", "the loss is not finite"),
    ("nan_loss", 2, {1}, "nonfinite", "the loss is not finite"),
    ("inf_gradient", 1, {1}, "nonfinite", "the gradient is not finite"),
    ("inf_gradient", 2, {1}, "nonfinite", "the gradient is not finite"),
    ("nan_weight", 1, {1}, "nonfinite", "weights of"),
    ("nan_weight", 2, {1}, "nonfinite", "weights of"),
    ("nan_statistic", 1, {1}, "nonfinite", "running_mean"),
    ("nan_statistic", 2, {1}, "nonfinite", "running_mean"),
    ("sleep", 1, {1}, "hang", "no progress for 8 s"),
    ("sleep", 2, {1}, "hang", "did not arrive: rank 1"),
    ("die", 1, {7}, None, ""),
    ("die", 2, {1, 7}, "rank", "rank 1 ended without a word"),
    ("skip", 2, {1}, "check", "the ranks are out of step"),
    ("raise", 1, {2}, "input", "the loader fails at step 5"),
    ("raise", 2, {1, 2}, "input", "the loader fails at step 5"),
    ("bug", 1, {70}, "bug", "AssertionError: a fault put in by a test"),
    ("bug", 2, {1, 70}, "bug", "rank 1: AssertionError: a fault put in by a test"),
    ("sigterm", 1, {130}, "interrupted", "saved its state"),
    ("sigterm", 2, {130}, "interrupted", "saved its state"),
    ("sigint", 1, {130}, "interrupted", "saved its state"),
    ("sigint", 2, {130}, "interrupted", "saved its state"),
    ("sigkill", 1, {-9}, None, ""),
    ("sigkill", 2, {1, -9}, "rank", "rank 1 ended without a word"),
]
# A few of each kind stay in the quick tests: agreement, a hang, a death, a loader's error.
QUICK = {("nan_weight", 2), ("sleep", 2), ("die", 2), ("raise", 2)}


def assert_nothing_good_is_lost(run: Path) -> None:
    """Nothing bad was written, and the state before the fault is there to go on from."""
    assert not (run / "out").exists()
    assert list((run / "state").glob("*/state-*.pt"))


def assert_in_time(ended: list[Ended]) -> None:
    assert 0 not in codes(ended) and None not in codes(ended), [rank.error for rank in ended]
    assert max(rank.seconds for rank in ended) < TIMEOUT_S + SPARE_S + START_S


@pytest.mark.parametrize(
    ("fault", "world", "right", "check", "words"),
    [
        pytest.param(*cell, marks=() if cell[:2] in QUICK else pytest.mark.slow, id=f"{cell[:2]}")
        for cell in CELLS
    ],
)
def test_a_fault_ends_the_run_as_it_should(
    inputs, tmp_path, fault, world, right, check, words
) -> None:
    at = f"{fault}@5@{world - 1}"
    ended = train(inputs, tmp_path, world, at, save_every=2, timeout_s=TIMEOUT_S)
    assert_in_time(ended)
    assert set(codes(ended)) <= right, [rank.error for rank in ended]
    if check is None:  # a process that just ends can say nothing; the stage says so
        assert not (tmp_path / "postmortem" / "reason.json").exists()
    else:
        why = reason(tmp_path)
        assert why["check"] == check
        assert words in why["reason"]
    assert_nothing_good_is_lost(tmp_path)


# Half precision ----------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_overflow_while_the_scale_settles_is_counted_and_is_no_skip(
    inputs, tmp_path, world
) -> None:
    ended = train(
        inputs,
        tmp_path,
        world,
        precision="fp16",
        initial_loss_scale=2.0**26,
        epochs=4,
    )
    assert codes(ended) == [0] * world
    numbers = json.loads((tmp_path / "out" / "train.json").read_text())
    assert numbers["overflows"] > 0 and numbers["skipped_steps"] == 0
    records = [record for record, _ in read_events(tmp_path / "events.jsonl")]
    skipped = [r["facts"] for r in records if r.get("happened") == "step_skipped"]
    assert {facts["cause"] for facts in skipped} == {"overflow"}
    assert len(skipped) == numbers["overflows"]
    scales = [r["value"] for r in records if r.get("point") == "train/loss_scale"]
    assert scales[-1] < 2.0**26


@pytest.mark.parametrize("world", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_endless_overflow_ends_the_run_and_a_nan_at_once(inputs, tmp_path, world) -> None:
    settings = {"precision": "fp16", "initial_loss_scale": 256.0, "save_every": 2}
    faults = ",".join(f"inf_gradient@{step}" for step in (4, 5, 6, 7))
    ended = train(inputs, tmp_path, world, faults, max_overflows_in_a_row=3, **settings)
    assert codes(ended) == [1] * world
    assert "the fp16 gradient overflows for the 3. time" in reason(tmp_path)["reason"]
    assert_nothing_good_is_lost(tmp_path)
    (tmp_path / "nan").mkdir()
    assert codes(train(inputs, tmp_path / "nan", world, "nan_loss@4", **settings)) == [1] * world
    assert reason(tmp_path / "nan")["cause"] == "loss"


# The disk ----------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 16 MiB; only root can have one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a small file system needs root")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("world", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_full_disk_ends_the_run_keeps_the_state_and_it_goes_on_with_room(
    inputs, tmp_path, small_disk, world
) -> None:
    assert codes(train(inputs, tmp_path / "whole", world, save_every=2)) == [0] * world
    run = small_disk / "run"
    run.mkdir()
    train(inputs, run, world, f"sigkill@3@{world - 1}", save_every=2)
    states = sorted((run / "state").glob("*/state-*.pt"))
    assert states
    # All but the room that a run keeps for its reason, twice: the next state does not fit.
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"0" * 4096)
    with filler.open("rb+") as file:
        file.truncate(max(0, filler.stat().st_size - 128 * 1024 * world))
    ended = train(inputs, run, world, save_every=1)
    assert_in_time(ended)
    assert 2 in codes(ended)
    assert "disk" in reason(run)["reason"] and "full" in reason(run)["reason"]
    assert all(state.exists() for state in states)
    assert not (run / "out").exists()
    filler.unlink()
    assert codes(train(inputs, run, world, save_every=2)) == [0] * world
    mine, whole = weights(run), weights(tmp_path / "whole")
    assert all((mine[name] == whole[name]).all() for name in whole)


# Loader workers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "world", "right", "check"),
    [
        ("sigterm@5", 1, {130}, "interrupted"),
        pytest.param("sigint@5@1", 2, {130}, "interrupted", marks=pytest.mark.slow),
        pytest.param("raise@5@1", 2, {1, 2}, "input", marks=pytest.mark.slow),
        pytest.param("sigterm_validate@4@1", 2, {130}, "interrupted", marks=pytest.mark.slow),
    ],
)
def test_with_loader_workers_a_run_ends_as_without(
    inputs, tmp_path, fault, world, right, check
) -> None:
    ended = train(inputs, tmp_path, world, fault, save_every=2, loader_workers=1)
    assert set(codes(ended)) <= right, reason(tmp_path)
    why = reason(tmp_path)
    assert why["check"] == check
    assert "\n" not in why["reason"]
    assert_nothing_good_is_lost(tmp_path)
    assert codes(train(inputs, tmp_path, world, save_every=2, loader_workers=1)) == [0] * world


# Through torchrun --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "check", "words"),
    [
        ("nan_loss@5@1", "nonfinite", "the loss is not finite"),
        ("die@5@1", None, ""),
        ("sleep@5@1", "hang", "did not arrive: rank 1"),
        ("raise@5@1", "input", "the loader fails at step 5"),
    ],
)
def test_through_torchrun_a_fault_ends_all_ranks(inputs, tmp_path, fault, check, words) -> None:
    job = tmp_path / "job.json"
    make_job(inputs, tmp_path, processes=2, timeout_s=TIMEOUT_S, save_every=2).write(job)
    command = [sys.executable, "-m", "brepfind.distributed.launch", "--standalone"]
    command += ["--nproc-per-node=2", "-m", "brepfind.training", str(job)]
    began = time.monotonic()
    ended = subprocess.run(
        command,
        env={**os.environ, "BREPFIND_TEST_FAULT": fault, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr[-2000:]
    assert time.monotonic() - began < TIMEOUT_S + SPARE_S + 2 * START_S
    if check is not None:
        assert reason(tmp_path)["check"] == check
        assert words in reason(tmp_path)["reason"]
    assert_nothing_good_is_lost(tmp_path)
