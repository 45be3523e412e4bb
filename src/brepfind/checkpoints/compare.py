"""A checkpoint against an architecture, key by key.

The architecture is a plain table; a rotary table that an architecture keeps as two real buffers,
``freqs_cos`` and ``freqs_sin``, may stand in the checkpoint as one complex ``freqs_cis``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from brepfind.checkpoints.layout import unwrapped, unwrapped_names
from brepfind.errors import BrepfindError, CheckpointError

Shape = tuple[int, ...]
Table = Mapping[str, tuple[torch.dtype, Shape]]
#: Gives the table for the sizes seen in a checkpoint (its keys without prefix, with their shapes).
Architecture = Callable[[Mapping[str, Shape]], Table]

State = Literal["fits", "cast", "split", "missing", "misshaped", "mistyped"]

_COMPLEX_TO_REAL = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}


def real_pair(key: str) -> tuple[str, str]:
    """The names of the two real tensors that a complex one becomes."""
    if key.endswith("_cis"):
        return f"{key[:-3]}cos", f"{key[:-3]}sin"
    return f"{key}_real", f"{key}_imag"


def complex_name(cosine: str) -> str | None:
    """The inverse of :func:`real_pair` for its first name."""
    for ending, whole in (("_cos", "_cis"), ("_real", "")):
        if cosine.endswith(ending):
            return cosine[: -len(ending)] + whole
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One key of the architecture and what the checkpoint has for it.

    Attributes:
        key: the key in the architecture.
        source: the name in the checkpoint; None if there is none.
        state: ``fits``; ``cast`` (another dtype of the same kind); ``split`` (half of a complex
            tensor); or why it does not fit.
        wanted, found: ``float32 256 x 256``, for people.
    """

    key: str
    source: str | None
    state: State
    wanted: str
    found: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A whole checkpoint against a whole architecture.

    Attributes:
        prefix: what stood before every key in the checkpoint.
        matches: one per key of the architecture, in its order.
        unexpected: names below the prefix that the architecture does not have.
        dropped: names that were to be dropped.
        outside: names that do not begin with the prefix.
    """

    prefix: str
    table: Table
    matches: tuple[Match, ...]
    unexpected: tuple[str, ...]
    dropped: tuple[str, ...]
    outside: tuple[str, ...]

    @property
    def coverage(self) -> float:
        """The share of the architecture's keys that the checkpoint fills."""
        good = sum(match.state in ("fits", "cast", "split") for match in self.matches)
        return good / len(self.matches) if self.matches else 0.0


def begins(name: str, starts: Iterable[str]) -> bool:
    """Whether a name begins with one of ``starts``, as it is or without its wrappers."""
    return any(name.startswith(start) or unwrapped(name).startswith(start) for start in starts)


def describe(dtype: torch.dtype, shape: Iterable[int]) -> str:
    """``float32 256 x 256``; ``int64 scalar``."""
    sizes = " x ".join(map(str, shape))
    return f"{str(dtype).removeprefix('torch.')} {sizes or 'scalar'}"


def compare(
    tensors: Mapping[str, torch.Tensor],
    like: Table | Architecture,
    *,
    drop: Collection[str] = (),
    prefix: str | None = None,
) -> Comparison:
    """Lay a checkpoint's weights against an architecture.

    Args:
        tensors: by their names in the checkpoint.
        like: the table, or a function that gives it for the sizes seen.
        drop: beginnings of names to leave out, such as ``classifier.``; a name is also matched
            without its wrappers.
        prefix: what stands before every key; found out by default.

    Raises:
        CheckpointError: no tensor fits, or two copies fit equally well.
    """
    dropped = [name for name in tensors if begins(name, drop)]
    plain = unwrapped_names([name for name in tensors if name not in set(dropped)])
    prefix, table = _fit(plain, tensors, like, prefix)
    inside = {
        name.removeprefix(prefix): full for name, full in plain.items() if name.startswith(prefix)
    }
    matches = tuple(_match(key, table, inside, tensors) for key in table)
    taken = {match.source for match in matches}
    return Comparison(
        prefix=prefix,
        table=table,
        matches=matches,
        unexpected=tuple(full for full in inside.values() if full not in taken),
        dropped=tuple(dropped),
        outside=tuple(full for name, full in plain.items() if not name.startswith(prefix)),
    )


def _match(
    key: str,
    table: Table,
    inside: Mapping[str, str],
    tensors: Mapping[str, torch.Tensor],
) -> Match:
    dtype, shape = table[key]
    want = describe(dtype, shape)
    source = inside.get(key)
    name = _complex_name(key, inside)
    if source is None and name is not None:
        whole = inside[name]
        tensor = tensors[whole]
        found = describe(tensor.dtype, tensor.shape)
        # One half alone would lose the other, or go with the half of another tensor.
        both = all(half in table and half not in inside for half in real_pair(name))
        if not tensor.is_complex() or not both:
            return Match(key=key, source=whole, state="mistyped", wanted=want, found=found)
        fits = tuple(tensor.shape) == tuple(shape)
        exact = _COMPLEX_TO_REAL[tensor.dtype] == dtype
        state: State = "split" if fits and exact else "mistyped" if fits else "misshaped"
        return Match(key=key, source=whole, state=state, wanted=want, found=found)
    if source is None:
        return Match(key=key, source=None, state="missing", wanted=want)
    tensor = tensors[source]
    found = describe(tensor.dtype, tensor.shape)
    return Match(
        key=key, source=source, state=_state(tensor, dtype, shape), wanted=want, found=found
    )


def _state(tensor: torch.Tensor, dtype: torch.dtype, shape: Shape) -> State:
    if tuple(tensor.shape) != tuple(shape):
        return "misshaped"
    if tensor.dtype == dtype:
        return "fits"
    floats = tensor.is_floating_point() and dtype.is_floating_point
    wide = tensor.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    integers = _is_integer(tensor.dtype) and _is_integer(dtype)
    return "cast" if (floats and wide) or integers else "mistyped"


def _is_integer(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point and not dtype.is_complex and dtype is not torch.bool


def _complex_name(key: str, inside: Mapping[str, str]) -> str | None:
    for ending, place in (("_cos", 0), ("_sin", 1), ("_real", 0), ("_imag", 1)):
        if key.endswith(ending):
            stem = key[: -len(ending)]
            for whole in (f"{stem}_cis", stem):
                if whole in inside and real_pair(whole)[place] == key:
                    return whole
    return None


def _fit(
    plain: Mapping[str, str],
    tensors: Mapping[str, torch.Tensor],
    like: Table | Architecture,
    prefix: str | None,
) -> tuple[str, Table]:
    candidates = [prefix] if prefix is not None else _prefixes(plain)
    fits: list[tuple[int, str, Table]] = []
    for candidate in candidates:
        shapes = {
            name.removeprefix(candidate): tuple(tensors[full].shape)
            for name, full in plain.items()
            if name.startswith(candidate)
        }
        table = _table(like, shapes)
        if table is None:
            continue
        known = {*table, *(whole for key in table if (whole := complex_name(key)))}
        count = sum(name in known for name in shapes)
        if count:
            fits.append((count, candidate, table))
    if not fits:
        some = ", ".join(list(plain)[:3])
        raise CheckpointError(
            f"no tensor has a name of the architecture, under any prefix (there are {some}, ...)"
        )
    best = max(count for count, _, _ in fits)
    winners = [(candidate, table) for count, candidate, table in fits if count == best]
    if len(winners) > 1:
        names = " and ".join(repr(candidate) for candidate, _ in winners[:3])
        raise CheckpointError(
            f"{len(winners)} copies in the file fit equally well, under {names}; say which with "
            "a prefix, or drop the others"
        )
    return winners[0]


def _table(like: Table | Architecture, shapes: Mapping[str, Shape]) -> Table | None:
    if isinstance(like, Mapping):
        return like
    try:
        return like(shapes)
    except (BrepfindError, LookupError, ValueError):
        return None  # these names are not of that architecture


def _prefixes(names: Iterable[str]) -> list[str]:
    """Every leading part that several names share, the most shared first; the empty one too."""
    counts: Counter[str] = Counter({"": 1 << 60})
    for name in names:
        segments = name.split(".")
        for length in range(1, min(len(segments), 5)):
            counts[".".join(segments[:length]) + "."] += 1
    return [prefix for prefix, _ in counts.most_common(200)]
