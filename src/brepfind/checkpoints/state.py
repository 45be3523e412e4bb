"""The trainer's state: tensors and plain Python only, so that it loads with nothing trusted.

Written aside, read back, renamed; a SHA-256 beside it. A crash or a full disk leaves the old one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from brepfind import files
from brepfind.checkpoints import checksums
from brepfind.checkpoints.container import open_container
from brepfind.checkpoints.layout import survey
from brepfind.checkpoints.scan import scan
from brepfind.checkpoints.verdicts import findings
from brepfind.errors import CheckpointError
from brepfind.findings import require
from brepfind.log import get_logger

_log = get_logger(__name__)
_PLAIN = (int, float, str, bytes, bool, type(None))


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write trainer state.

    Args:
        path: such as ``state/step-000400.pt``.
        state: nested dicts, lists and tuples of tensors and plain Python values.

    Raises:
        CheckFailed: a tensor is not finite: it must never replace a sound state.
        CheckpointError: a value is neither a tensor nor plain, or the disk did not take it; the
            old file is still there.
    """
    _require_plain(state, path.name)
    require(f"state for {path.name}", findings(scan(survey(dict(state)).entries)))
    try:
        with files.atomic_path(path) as aside:
            torch.save(dict(state), aside)
            open_container(aside)  # what cannot be read back must not replace what can
            digest = checksums.publish(aside, path)
        checksums.settle(path, digest)
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            f"{path}: could not be written ({error}); is the disk full?"
        ) from error


def load_state(path: Path) -> dict[str, Any]:
    """Read trainer state that :func:`save_state` wrote.

    Raises:
        CheckpointError: missing, damaged, without its checksum, or not plain data.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: there is no such file")
    checksums.verify_sidecar(path, required=True)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zip and runtime errors alike: it is not what we wrote
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path}: is not a trainer state ({reason})") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{path}: is not a trainer state (a {type(state).__name__})")
    return state


def newest_state(folder: Path, pattern: str = "*.pt") -> tuple[Path, dict[str, Any]] | None:
    """The newest state in a folder that verifies, by name; each one passed over is said loudly.

    Returns:
        The file and its content, or None if the folder holds no state at all.

    Raises:
        CheckpointError: there are states and none of them is whole.
    """
    paths = sorted(folder.glob(pattern), reverse=True)
    complaints = []
    for path in paths:
        try:
            return path, load_state(path)
        except CheckpointError as error:
            _log.warning("passing over a state that is not whole: %s", error)
            complaints.append(str(error))
    if complaints:
        raise CheckpointError(
            f"{folder}: none of its {len(complaints)} states is whole; the newest: "
            f"{complaints[0]}. Delete the folder to start anew"
        )
    return None


def _require_plain(value: Any, where: str) -> None:
    if isinstance(value, torch.Tensor):
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise CheckpointError(f"{where}: is a {type(value).__name__}, not a plain tensor")
        return
    if type(value) in _PLAIN:
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            _require_plain(key, f"{where}: a key")
            _require_plain(item, f"{where}.{key}")
        return
    if type(value) in (list, tuple, set):
        for position, item in enumerate(value):
            _require_plain(item, f"{where}.{position}")
        return
    raise CheckpointError(
        f"{where} is a {type(value).__module__}.{type(value).__name__}; trainer state holds only "
        "tensors and plain Python (call .item(), str() or dict() on it first)"
    )
