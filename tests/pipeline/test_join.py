"""What another machine of a training becomes; tests/training/test_machines.py runs two."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from brepfind.distributed.nodes import Nodes
from brepfind.errors import CheckFailed, UserError
from brepfind.params import check_section, read_params
from brepfind.pipeline import train as stage
from brepfind.pipeline.config import RuntimeConfig
from brepfind.pipeline.context import StageContext
from brepfind.pipeline.join import command_of, job_file
from brepfind.training.job import Job
from tests.pipeline.project import REPO

if TYPE_CHECKING:
    from brepfind.tracking.tracker import Tracker

TWO = Nodes.at("10.0.0.1:29500", 2)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(REPO / "params.yaml", tmp_path)
    return tmp_path


def test_it_becomes_torchrun_with_its_share_of_the_ranks(project: Path) -> None:
    command, threads = command_of(project, TWO, 1)
    job = str(project / ".brepfind/rendezvous/10.0.0.1-29500.json")
    assert command[1:] == [
        "-m",
        "brepfind.distributed.launch",
        *TWO.torchrun(processes=2, node=1),
        "-m",
        "brepfind.training",
        job,
    ]
    assert threads >= 1


@pytest.mark.parametrize("node", [0, 2])
def test_only_the_others_join(project: Path, node: int) -> None:
    with pytest.raises(UserError, match=f"--node is {node}: of 2 nodes, 1 to 1 join; node 0 is"):
        command_of(project, TWO, node)


def test_two_trainings_at_once_have_job_files_of_their_own(tmp_path: Path) -> None:
    other = Nodes.at("10.0.0.1:29501", 2)
    assert job_file(tmp_path, TWO) != job_file(tmp_path, other)


def test_the_train_stage_leaves_the_job_where_the_others_look_for_it_while_it_trains(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where ``join`` starts its ranks; afterwards nothing is left for a later run to take."""
    monkeypatch.setenv("BREPFIND_NODES", "2")
    monkeypatch.setenv("BREPFIND_RENDEZVOUS", "10.0.0.1:29500")
    looked_for = Path(command_of(project, TWO, 1)[0][-1])
    seen = []

    def run_child(command: list[str], **_: object) -> int:
        seen.append((Job.read(looked_for), Job.read(Path(command[-1]))))
        return 1

    monkeypatch.setattr(stage, "run_child", run_child)
    (project / "evidence").mkdir()
    params = read_params(project / "params.yaml")
    context = StageContext(
        name="train",
        project=project,
        home=project / ".brepfind",
        params=params,
        fingerprint="",
        evidence=project / "evidence",
        tracker=cast("Tracker", None),  # run_child is what tells it
        runtime=check_section(params["runtime"], "runtime", RuntimeConfig),
    )
    with pytest.raises(CheckFailed, match="code 1"):
        stage.train(context)
    ((theirs, ours),) = seen
    assert theirs == ours and theirs.train.processes == 2
    assert not looked_for.exists()
