"""join: what the other machines of a training run while the first runs the train stage."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from brepfind.distributed.nodes import Nodes
from brepfind.errors import UserError
from brepfind.log import get_logger
from brepfind.params import load_section
from brepfind.pipeline import paths
from brepfind.pipeline.config import RuntimeConfig
from brepfind.training.config import TrainConfig

log = get_logger(__name__)


def job_file(home: Path, nodes: Nodes) -> Path:
    """Where the machines that meet at one place find what to train: below ``.brepfind``.

    The first writes it before it listens, and removes it when training has ended; the ranks of the
    others read it after they met. All must spell the place alike; that they read the same job is
    compared when they have.
    """
    return home / "rendezvous" / f"{nodes.host}-{nodes.port}.json"


def join(project: Path, nodes: Nodes, node: int) -> NoReturn:
    """Become the torchrun of machine ``node``; its exit code is 0 if the training ended well.

    Args:
        project: the root of the checkout, in a folder that all machines share.
        nodes: the machines.
        node: which of them this is, from 1 on; 0 is the one that runs the train stage.

    Raises:
        UserError: if there is no such machine, or the ranks cannot be shared evenly.
        ParamsError: if params.yaml is not as it should be.
    """
    command, threads = command_of(project, nodes, node)
    log.info(
        "node %d of %d: waiting for node 0 at %s:%d", node, nodes.count, nodes.host, nodes.port
    )
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.chdir(project)
    os.execv(command[0], command)  # noqa: S606 (a list of our own making, no shell)


def command_of(project: Path, nodes: Nodes, node: int) -> tuple[list[str], int]:
    """What :func:`join` becomes, and the threads of each process; raises what it does."""
    if not 0 < node < nodes.count:
        raise UserError(
            f"--node is {node}: of {nodes.count} nodes, 1 to {nodes.count - 1} join; node 0 is the "
            "machine that runs the train stage"
        )
    params = project / paths.PARAMS
    processes = load_section(params, "train", TrainConfig).processes
    runtime = load_section(params, "runtime", RuntimeConfig)
    command = [sys.executable, "-m", "brepfind.distributed.launch"]
    command += nodes.torchrun(processes, node)
    command += ["-m", "brepfind.training", str(job_file(project.resolve() / ".brepfind", nodes))]
    return command, runtime.threads_here(nodes.processes_each(processes))
