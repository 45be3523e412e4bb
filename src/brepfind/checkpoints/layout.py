"""Where the tensors are in a loaded checkpoint, and what each of them is for.

People nest their weights in many ways: Lightning's ``state_dict``, ``model``, a copy averaged over
time, the optimizer's moments. Everything is walked, nothing is run, and every tensor gets a path
and a role.
"""

from __future__ import annotations

import argparse
import math
import re
import types
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

import torch

from brepfind.checkpoints.allowed import NumpyArray
from brepfind.errors import CheckpointError

Role = Literal["weights", "ema", "optimizer", "scaler", "other"]
Path_ = tuple[str, ...]

_MAX_DEPTH = 200
_MAX_AGAIN = 200_000  # values met again: a few bytes can describe a tree without end
# The usual names of the mapping that holds the weights, the likeliest first.
_WEIGHT_FOLDERS = (
    "state_dict",
    "model_state_dict",
    "model_state",
    "model",
    "module",
    "network",
    "net",
    "weights",
    "params",
    "model_weights",
)
_ROLE_WORDS: tuple[tuple[Role, frozenset[str]], ...] = (
    ("optimizer", frozenset({"optimizer", "optimizers", "optim", "optimiser"})),
    ("scaler", frozenset({"scaler", "gradscaler", "amp"})),
    ("ema", frozenset({"ema", "averaged", "shadow", "swa"})),
    (
        "other",
        frozenset(
            {"rng", "random", "callbacks", "loops", "scheduler", "schedulers", "sampler", "lr"}
        ),
    ),
)
# Segments that a wrapper puts into names: compile, FSDP, activation checkpointing. Anywhere.
_WRAPPERS = frozenset(
    {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"}
)


_DULL = (int, str, bytes, type(None))
# Of torch, apex and DeepSpeed; `scale` may be anything where no scaler is.
_LOSS_SCALES = frozenset({"scale", "loss_scale", "cur_scale"})
# In what was asked for, a loss scale of 0 says "find one while training".
_SETTINGS = frozenset({"config", "cfg", "args", "hyper", "hparams"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One tensor of a checkpoint.

    Attributes:
        path: the keys that lead to it in the file.
        name: its name among its kind: the key in the state dict, or the whole path.
        role: what it is for.
        tensor: the values, still on disk where the format allows.
    """

    path: Path_
    name: str
    role: Role
    tensor: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One plain float of a checkpoint, such as a learning rate or a best score; or a loss scale,
    which may be a whole number.

    Of the floats in a list only the first NaN is one.
    """

    path: Path_
    role: Role
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What was found: ``where`` is the path of the mapping that holds the weights."""

    entries: tuple[Entry, ...]
    numbers: tuple[Number, ...]
    where: Path_


def survey(tree: Any) -> Layout:
    """Find every tensor and every float in plain data.

    Raises:
        CheckpointError: if the data never ends, or two weights have one name.
    """
    tensors: list[tuple[Path_, Role, torch.Tensor]] = []
    arrays: list[tuple[Path_, Role, torch.Tensor]] = []
    numbers: list[Number] = []
    for path, role, leaf in _leaves(tree):
        if isinstance(leaf, torch.Tensor):
            tensors.append((path, role, leaf.detach()))
        elif isinstance(leaf, NumpyArray):
            arrays.append((path, role, leaf.tensor()))
        else:
            numbers.append(Number(path=path, role=role, value=_as_float(leaf)))
    # Beside tensors, arrays are states of random generators and the like; alone, they are weights.
    beside = any(role == "weights" for _, role, _ in tensors)
    tensors += [
        (path, "other" if role == "weights" and beside else role, array)
        for path, role, array in arrays
    ]
    where = _weights_folder([path for path, role, _ in tensors if role == "weights"])
    entries = tuple(_entry(path, role, tensor, where) for path, role, tensor in tensors)
    names = Counter(entry.name for entry in entries if entry.role == "weights")
    twice = [name for name, times in names.items() if times > 1]
    if twice:
        raise CheckpointError(f"two tensors of the file would both be called {twice[0]!r}")
    return Layout(entries=entries, numbers=tuple(numbers), where=where)


def is_loss_scale(path: Path_, role: Role) -> bool:
    """Whether a path leads to the factor that a loss is multiplied with before fp16 gradients."""
    *above, last = path or ("",)
    if last not in _LOSS_SCALES or any(_words(key.lower()) & _SETTINGS for key in above):
        return False
    # Megatron keeps its grad_scaler inside of the optimizer's state.
    named = last != "scale" or any("scaler" in _words(key.lower()) for key in above[-1:])
    return role == "scaler" or (role == "optimizer" and named)


def _as_float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:  # a whole number of more than 308 digits
        return math.inf


def storages(tree: Any) -> dict[int, int]:
    """Address -> length in bytes of every storage in plain data."""
    found = {}
    for _, _, leaf in _leaves(tree):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and not leaf.is_meta:
            storage = leaf.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return found


def _entry(path: Path_, role: Role, tensor: torch.Tensor, where: Path_) -> Entry:
    inside = path[: len(where)] == where
    if role == "weights" and not inside:
        role = "other"
    name = ".".join(path[len(where) :]) if role == "weights" else ".".join(path)
    return Entry(path=path, name=name, role=role, tensor=tensor)


def _leaves(tree: Any) -> Iterator[tuple[Path_, Role, Any]]:
    # A stack of our own: a stranger's tree may be nested deeper than Python recurses.
    stack: list[tuple[Path_, Role, Any, frozenset[int]]] = [((), "weights", tree, frozenset())]
    seen: set[int] = set()
    again = 0
    while stack:
        path, role, node, above = stack.pop()
        nested = isinstance(node, torch.Tensor) and node.is_nested
        if isinstance(node, torch.Tensor | NumpyArray | float | int) and not nested:
            yield path, role, node
            continue
        children = _children(node)
        if not children or id(node) in above:
            continue
        # What a file holds once is bounded by its length; what it points to again is not.
        again += len(children) if id(node) in seen else 0
        seen.add(id(node))
        if again > _MAX_AGAIN or len(path) > _MAX_DEPTH:
            raise CheckpointError("the file describes more values than any checkpoint has")
        role = _role_of_node(node, role)
        inner = above | {id(node)}
        for key, child in reversed(children):
            stack.append(((*path, key), _role_of_key((*path, key), child, role), child, inner))


def _children(node: Any) -> list[tuple[str, Any]]:
    """What is worth a visit in a container: no text, no whole numbers."""
    if isinstance(node, argparse.Namespace | types.SimpleNamespace):
        node = vars(node)
    if isinstance(node, torch.Tensor):  # nested: rows of unequal length, end to end
        if node.layout is torch.jagged:
            lengths: torch.Tensor = node.offsets()  # type: ignore[attr-defined]  # a subclass's
            return [("values", node.values()), ("offsets", lengths)]
        return [("values", node.values()), ("sizes", node._nested_tensor_size())]
    if isinstance(node, Mapping):
        return [
            (str(key), child)
            for key, child in node.items()
            if not isinstance(child, _DULL) or (key in _LOSS_SCALES and type(child) is int)
        ]
    if isinstance(node, Sequence | Set) and not isinstance(node, str | bytes | torch.Size):
        return _members(node)
    return []


def _members(node: Iterable[Any]) -> list[tuple[str, Any]]:
    """Of plain floats in a row the first NaN alone: a history is not a million findings."""
    found = []
    bad = False
    for position, child in enumerate(node):
        if isinstance(child, float):
            if bad or child == child:
                continue
            bad = True
        elif isinstance(child, _DULL):
            continue
        found.append((str(position), child))
    return found


def _role_of_key(path: Path_, child: Any, role: Role) -> Role:
    """What a key says of its value. Names of layers say nothing: one may well be `scaler`."""
    if role != "weights" or len(path) > 3:
        return role
    key = path[-1].lower()
    if isinstance(child, torch.Tensor | NumpyArray):
        if key == "n_averaged":  # torch.optim.swa_utils.AveragedModel counts with it
            return "other"
        first = key.partition(".")[0] if "." in key else ""
        return "ema" if "ema" in _words(first) else role
    for named, names in _ROLE_WORDS:
        if _words(key) & names:
            return named
    return role


def _words(key: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", key))


def _role_of_node(node: Any, role: Role) -> Role:
    if not isinstance(node, Mapping) or role != "weights":
        return role
    if {"state", "param_groups"} <= node.keys():
        return "optimizer"
    if {"scale", "growth_factor"} <= node.keys():
        return "scaler"
    return role


def _weights_folder(paths: Sequence[Path_]) -> Path_:
    """The path of the mapping that holds the weights, given the paths of all candidates."""
    where: Path_ = ()
    while paths:
        deeper = [path for path in paths if len(path) > len(where) + 1]
        children = dict.fromkeys(path[len(where)] for path in deeper)
        named = [name for name in _WEIGHT_FOLDERS if name in children]
        only_folders = len(deeper) == len(paths)
        held = sum(path[len(where)] == named[0] for path in deeper) if named else 0
        if held > len(paths) / 2 or (named and only_folders):
            step = named[0]
        elif len(children) == 1 and only_folders:
            step = next(iter(children))
        else:
            break
        where = (*where, step)
        paths = [path for path in paths if path[: len(where)] == where]
    return where


def unwrapped(name: str) -> str:
    """A tensor's name without what DDP (leading ``module.``), compile and FSDP put into it."""
    segments = [segment for segment in name.split(".") if segment not in _WRAPPERS]
    while len(segments) > 1 and segments[0] == "module":
        segments = segments[1:]
    return ".".join(segments)


def unwrapped_names(names: Sequence[str]) -> dict[str, str]:
    """Plain name -> name in the file.

    Raises:
        CheckpointError: if two names become one.
    """
    plain: dict[str, str] = {}
    for name in names:
        short = unwrapped(name)
        if short in plain:
            raise CheckpointError(
                f"the file holds two copies of {short!r}: {plain[short]!r} and {name!r}; "
                "drop one of them with --drop"
            )
        plain[short] = name
    return plain
