"""Write the layout of BRepFormer's authors: a Lightning checkpoint with complex rotary tables."""

from __future__ import annotations

import argparse
import json
import types
import warnings
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from brepfind import files
from brepfind.checkpoints import checksums
from brepfind.checkpoints.allowed import NumpyArray
from brepfind.checkpoints.compare import complex_name, real_pair
from brepfind.checkpoints.layout import unwrapped
from brepfind.checkpoints.weights import load_weights, require_sound
from brepfind.errors import CheckpointError

PREFIX = "brep_encoder."
_LIGHTNING = "1.9.5"  # what the authors' code is written for
_HALVES = (torch.float16, torch.float32, torch.float64)  # of complex32, 64 and 128
_NAMESPACES: dict[str, type[Any]] = {
    "Namespace": argparse.Namespace,
    "SimpleNamespace": types.SimpleNamespace,
}


def complex_tables(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors with every ``freqs_cos`` and ``freqs_sin`` made one complex ``freqs_cis`` again.

    It goes by names alone; a pair of a dtype that no complex one has (bfloat16) stays as it is.

    Raises:
        CheckpointError: one half is there without the other, or they do not match.
    """
    return joined(tensors, _complex_names(tensors))


def joined(tensors: Mapping[str, torch.Tensor], names: Collection[str]) -> dict[str, torch.Tensor]:
    """The tensors with each of ``names`` made of its two real halves again.

    Bit for bit: the two halves are laid side by side, nothing is computed.

    Raises:
        CheckpointError: one half is there without the other, or they do not match.
    """
    whole = {name: _join(name, tensors) for name in names}
    halves = {half: name for name in names for half in real_pair(name)}
    return {
        halves.get(key, key): whole[halves[key]] if key in halves else tensor
        for key, tensor in tensors.items()
    }


def _join(name: str, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    if name in tensors:
        raise CheckpointError(f"{name} is there already, so its halves cannot be joined to it")
    one, other = real_pair(name)
    if one not in tensors:
        one, other = other, one
    pair = [tensors[half] for half in (one, other) if half in tensors]
    if len(pair) < 2 or pair[0].shape != pair[1].shape or pair[0].dtype != pair[1].dtype:
        raise CheckpointError(f"{one} has no {other} of its shape and dtype beside it")
    if pair[0].dtype not in _HALVES:
        raise CheckpointError(f"{one} is {pair[0].dtype}, which is half of no complex dtype")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # complex32 is called experimental
        return torch.view_as_complex(torch.stack(pair, dim=-1))


def _complex_names(tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """What was complex once, as far as names tell."""
    found: dict[str, None] = {}
    for key, tensor in tensors.items():
        first = f"{key[:-4]}_cos" if key.endswith("_sin") else key
        name = complex_name(first)
        if name is None or name in tensors or tensor.dtype not in _HALVES:
            continue
        one, other = real_pair(name)
        if one != first or (first.endswith("_real") and other not in tensors):
            continue  # a name that happens to end so
        found[name] = None
    return list(found)


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
    arguments = argparse.Namespace(**dict(hyper_parameters or {}))
    # In the authors' order of keys nothing is lost: a state dict is read by name.
    state = {f"{prefix}{key}": tensor for key, tensor in complex_tables(tensors).items()}
    _write(
        path, state, {"hyper_parameters": {"args": arguments}}, epoch=epoch, global_step=global_step
    )


def _write(
    path: Path,
    state: Mapping[str, torch.Tensor],
    beside: Mapping[str, Any],
    *,
    epoch: int = 0,
    global_step: int = 0,
) -> None:
    content = {
        "epoch": epoch,
        "global_step": global_step,
        "pytorch-lightning_version": _LIGHTNING,
        "state_dict": {key: tensor.contiguous() for key, tensor in state.items()},
        **beside,
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

    Prefix, hyper-parameters, ties and what was complex come from what sanitize noted in the file.
    Weights without a note of what was complex, from an earlier version, are joined by their names;
    without any notes they are taken for an encoder's.

    Returns:
        The number of tensors written.

    Raises:
        CheckFailed: a tensor is not finite.
        CheckpointError: the source or its notes cannot be read, or a complex tensor lacks a half.
    """
    tensors, notes = load_weights(source, require_checksum=False)
    require_sound(tensors, f"weights for {target.name}")
    try:
        prefix = notes.get("prefix", PREFIX)
        names = json.loads(notes["split"]) if "split" in notes else _complex_names(tensors)
        groups = [
            [unwrapped(name).removeprefix(prefix) for name in group]
            for group in json.loads(notes.get("tied", "[]"))
        ]
        beside = _hyper_parameters(notes)
        state = _tied(joined(tensors, names), groups)
    except CheckpointError as error:
        raise CheckpointError(f"{source}: {error}") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{source}: its notes cannot be read ({error}); sanitize the checkpoint anew"
        ) from error
    _write(target, {f"{prefix}{key}": tensor for key, tensor in state.items()}, beside)
    return len(state)


def _tied(
    state: dict[str, torch.Tensor], groups: Iterable[Iterable[str]]
) -> dict[str, torch.Tensor]:
    """Names that were one tensor before are one again, where they still are equal."""
    for group in groups:
        apart: list[torch.Tensor] = []
        for name in group:
            if name not in state:
                continue
            twins = [one for one in apart if _same(one, state[name])]
            if twins:
                state[name] = twins[0]
            else:
                apart.append(state[name])
    return state


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bit for bit: 0 and -0 are equal, and not the same."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def _hyper_parameters(notes: Mapping[str, str]) -> dict[str, Any]:
    """The entry of the checkpoint that holds them; none if the source had none."""
    if "split" in notes:
        if "hyper_parameters" not in notes:
            return {}
        return {"hyper_parameters": recalled(json.loads(notes["hyper_parameters"]))}
    # An earlier version noted a namespace as a mapping; the authors' stands under args.
    hyper = json.loads(notes.get("hyper_parameters", "{}")) or {"args": {}}
    if isinstance(hyper, dict) and isinstance(hyper.get("args"), dict):
        hyper["args"] = argparse.Namespace(**hyper["args"])
    return {"hyper_parameters": hyper}


def noted(value: Any, above: frozenset[int] = frozenset()) -> Any:
    """Plain data as strict JSON, for :func:`recalled`.

    An object in it has one key, the kind of what it stands for: ``{"tuple": [0.9, 0.999]}``. What
    JSON cannot hold (a path, a tensor) becomes text; so does what holds itself.
    """
    if isinstance(value, bool | int | str | None):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else {"float": str(value)}
    if id(value) in above:
        return "..."
    inner = above | {id(value)}
    if isinstance(value, list):
        return [noted(item, inner) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [noted(item, inner) for item in value]}
    for kind, space in _NAMESPACES.items():
        if isinstance(value, space):
            return {kind: noted(vars(value), inner)}
    if isinstance(value, Mapping):
        return {"dict": [[noted(key, inner), noted(item, inner)] for key, item in value.items()]}
    return str(value.array if isinstance(value, NumpyArray) else value)


def recalled(note: Any) -> Any:
    """What :func:`noted` was given.

    Raises:
        ValueError: it is none of its notes.
    """
    if isinstance(note, list):
        return [recalled(item) for item in note]
    if not isinstance(note, dict):
        return note
    ((kind, inner),) = note.items()
    if kind == "float":
        return float(inner)
    if kind == "tuple":
        return tuple(recalled(inner))
    if kind == "dict":
        return {recalled(key): recalled(item) for key, item in inner}
    if kind in _NAMESPACES:
        space = _NAMESPACES[kind]()
        vars(space).update(recalled(inner))
        return space
    raise ValueError(f"a value of the kind {kind!r}")
