"""Two torchruns as two machines: the same bits as one machine, also after one of them is lost."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from brepfind.distributed.nodes import Nodes
from tests.training.runs import codes, reason, train, weights
from tests.training.tiny import make_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TIMEOUT_S = 20.0
# The start of torchrun and of a rank on a busy machine.
START_S = 400.0


def machines(run: Path, fault: str = "") -> list[subprocess.Popen[str]]:
    """The torchrun of each of two machines; both are this one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        two = Nodes.at(f"127.0.0.1:{free.getsockname()[1]}", 2)
    launch = [sys.executable, "-m", "brepfind.distributed.launch"]
    return [
        subprocess.Popen(
            [*launch, *two.torchrun(2, node), "-m", "brepfind.training", str(run / "job.json")],
            env={**os.environ, "BREPFIND_TEST_FAULT": fault, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for node in (0, 1)
    ]


def wait_for_state(run: Path, step: int) -> None:
    deadline = time.monotonic() + START_S
    while not list((run / "state").glob(f"*/state-{step:09d}.pt")):
        assert time.monotonic() < deadline, "training did not come so far"
        time.sleep(0.02)


def kill(torchrun: subprocess.Popen[str]) -> None:
    """End a machine at once: torchrun and its ranks."""
    process = psutil.Process(torchrun.pid)
    for one in [process, *process.children(recursive=True)]:
        one.kill()


@pytest.fixture(scope="module")
def one_machine(inputs, tmp_path_factory) -> Path:
    """Two ranks on one machine, with nothing in their way."""
    run = tmp_path_factory.mktemp("one machine")
    assert codes(train(inputs, run, 2, epochs=3, save_every=2, limit_s=START_S)) == [0, 0]
    return run


@pytest.fixture
def run(inputs, tmp_path) -> Path:
    """The folder of the same run."""
    job = make_job(inputs, tmp_path, processes=2, epochs=3, save_every=2, timeout_s=TIMEOUT_S)
    job.model_copy(update={"features": str(tmp_path / "features")}).write(tmp_path / "job.json")
    return tmp_path


def assert_ends_as(run: Path, other: Path) -> None:
    """Both machines train to the end, and what they learned is what the other run did."""
    for node, torchrun in enumerate(machines(run)):
        said, _ = torchrun.communicate(timeout=2 * START_S)
        assert torchrun.returncode == 0, f"node {node}: {said[-3000:]}"
    mine, theirs = weights(run), weights(other)
    assert mine.keys() == theirs.keys()
    assert all((mine[name] == theirs[name]).all() for name in theirs)


def test_two_machines_learn_what_one_does(run, one_machine) -> None:
    assert_ends_as(run, one_machine)
    # Each computed half of the features.
    pieces = {file.name for file in (run / "features").rglob("*.safetensors")}
    assert pieces == {"0000-of-0002.safetensors", "0001-of-0002.safetensors"}


@pytest.mark.parametrize("lost", [0, 1])
def test_a_machine_that_is_lost_ends_the_other_and_both_go_on_with_the_same_bits(
    run, one_machine, lost
) -> None:
    # The rank waits in step 7, which no state holds, for the machine to be lost.
    both = machines(run, f"sleep@7@{lost}")
    wait_for_state(run, 6)
    kill(both[lost])
    began = time.monotonic()
    said, _ = both[1 - lost].communicate(timeout=TIMEOUT_S + START_S)
    assert time.monotonic() - began < TIMEOUT_S + 20
    assert both[1 - lost].returncode == 1, said
    both[lost].communicate()
    assert both[lost].returncode == -9
    why = reason(run)
    assert (why["check"], why["rank"]) == ("rank", 1 - lost)
    assert f"rank {lost}" in why["reason"]
    assert why["reason"] in said
    shutil.rmtree(run / "postmortem")
    assert_ends_as(run, one_machine)
