"""Resumable state: where it lies, what it holds, and which of it is used.

It lies outside any stage's outs (DVC deletes those before a stage runs), in a folder named after a
fingerprint of everything that could change the result. So a changed parameter starts afresh, and
``dvc repro -f`` cannot pick up a stale run. The two newest states are kept; the newest that
verifies is used. Rank 0 reads and writes; the other ranks get theirs from it.

There is no random state in it: batches, captions and dropout follow from the seed and the step.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brepfind.checkpoints.state import newest_state, save_state
from brepfind.errors import CheckFailed, CheckpointError
from brepfind.files import locked
from brepfind.log import get_logger

log = get_logger(__name__)

_KEPT_STATES = 2
_LOCK_S = 30.0


class StateFolder:
    """The state of one run.

    Args:
        root: of all runs' states.
        fingerprint: of what could change the result.
    """

    def __init__(self, root: Path, fingerprint: str) -> None:
        self.root = root
        self.folder = root / fingerprint[:24]

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

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write a state, then drop all but the newest two."""
        save_state(self.folder / f"state-{step:09d}.pt", state)
        for old in self._states()[:-_KEPT_STATES]:
            for path in (old, *old.parent.glob(old.name + ".*")):
                path.unlink(missing_ok=True)

    def load(self) -> dict[str, Any] | None:
        """The newest state that verifies, or None."""
        found = newest_state(self.folder, "state-*.pt")
        if found is None:
            return None
        log.info("resuming from %s", found[0])
        return found[1]

    def drop(self) -> None:
        """Remove the state of a run that has ended well."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _states(self) -> list[Path]:
        return sorted(self.folder.glob("state-*.pt"))


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
