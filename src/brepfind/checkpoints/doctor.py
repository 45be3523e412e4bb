"""The doctor: everything that can be told of a checkpoint without its program.

One pass over the file, mapped into memory: the values are scanned while the checksums are summed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from brepfind.checkpoints import checksums
from brepfind.checkpoints.compare import Architecture, Match, Table, compare
from brepfind.checkpoints.layout import Entry, Number, Role, is_loss_scale
from brepfind.checkpoints.parts import stored_bytes
from brepfind.checkpoints.read import Checkpoint, damage, read_checkpoint
from brepfind.checkpoints.rotary import rotary_symptoms
from brepfind.checkpoints.scan import Scan, threads
from brepfind.checkpoints.ties import tied_groups
from brepfind.checkpoints.verdicts import (
    Symptom,
    has_numbers,
    is_logit_scale,
    logit_scale_symptom,
    number_symptom,
    symptoms,
)
from brepfind.errors import CheckpointError

Verdict = Literal["healthy", "sick", "unreadable"]

_WORST = (  # of kinds, the worst first
    "damaged",
    "nan",
    "inf",
    "unreadable",
    "empty",
    "lost_imaginary",
    "rotation",
    "scaler",
    "logit_scale",
    "missing",
    "misshaped",
    "mistyped",
    "misplaced",
    "unexpected",
    "complex",
    "far",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What the doctor says of one checkpoint.

    Attributes:
        path: the file, index or folder.
        error: why it cannot be read, or which bytes are damaged; empty if neither.
        layout: its format; ``where`` is the path of the weights in it.
        checksums: what vouches for the bytes.
        counts: tensors by role.
        nbytes: bytes of all tensors.
        symptoms: the sick ones first, the worst of them first.
        like: the architecture it was compared with, by name; empty if none.
        prefix: what stood before the architecture's keys.
        coverage: the share of the architecture's keys it fills; None if not compared.
    """

    path: Path
    error: str = ""
    layout: str = ""
    where: str = ""
    checksums: str = ""
    counts: dict[str, int]
    nbytes: int = 0
    symptoms: tuple[Symptom, ...] = ()
    like: str = ""
    prefix: str = ""
    coverage: float | None = None

    @property
    def sick(self) -> tuple[Symptom, ...]:
        """The symptoms that fail the check."""
        return tuple(symptom for symptom in self.symptoms if symptom.severity == "sick")

    @property
    def looks(self) -> tuple[Symptom, ...]:
        """The symptoms that are worth a look and fail nothing."""
        return tuple(symptom for symptom in self.symptoms if symptom.severity == "look")

    @property
    def verdict(self) -> Verdict:
        """One word."""
        if self.error:
            return "unreadable"
        return "sick" if self.sick else "healthy"

    @property
    def exit_code(self) -> int:
        """0 healthy, 1 sick, 2 not readable."""
        return {"healthy": 0, "sick": 1, "unreadable": 2}[self.verdict]

    def headline(self) -> str:
        """The verdict in one line."""
        if self.error:
            return f"NOT READABLE  {self.error}"
        tensors = sum(self.counts.values())
        looked = f"{tensors:,} tensor{'s' if tensors != 1 else ''}, {_size(self.nbytes)}"
        also = f"; {len(self.looks)} worth a look" if self.looks else ""
        if not self.sick:
            finite = "all finite"
            if any(symptom.kind == "inf" for symptom in self.looks):
                finite = "all weights finite"
            return f"HEALTHY  {self.path} ({looked}): {finite}{also}"
        more = f" (and {len(self.sick) - 1} more)" if len(self.sick) > 1 else ""
        return f"SICK  {self.path} ({looked}): {self.sick[0].line()}{more}{also}"

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return {
            "path": str(self.path),
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "error": self.error,
            "layout": self.layout,
            "where": self.where,
            "checksums": self.checksums,
            "counts": self.counts,
            "bytes": self.nbytes,
            "like": self.like,
            "prefix": self.prefix,
            "coverage": self.coverage,
            "symptoms": [symptom.as_json() for symptom in self.symptoms],
            "versions": {"torch": str(torch.__version__)},
        }


def diagnose(
    path: Path,
    like: Table | Architecture | None = None,
    *,
    like_name: str = "",
    drop: Iterable[str] = (),
    prefix: str | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Diagnosis:
    """Examine one checkpoint. Broken files are told of, not raised.

    Args:
        path: a torch or safetensors file, an index of shards, or a folder with one.
        like: the architecture that its weights should fit.
        like_name: how to call that architecture.
        drop: beginnings of names to leave out of the comparison.
        prefix: what stands before the architecture's keys; found out by default.
        advance: told the bytes that were looked at.
    """
    try:
        checkpoint = read_checkpoint(path, verify=False)
        found, error, vouched = _examine(checkpoint, advance)
    except CheckpointError as complaint:
        return Diagnosis(path=path, error=str(complaint), counts={})
    compared: dict[str, Any] = {}
    if like is not None:
        more, compared = _compare(checkpoint, like, tuple(drop), prefix)
        found += more
    found.sort(key=_rank)
    return Diagnosis(
        path=path,
        error=error,
        layout=checkpoint.layout,
        where=checkpoint.where,
        checksums=vouched,
        counts=_counts(checkpoint.entries),
        nbytes=sum(stored_bytes(entry.tensor) for entry in checkpoint.entries),
        symptoms=tuple(found),
        like=like_name or ("given" if like is not None else ""),
        **compared,
    )


def _examine(
    checkpoint: Checkpoint, advance: Callable[[int], None]
) -> tuple[list[Symptom], str, str]:
    """Symptoms, the damage to the bytes if any, and what vouched for them."""
    container = checkpoint.container
    with threads() as pool:
        beside = [pool.submit(checksums.verify_sidecar, file) for file in container.files]
        hashed = all(checksums.read_sidecar(file) for file in container.files)
        located = {} if hashed else container.located
        scan = Scan(checkpoint.entries, pool, advance, located)
        left = () if hashed else [piece for piece in container.pieces if piece not in scan.summed]
        damaged = checksums.start(left, pool)
        found = [symptom for vitals in scan.results() for symptom in symptoms(vitals)]
        error = ""
        try:
            for future in beside:
                future.result()
            # A suspect is summed once more from the file itself: no pass may cry wolf.
            for piece in (*checksums.start(scan.suspects, pool)(), *damaged()):
                raise damage(piece, _names_in(piece, checkpoint))
        except CheckpointError as complaint:
            error = str(complaint)
    found += _by_name(checkpoint)
    return found, error, "SHA-256 beside it" if hashed else container.checksums


def _by_name(checkpoint: Checkpoint) -> list[Symptom]:
    """What names, numbers and shared memory tell beside the values."""
    found = []
    names = {entry.name for entry in checkpoint.entries}
    for entry in checkpoint.entries:
        if entry.role in ("weights", "ema") and is_logit_scale(entry.name):
            parent, dot, _ = entry.name.rpartition(".")
            sigmoid = f"{parent}{dot}logit_bias" in names
            found.append(logit_scale_symptom(entry.name, entry.tensor, entry.role, sigmoid=sigmoid))
    found += [number_symptom(number) for number in checkpoint.numbers]
    found += [number_symptom(number) for number in _loss_scales(checkpoint.entries)]
    roles: tuple[Role, ...] = ("weights", "ema")
    for role in roles:
        mine = {entry.name: entry.tensor for entry in checkpoint.entries if entry.role == role}
        found += rotary_symptoms(mine, role)
    for first, *others in tied_groups(checkpoint.tensors):
        found.append(
            Symptom(
                severity="look",
                kind="tied",
                name=first,
                text=f"shares memory with {', '.join(others)}",
                advice="a writer of safetensors refuses these; brepfind sanitize copies them apart",
            )
        )
    found += [
        Symptom(severity="sick", kind="missing", name=key, text="named by the index, in no shard")
        for key in checkpoint.container.absent
    ]
    found += [
        Symptom(severity="sick", kind="unexpected", name=key, text="in a shard, not in the index")
        for key in checkpoint.container.unlisted
    ]
    found += [
        Symptom(severity="sick", kind="misplaced", name=key, text="in another shard than indexed")
        for key in checkpoint.container.misplaced
    ]
    return [symptom for symptom in found if symptom is not None]


def _loss_scales(entries: Iterable[Entry]) -> Iterator[Number]:
    """Those that are tensors; what is not finite the scan tells of."""
    for entry in entries:
        one = (
            entry.tensor.numel() == 1
            and has_numbers(entry.tensor)
            and not entry.tensor.is_complex()
        )
        if one and is_loss_scale(entry.path, entry.role):
            value = float(entry.tensor)
            if math.isfinite(value):
                yield Number(path=entry.path, role=entry.role, value=value)


def _compare(
    checkpoint: Checkpoint, like: Table | Architecture, drop: tuple[str, ...], prefix: str | None
) -> tuple[list[Symptom], dict[str, Any]]:
    try:
        comparison = compare(checkpoint.tensors, like, drop=drop, prefix=prefix)
    except CheckpointError as complaint:
        nothing = Symptom(
            severity="sick", kind="missing", name="the architecture", text=str(complaint)
        )
        return [nothing], {"coverage": 0.0}
    found = [_key_symptom(match) for match in comparison.matches]
    found += [
        Symptom(
            severity="sick",
            kind="unexpected",
            name=name,
            text="unexpected: the architecture has no such key",
            advice="a newer or another model; or leave it out with --drop",
        )
        for name in comparison.unexpected
    ]
    found += [
        Symptom(
            severity="look",
            kind="outside",
            name=name,
            text=f"not below {comparison.prefix!r}, so not part of the architecture",
        )
        for name in comparison.outside
    ]
    seen = [symptom for symptom in found if symptom is not None]
    return seen, {"prefix": comparison.prefix, "coverage": comparison.coverage}


def _key_symptom(match: Match) -> Symptom | None:
    if match.state in ("fits", "split"):
        return None
    if match.state == "missing":
        return Symptom(
            severity="sick",
            kind="missing",
            name=match.key,
            text=f"missing ({match.wanted})",
            advice="a load that is not strict would leave random values there",
        )
    kind = "misshaped" if match.state == "misshaped" else "mistyped"
    word = "mis-shaped" if kind == "misshaped" else "mis-typed"
    advice = "brepfind sanitize casts it" if match.state == "cast" else "it is of another model"
    return Symptom(
        severity="sick",
        kind=kind,
        name=match.key,
        text=f"{word}: {match.found}, the architecture has {match.wanted}",
        advice=advice,
    )


def _names_in(piece: checksums.Piece, checkpoint: Checkpoint) -> str:
    """The tensors whose storage is the given piece of the file."""
    located = checkpoint.container.located
    names = [
        entry.name
        for entry in checkpoint.entries
        if entry.tensor.layout is torch.strided
        and located.get(entry.tensor.untyped_storage().data_ptr()) == piece
    ]
    return ", ".join(names[:3])


def _counts(entries: Iterable[Entry]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.role] = counts.get(entry.role, 0) + 1
    return counts


def _rank(symptom: Symptom) -> tuple[bool, int, int, float, str]:
    place = _WORST.index(symptom.kind) if symptom.kind in _WORST else len(_WORST)
    role = ("weights", "ema", "optimizer", "scaler", "other").index(symptom.role)
    return symptom.severity != "sick", place, role, -(symptom.share or 0.0), symptom.name


def _size(nbytes: int) -> str:
    value, unit = float(nbytes), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
