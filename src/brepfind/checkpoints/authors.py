"""Write the layout of BRepFormer's authors: a Lightning checkpoint with complex rotary tables."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from brepfind import files
from brepfind.checkpoints import checksums
from brepfind.checkpoints.compare import complex_name, real_pair
from brepfind.checkpoints.weights import load_weights, require_sound
from brepfind.errors import CheckpointError

PREFIX = "brep_encoder."
_LIGHTNING = "1.9.5"  # what the authors' code is written for


def complex_tables(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors with every ``freqs_cos`` and ``freqs_sin`` made one complex ``freqs_cis`` again.

    Bit for bit: the two halves are laid side by side, nothing is computed.

    Raises:
        CheckpointError: one half is there without the other, or they do not match.
    """
    whole: dict[str, torch.Tensor] = {}
    for key, tensor in tensors.items():
        name = complex_name(key) if key.endswith(("_cos", "_real")) else None
        pair = real_pair(name) if name is not None else None
        if pair is not None and pair[0] == key and name is not None:
            other = tensors.get(pair[1])
            if other is None and key.endswith("_real"):
                whole[key] = tensor  # a name that happens to end so
                continue
            if other is None or other.shape != tensor.shape or other.dtype != tensor.dtype:
                raise CheckpointError(f"{key} has no {pair[1]} of its shape and dtype beside it")
            whole[name] = torch.view_as_complex(torch.stack((tensor, other), dim=-1))
        elif not _second_half(key, tensors):
            whole[key] = tensor
    return whole


def _second_half(key: str, tensors: Mapping[str, torch.Tensor]) -> bool:
    for ending, first in (("_sin", "_cos"), ("_imag", "_real")):
        if key.endswith(ending):
            if key[: -len(ending)] + first in tensors:
                return True
            if ending == "_sin":
                raise CheckpointError(f"{key} has no {key[: -len(ending)]}{first} beside it")
    return False


def write_authors(
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    *,
    hyper_parameters: Mapping[str, Any] | None = None,
    epoch: int = 0,
    global_step: int = 0,
    prefix: str = PREFIX,
) -> None:
    """Write an encoder's tensors as the authors' code would have saved them.

    Args:
        path: the ``.ckpt`` to write, with a SHA-256 beside it.
        tensors: by the encoder's own keys, rotary tables as real pairs.
        hyper_parameters: plain values; they stand in an ``argparse.Namespace`` under ``args``.
        epoch: how many epochs were run.
        global_step: how many steps were run.
        prefix: what the authors' trainer puts before each key.

    Raises:
        CheckFailed: a tensor is not finite.
        CheckpointError: a rotary table lacks a half, or the disk did not take the file.
    """
    require_sound(tensors, f"weights for {path.name}")
    # In the authors' order of keys nothing is lost: a state dict is read by name.
    state = {
        f"{prefix}{key}": tensor.contiguous() for key, tensor in complex_tables(tensors).items()
    }
    content = {
        "epoch": epoch,
        "global_step": global_step,
        "pytorch-lightning_version": _LIGHTNING,
        "state_dict": state,
        "hyper_parameters": {"args": argparse.Namespace(**dict(hyper_parameters or {}))},
        "optimizer_states": [],
        "lr_schedulers": [],
    }
    try:
        with files.atomic_path(path) as aside:
            torch.save(content, aside)
            digest = checksums.publish(aside, path)
        checksums.settle(path, digest)
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            f"{path}: could not be written ({error}); is the disk full?"
        ) from error


def restore(source: Path, target: Path) -> int:
    """Write clean weights (``sanitize``'s output) back in the authors' layout.

    Prefix, hyper-parameters and ties come from what sanitize noted in the file; weights without
    such notes are taken for an encoder's.

    Returns:
        The number of tensors written.

    Raises:
        CheckpointError: the source cannot be read, or a rotary table lacks a half.
    """
    tensors, notes = load_weights(source, require_checksum=False)
    prefix = notes.get("prefix", PREFIX)
    hyper = json.loads(notes.get("hyper_parameters", "{}"))
    arguments = hyper.get("args", hyper)
    write_authors(target, _tied(tensors, notes, prefix), hyper_parameters=arguments, prefix=prefix)
    return len(complex_tables(tensors))


def _tied(
    tensors: dict[str, torch.Tensor], notes: Mapping[str, str], prefix: str
) -> dict[str, torch.Tensor]:
    """Names that were one tensor before are one again, where they still are equal."""
    for first, *others in json.loads(notes.get("tied", "[]")):
        one = tensors.get(first.removeprefix(prefix))
        for name in others:
            key = name.removeprefix(prefix)
            if one is not None and key in tensors and torch.equal(one, tensors[key]):
                tensors[key] = one
    return tensors
