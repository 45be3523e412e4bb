"""Resumable state: where it lies, what it holds, and which of it is used.

It lies outside any stage's outs (DVC deletes those before a stage runs), in a folder named after a
fingerprint of params, data, weights and the number of ranks: any of these changed starts afresh,
under ``dvc repro -f`` too. The code is not in the fingerprint, so that a run which met a bug can go
on when it is mended; a state knows which code wrote it, and a change is said and counted.

The two newest states are kept, each with the best weights it names; the newest that verifies is
used, and what was passed over is set aside. Rank 0 reads and writes; the other ranks get theirs
from it.

There is no random state in it: batches, captions and dropout follow from the seed and the step.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brepfind.checkpoints.state import newest_state, save_state
from brepfind.errors import CheckFailed, CheckpointError
from brepfind.files import digest, locked, sha256
from brepfind.log import get_logger

log = get_logger(__name__)

_KEPT_STATES = 2
_LOCK_S = 30.0
_ROOMS = ("distributed", "graphs", "metrics", "models", "training")


class StateFolder:
    """The state of one run.

    Args:
        root: of all runs' states.
        fingerprint: of params, data, weights and ranks.

    Attributes:
        passed_over: names of states that were newer than the one :meth:`load` gave, but not whole.
    """

    def __init__(self, root: Path, fingerprint: str) -> None:
        self.root = root
        self.folder = root / fingerprint[:24]
        self.passed_over: list[str] = []
        # Of each state, the step of the best weights it names.
        self._named: dict[Path, float | None] = {}

    def begin(self) -> None:
        """Say on which footing the run starts; rank 0 only."""
        if self._states():
            return
        others = [other for other in self.root.glob("*/state-*.pt") if other.parent != self.folder]
        if others:
            log.warning(
                "starting afresh: parameters or data are not those of the unfinished run in %s",
                others[0].parent,
            )

    def best(self, step: float) -> Path:
        """Where the best weights lie, if they are those of this step."""
        return self.folder / f"best-{int(step):09d}.safetensors"

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write a state, then drop all but the newest two, and weights that neither names."""
        path = self.folder / f"state-{step:09d}.pt"
        save_state(path, state)
        self._named[path] = state["best"].get("step")
        for old in self._states()[:-_KEPT_STATES]:
            _remove(old)
        if all(kept in self._named for kept in self._states()):
            named = {self._named[kept] for kept in self._states()}
            used = {self.best(step) for step in named if step is not None}
            for weights in set(self.folder.glob("best-*.safetensors")) - used:
                _remove(weights)

    def load(self) -> dict[str, Any] | None:
        """The newest state that verifies, or None.

        Raises:
            CheckpointError: if there are states and none of them is whole.
        """
        found = newest_state(self.folder, "state-*.pt")
        if found is None:
            return None
        path, state = found
        for newer in self._states():
            if newer > path:
                self.passed_over.append(newer.name)
                newer.replace(newer.with_suffix(".damaged"))
        self._named[path] = state["best"].get("step")
        log.info("resuming from %s", path)
        return state

    def drop(self) -> None:
        """Remove the state of a run that has ended well."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _states(self) -> list[Path]:
        return sorted(self.folder.glob("state-*.pt"))


def _remove(path: Path) -> None:
    for file in (path, *path.parent.glob(path.name + ".*")):
        file.unlink(missing_ok=True)


@cache
def code_digest() -> str:
    """The SHA-256 of the source of the rooms that training computes with, and torch's version."""
    root = Path(__file__).parents[1]
    files = [file for room in _ROOMS for file in sorted((root / room).rglob("*.py"))]
    return digest([[(str(p.relative_to(root)), sha256(p)) for p in files], torch.__version__])


@contextmanager
def out_lock(root: Path, out: Path) -> Iterator[None]:
    """Hold the lock on an output folder, so that no second trainer writes into it.

    Raises:
        InputError: if another trainer still holds it after half a minute.
    """
    name = hashlib.sha256(str(out.absolute()).encode()).hexdigest()[:16]
    with locked(root / f"out-{name}.lock", timeout_s=_LOCK_S):
        yield


def learning(module: nn.Module) -> dict[str, Tensor]:
    """The tensors that training can change: learning parameters and all buffers."""
    found = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
    return found | dict(module.named_buffers())


def put_back(module: nn.Module, tensors: dict[str, Tensor]) -> None:
    """The reverse of :func:`learning`.

    Raises:
        CheckpointError: if the names are not those of the module.
    """
    mine = learning(module)
    if mine.keys() != tensors.keys():
        odd = sorted(mine.keys() ^ tensors.keys())
        raise CheckpointError(f"the state has other tensors than the model, such as {odd[0]}")
    with torch.no_grad():
        for name, tensor in mine.items():
            tensor.copy_(tensors[name])


def require_finite(what: str, tensors: dict[str, Tensor]) -> None:
    """One fused look at many tensors; names are only sought if it fails.

    Raises:
        CheckFailed: naming the tensors that hold NaN or infinity.
    """
    floats = {name: t for name, t in tensors.items() if t.is_floating_point() and t.numel()}
    # NaN and infinity survive a sum of squares; overflow of finite numbers is sorted out below.
    total = torch.nn.utils.get_total_norm(list(floats.values())) if floats else torch.zeros(())
    if torch.isfinite(total):
        return
    bad = [name for name, tensor in floats.items() if not torch.isfinite(tensor).all()]
    if bad:
        raise CheckFailed(
            f"{len(bad)} of {len(floats)} tensors of the {what} are not finite: "
            + ", ".join(bad[:5])
        )


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's moments by name."""
    return {
        f"{number}.{name}": value
        for number, state in enumerate(optimizer.state.values())
        for name, value in state.items()
        if isinstance(value, Tensor)
    }
