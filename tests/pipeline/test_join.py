"""What another machine of a training becomes; tests/training/test_machines.py runs two."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from brepfind.distributed.nodes import Nodes
from brepfind.errors import UserError
from brepfind.pipeline.join import command_of, job_file
from tests.pipeline.project import REPO

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
