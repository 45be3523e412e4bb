"""train: the dual encoder under torchrun, followed while it runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brepfind.distributed.nodes import Nodes
from brepfind.errors import CheckFailed, InputError, Interrupted, ParamsError
from brepfind.files import read_json
from brepfind.findings import Finding
from brepfind.pipeline import join, paths
from brepfind.pipeline.child import run_child
from brepfind.pipeline.context import StageContext
from brepfind.training.config import TrainConfig
from brepfind.training.job import Job


def train(context: StageContext) -> Mapping[str, Any]:
    """Write ``data/model``: best and last weights, the history.

    Halts when the guard or a validation stops the run; the post-mortem is in the evidence.
    """
    config = context.section("train", TrainConfig)
    require_watched(context.project, config.text_tower)
    nodes = Nodes.from_environment()
    job = _job(context, config, nodes)
    job_file = context.evidence / "job.json"
    job.write(job_file)
    if nodes.count > 1:
        job.write(join.job_file(context.home, nodes))
    command = [sys.executable, "-m", "brepfind.distributed.launch"]
    command += [*nodes.torchrun(config.processes), "-m", "brepfind.training", str(job_file)]
    try:
        code = run_child(
            command,
            environment={"OMP_NUM_THREADS": str(job.threads)},
            events=Path(job.events),
            listener=context.tracker,
            grace_s=context.runtime.stop_grace_s,
        )
    finally:
        join.job_file(context.home, nodes).unlink(missing_ok=True)
    if code != 0:
        raise _why(Path(job.postmortem), code)
    out = Path(job.out)
    context.tracker.artifact(out / "history.csv", "train")
    context.cost.update(read_json(Path(job.cost)))
    numbers: dict[str, Any] = read_json(out / "train.json")
    return numbers


def require_watched(project: Path, tower: str) -> None:
    """A text tower in a folder lies where DVC looks for changes.

    Raises:
        ParamsError: if it lies elsewhere.
    """
    folder, watched = (project / tower).resolve(), (project / paths.PRETRAINED).resolve()
    if folder.is_dir() and not folder.is_relative_to(watched):
        raise ParamsError(
            f"train.text_tower is the folder {tower}, where DVC would not see a change of its "
            f"weights; move it below {paths.PRETRAINED} and give that path"
        )


def _job(context: StageContext, config: TrainConfig, nodes: Nodes) -> Job:
    weights = context.path(paths.WEIGHTS)
    return Job(
        train=config,
        graphs=str(context.path(paths.GRAPHS)),
        corpus=str(context.path(paths.CORPUS)),
        split=str(context.path(paths.SPLIT)),
        weights=str(weights) if weights.is_file() else None,
        out=str(context.path(paths.MODEL)),
        state=str(context.home / "state"),
        events=str(context.evidence / "events.jsonl"),
        cost=str(context.evidence / "cost.json"),
        postmortem=str(context.evidence / "training"),
        features=str(context.home / "features"),
        pairs=str(context.home / "pairs"),
        threads=context.runtime.threads_here(nodes.processes_each(config.processes)),
        loader_workers=context.runtime.loader_workers,
        save_every=context.runtime.save_every,
    )


def _why(postmortem: Path, code: int) -> Exception:
    """What ended training, from what the first rank to fail left behind."""
    file = postmortem / "reason.json"
    if not file.is_file():
        return CheckFailed(
            f"training ended with code {code} and left no reason; it was killed from outside "
            "(out of memory?), its machine went away, or the disk is full"
        )
    facts = read_json(file)
    reason = str(facts["reason"])
    if facts["check"] == "interrupted":
        return Interrupted(reason)
    if facts["check"] == "input":
        return InputError(reason)
    if facts["check"] == "bug":
        return RuntimeError(reason)
    found = [Finding(**finding) for finding in facts.get("findings", [])]
    return CheckFailed(reason, found, file)
