"""Clean weights on disk: safetensors, a SHA-256 beside them, and a load that cannot go half-way."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from brepfind import files
from brepfind.checkpoints import checksums
from brepfind.checkpoints.compare import describe
from brepfind.checkpoints.scan import scan
from brepfind.checkpoints.verdicts import findings
from brepfind.errors import CheckpointError
from brepfind.findings import require

_KEY = "brepfind"  # one key of canonical JSON: safetensors orders several keys at random


def save_weights(
    path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]
) -> None:
    """Write tensors and what belongs to them; the same content gives the same bytes.

    Tied tensors are written once for each name.

    Raises:
        CheckFailed: a tensor is not finite or is complex; nothing was written.
        CheckpointError: the disk did not take it, or it cannot be read back; the old file is still
            there.
    """
    if not tensors:
        raise CheckpointError(f"{path}: there is no tensor to write")
    require_sound(tensors, f"weights for {path.name}")
    whole = _apart(tensors)
    header = {_KEY: json.dumps(dict(metadata), sort_keys=True, separators=(",", ":"))}
    try:
        with files.atomic_path(path) as aside:
            save_file(whole, str(aside), metadata=header)
            _read_back(aside, path, whole)  # what cannot be read must not replace what can
            digest = checksums.publish(aside, path)
        checksums.settle(path, digest)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path}: could not be written ({error}); is the disk full?"
        ) from error


def require_sound(tensors: Mapping[str, torch.Tensor], check: str) -> None:
    """Raise CheckFailed if a tensor holds NaN or Inf, or is complex."""
    require(check, findings(scan(tensors), allow_complex=False))


def load_weights(
    path: Path, *, require_checksum: bool = True
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tensors and metadata as :func:`save_weights` wrote them.

    Args:
        path: a safetensors file.
        require_checksum: refuse a file without its ``.sha256``; False for other people's files.

    Raises:
        CheckpointError: missing, damaged, or not vouched for.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: there is no such file; run the stage that writes it")
    checksums.verify_sidecar(path, required=require_checksum)
    try:
        with safe_open(path, framework="pt") as file:
            # Cloned: a mapped tensor would change, or crash, when the file is replaced.
            tensors = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118
            header = file.metadata() or {}
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{path}: is not a whole safetensors file ({error})") from error
    if not tensors:
        raise CheckpointError(f"{path}: holds no tensor at all")
    metadata = json.loads(header[_KEY]) if _KEY in header else dict(header)
    return tensors, metadata


def load_strict(
    module: torch.nn.Module,
    tensors: Mapping[str, torch.Tensor],
    where: str,
    *,
    missing_ok: Collection[str] = (),
) -> None:
    """Load tensors into a module after comparing keys, dtypes and shapes.

    ``load_state_dict(strict=True)`` alone lets a complex tensor into a real buffer and casts any
    dtype to any other without a word.

    Args:
        module: takes the values in place.
        tensors: by the module's own keys.
        where: what the tensors are, for the message.
        missing_ok: keys that may keep the values they have.

    Raises:
        CheckpointError: naming what is missing, unexpected, mis-shaped or mis-typed; the module
            was not touched.
    """
    own = module.state_dict()
    complaints = [
        f"{key} is missing" for key in own if key not in tensors and key not in missing_ok
    ]
    complaints += [f"{key} is unexpected" for key in tensors if key not in own]
    for key in own.keys() & tensors.keys():
        have, want = tensors[key], own[key]
        if have.dtype != want.dtype or have.shape != want.shape:
            found, wanted = describe(have.dtype, have.shape), describe(want.dtype, want.shape)
            complaints.append(f"{key} is {found}, the model has {wanted}")
    if complaints:
        more = f" (and {len(complaints) - 3} more)" if len(complaints) > 3 else ""
        raise CheckpointError(
            f"{where}: does not fit the model: {'; '.join(sorted(complaints)[:3])}{more}; "
            "it was made for another size or version"
        )
    module.load_state_dict(dict(tensors), strict=not missing_ok)


def _read_back(aside: Path, path: Path, tensors: Collection[str]) -> None:
    """The header alone: it is what a name or long notes can break, and costs nothing."""
    try:
        with safe_open(aside, framework="pt") as file:
            names = set(file.keys())
    except SafetensorError as error:
        raise CheckpointError(f"{path}: was written and cannot be read back ({error})") from error
    if names != set(tensors):
        odd = ", ".join(sorted(names ^ set(tensors))[:3])
        raise CheckpointError(f"{path}: was written and reads back with other keys ({odd})")


def _apart(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Contiguous tensors on the CPU, no two of which share memory (safetensors refuses those)."""
    seen: set[int] = set()
    apart = {}
    for key, tensor in tensors.items():
        whole = tensor.detach().cpu().contiguous()
        storage = whole.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != whole.nbytes:
            whole = whole.clone()
        seen.add(whole.untyped_storage().data_ptr())
        apart[key] = whole
    return apart
