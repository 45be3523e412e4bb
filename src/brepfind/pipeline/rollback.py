"""rollback: the last sound checkpoint that training kept becomes the current one.

Training keeps two: the best by validation recall, which every later stage uses, and the last. Where
the best is sound there is nothing to do; where it is not and the last is, the last takes its place.
Both are judged as the health stage judges. An epoch that was not kept cannot be brought back: what
is said then is which one it was, and how to get there again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from brepfind.checkpoints import checksums
from brepfind.checkpoints.weights import load_weights
from brepfind.errors import CheckFailed, CheckpointError, InputError
from brepfind.files import atomic_path, sha256
from brepfind.findings import require
from brepfind.metrics.gate import HealthConfig
from brepfind.params import load_section
from brepfind.pipeline import paths
from brepfind.pipeline.health import BEST, LAST, Gate
from brepfind.training.config import TrainConfig

# Where a model that had to give way is kept, below the project's root.
SET_ASIDE = Path(".brepfind/rollback")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of it.

    Attributes:
        code: 0 if the current model is sound now, 1 if none that was kept is.
        text: for a person.
    """

    code: int
    text: str


def rollback(project: Path) -> Outcome:
    """Make the last sound checkpoint of a project the current one.

    Raises:
        InputError: if no training has ended in this project.
    """
    params = project / paths.PARAMS
    gate = Gate(
        project=project,
        home=project / ".brepfind",
        limits=load_section(params, "health", HealthConfig),
        config=load_section(params, "train", TrainConfig),
    )
    current, last = gate.folder / BEST, gate.folder / LAST
    if not current.is_file():
        raise InputError(
            f"{current} is not there: no training has ended. `dvc repro` goes on from its last "
            "saved state; `dvc checkout data/model` brings back the last model that ended"
        )
    lines = [f"{paths.MODEL / BEST}, {_epoch(current)}: "]
    complaint = complaint_of(gate, BEST)
    if not complaint:
        return Outcome(code=0, text=lines[0] + "sound; nothing to roll back")
    lines = [lines[0] + complaint]
    complaint = complaint_of(gate, LAST) if last.is_file() else "it is not there"
    lines.append(f"{paths.MODEL / LAST}, {_epoch(last)}: {complaint or 'sound'}")
    if complaint:
        return Outcome(code=1, text="\n".join([*lines, _way_out(gate)]))
    aside = _swap(project, current, last)
    lines.append(
        f"{_epoch(current)} is the current one now; what stood in its place is {aside}. "
        "Next: `dvc commit --force train`, then `dvc repro`"
    )
    return Outcome(code=0, text="\n".join(lines))


def complaint_of(gate: Gate, name: str) -> str:
    """Why the health gate refuses one of the files, in a sentence; empty if it does not."""
    try:
        require("health: the checkpoint", gate.files([name]).findings)
        gate.model(name).require()
    except (CheckFailed, CheckpointError) as error:
        return " ".join(str(error).split()).removeprefix("health: ")
    return ""


def _epoch(file: Path) -> str:
    try:
        _, metadata = load_weights(file)
    except CheckpointError:
        return "epoch unknown"
    return f"epoch {metadata.get('epoch', 'unknown')}"


def _way_out(gate: Gate) -> str:
    story = gate.story()
    if story.broken_since is None or story.last_sound is None:
        return (
            f"Neither is sound. By its history the run is {story.sentence()}; bring back an "
            "earlier model with git and `dvc checkout data/model`, or train again"
        )
    return (
        f"Neither is sound, and epoch {story.last_sound}, the last sound one by the history, was "
        f"not kept. Train again with train.epochs: {story.last_sound}, or bring back an earlier "
        "model with git and `dvc checkout data/model`"
    )


def _swap(project: Path, current: Path, sound: Path) -> Path:
    """Put ``sound`` in the place of ``current``, which is kept; returns where."""
    aside = project / SET_ASIDE / f"{sha256(current)[:16]}.safetensors"
    _copy(current, aside)
    # Written aside and renamed: DVC's cache may be linked into the workspace.
    _copy(sound, current)
    checksums.settle(current, sha256(current))
    return aside


def _copy(source: Path, target: Path) -> None:
    with atomic_path(target) as path:
        path.write_bytes(source.read_bytes())
