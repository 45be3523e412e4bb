"""Make honest weights of any checkpoint: plain keys, real tensors, every key accounted for.

Complex tensors become two real ones; prefixes of wrappers go; tied tensors are cloned. What cannot
be repaired honestly is refused: a NaN is never replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from pydantic import Field

from brepfind.checkpoints.compare import (
    Architecture,
    Comparison,
    Match,
    Table,
    begins,
    compare,
    real_pair,
)
from brepfind.checkpoints.layout import unwrapped, unwrapped_names
from brepfind.checkpoints.parts import unwritable
from brepfind.checkpoints.read import Checkpoint
from brepfind.checkpoints.rotary import rotary_symptoms
from brepfind.checkpoints.scan import scan
from brepfind.checkpoints.ties import tied_groups
from brepfind.checkpoints.verdicts import Symptom, symptoms
from brepfind.errors import CheckpointError
from brepfind.findings import Finding, at_least, require
from brepfind.params import Section

_GOOD = ("fits", "cast", "split")


class SanitizeConfig(Section):
    """The ``sanitize`` section of params.yaml."""

    checkpoint: str | None = Field(
        description="a pretrained checkpoint, relative to the project; null trains from scratch"
    )
    min_coverage: float = Field(
        gt=0, le=1, description="share of the model's tensors that the checkpoint must fill"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKey:
    """What became of one tensor of the checkpoint.

    Attributes:
        name: its path in the file.
        fate: ``used``, ``cast``, ``split``, ``dropped`` (asked for), ``outside`` (not below the
            prefix), ``beside`` (optimizer, EMA and the like), ``refused`` or ``unexpected``.
        to: the keys it went to.
    """

    name: str
    fate: str
    to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SanitizeReport:
    """The account of a sanitized checkpoint.

    Attributes:
        source: the file; ``layout``, ``where`` and ``prefix`` say how it was built.
        sources: every tensor of the file.
        targets: every key of the architecture, and what it came from.
        coverage: the share of the architecture's keys that were filled.
        tied: groups of keys that shared memory in the file and are separate copies now.
        findings: every check, the failed ones first.
    """

    source: str
    layout: str
    where: str
    prefix: str
    checksums: str
    sources: tuple[SourceKey, ...]
    targets: tuple[Match, ...]
    coverage: float
    tied: tuple[tuple[str, ...], ...] = ()
    findings: tuple[Finding, ...] = ()
    versions: dict[str, str] = field(default_factory=lambda: {"torch": str(torch.__version__)})

    @property
    def missing(self) -> tuple[str, ...]:
        """Keys of the architecture that the checkpoint does not fill."""
        return tuple(match.key for match in self.targets if match.state not in _GOOD)

    @property
    def split(self) -> tuple[str, ...]:
        """The complex tensors that became two real ones, by name below the prefix."""
        sources = dict.fromkeys(match.source for match in self.targets if match.state == "split")
        return tuple(unwrapped(name).removeprefix(self.prefix) for name in sources if name)

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return {
            "source": self.source,
            "layout": self.layout,
            "where": self.where,
            "prefix": self.prefix,
            "checksums": self.checksums,
            "coverage": self.coverage,
            "versions": self.versions,
            "sources": [
                {"name": key.name, "fate": key.fate, "to": list(key.to)} for key in self.sources
            ],
            "targets": [
                {
                    "key": match.key,
                    "from": match.source,
                    "state": match.state,
                    "wanted": match.wanted,
                    "found": match.found,
                }
                for match in self.targets
            ],
            "tied": [list(group) for group in self.tied],
            "findings": [finding.as_json() for finding in self.findings],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Sanitized:
    """Clean tensors by the architecture's keys, and their account."""

    tensors: dict[str, torch.Tensor]
    report: SanitizeReport


def sanitize(
    checkpoint: Checkpoint,
    like: Table | Architecture | None,
    *,
    min_coverage: float = 1.0,
    drop: Collection[str] = (),
    prefix: str | None = None,
) -> Sanitized:
    """Convert a checkpoint's weights to an architecture's keys, dtypes and shapes.

    Args:
        checkpoint: as ``read_checkpoint`` gives it.
        like: the architecture's table, or a function that gives it for the sizes seen; None keeps
            the checkpoint's own keys and splits what is complex.
        min_coverage: the share of the architecture's keys that must be filled.
        drop: beginnings of names to leave out; a name is also matched without its wrappers.
        prefix: what stands before every key; found out by default.

    Raises:
        CheckFailed: something that cannot be repaired honestly: a value that is not finite, a
            key that does not fit, too little coverage. Its findings name each.
        CheckpointError: nothing fits the architecture at all.
    """
    comparison = _compared(checkpoint, like, drop, prefix)
    report = _report(checkpoint, comparison, min_coverage)
    require("sanitize", report.findings)
    tensors: dict[str, torch.Tensor] = {}
    for match in comparison.matches:
        if match.state in _GOOD and match.source is not None:
            tensors[match.key] = _converted(match, checkpoint.tensors[match.source], comparison)
    assert not any(tensor.is_complex() for tensor in tensors.values())
    return Sanitized(tensors=tensors, report=report)


def examine(
    checkpoint: Checkpoint,
    like: Table | Architecture | None,
    *,
    min_coverage: float = 1.0,
    drop: Collection[str] = (),
    prefix: str | None = None,
) -> SanitizeReport:
    """The account alone, failed findings and all, for a report that is written before it stops."""
    return _report(checkpoint, _compared(checkpoint, like, drop, prefix), min_coverage)


def own_table(tensors: Mapping[str, torch.Tensor]) -> Table:
    """The table of a checkpoint's own keys, with complex tensors as the real pairs they become."""
    table: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
    plain = unwrapped_names(list(tensors))
    for name, full in plain.items():
        tensor = tensors[full]
        shape = tuple(tensor.shape)
        if not tensor.is_complex():
            table[name] = (tensor.dtype, shape)
            continue
        for half in real_pair(name):
            if half in plain:
                raise CheckpointError(f"{full!r} would become {half!r}, which is already there")
            table[half] = (tensor.real.dtype, shape)
    return table


def _compared(
    checkpoint: Checkpoint,
    like: Table | Architecture | None,
    drop: Collection[str],
    prefix: str | None,
) -> Comparison:
    tensors = checkpoint.tensors
    if not tensors:
        raise CheckpointError(
            f"{checkpoint.path}: holds no weights, only "
            f"{', '.join(sorted({entry.role for entry in checkpoint.entries}))}"
        )
    try:
        if like is None:
            kept = {name: tensor for name, tensor in tensors.items() if not begins(name, drop)}
            return compare(tensors, own_table(kept), drop=drop, prefix="")
        return compare(tensors, like, drop=drop, prefix=prefix)
    except CheckpointError as error:
        raise CheckpointError(f"{checkpoint.path}: {error}") from None


def _report(checkpoint: Checkpoint, comparison: Comparison, min_coverage: float) -> SanitizeReport:
    used = {match.source: None for match in comparison.matches if match.source is not None}
    findings = [
        *_value_findings(checkpoint, comparison, list(used)),
        *_key_findings(comparison, min_coverage),
    ]
    findings.sort(key=lambda finding: ("failed", "warning", "ok").index(finding.verdict))
    beside = [entry for entry in checkpoint.entries if entry.role != "weights"]
    return SanitizeReport(
        source=checkpoint.path.name,
        layout=checkpoint.layout,
        where=checkpoint.where,
        prefix=comparison.prefix,
        checksums=checkpoint.checksums,
        sources=(
            *(_fate(name, comparison) for name in checkpoint.tensors),
            *(SourceKey(name=entry.name, fate="beside") for entry in beside),
        ),
        targets=comparison.matches,
        coverage=comparison.coverage,
        tied=tuple(tied_groups({name: checkpoint.tensors[name] for name in used})),
        findings=tuple(findings),
    )


def _value_findings(
    checkpoint: Checkpoint, comparison: Comparison, used: list[str]
) -> list[Finding]:
    plain = {_plain_name(name, comparison): checkpoint.tensors[name] for name in used}
    found: list[Symptom] = rotary_symptoms(plain)
    for name, tensor in plain.items():
        found += _unwritable(name, tensor)
    for vitals in scan(plain):
        found += [symptom for symptom in symptoms(vitals) if symptom.severity == "sick"]
    return [symptom.finding() for symptom in found]


def _unwritable(name: str, tensor: torch.Tensor) -> list[Symptom]:
    why = unwritable(tensor)
    rename = "rename it where it was made, or drop it"
    advice = "save it dense where it was made (to_dense(), dequantize(), contiguous()), or drop it"
    try:
        name.encode()
    except UnicodeEncodeError:
        why, advice = "a name that is not text", rename
    if name == "__metadata__":
        why, advice = "the name of safetensors' own notes", rename
    if not why:
        return []
    return [Symptom(severity="sick", kind="unwritable", name=name, text=why, advice=advice)]


def _plain_name(name: str, comparison: Comparison) -> str:
    return unwrapped(name).removeprefix(comparison.prefix)


def _key_findings(comparison: Comparison, min_coverage: float) -> list[Finding]:
    enough = comparison.coverage >= min_coverage
    found = []
    for match in comparison.matches:
        if match.state == "missing":
            found.append(
                Finding(
                    name=match.key,
                    value="missing",
                    limit=match.wanted,
                    verdict="warning" if enough else "failed",
                    advice="it keeps its initial value" if enough else "",
                )
            )
        elif match.state not in _GOOD:
            found.append(
                Finding(name=match.key, value=match.found, limit=match.wanted, verdict="failed")
            )
    for name in comparison.unexpected:
        found.append(
            Finding(
                name=name,
                value="unexpected",
                limit="a key of the architecture",
                verdict="failed",
                advice="if it is not needed, drop it by name",
            )
        )
    advice = "the checkpoint is of another model or size, or lost some of its keys"
    found.append(at_least("coverage", comparison.coverage, min_coverage, advice=advice))
    return found


def _fate(name: str, comparison: Comparison) -> SourceKey:
    if name in comparison.dropped:
        return SourceKey(name=name, fate="dropped")
    if name in comparison.outside:
        return SourceKey(name=name, fate="outside")
    mine = [match for match in comparison.matches if match.source == name]
    good = [match for match in mine if match.state in _GOOD]
    if not mine:
        return SourceKey(name=name, fate="unexpected")
    if not good:
        return SourceKey(name=name, fate="refused")
    fate = "used" if good[0].state == "fits" else good[0].state
    return SourceKey(name=name, fate=fate, to=tuple(match.key for match in good))


def _converted(match: Match, tensor: torch.Tensor, comparison: Comparison) -> torch.Tensor:
    """A copy of its own: neither mapped to the file nor shared with another key."""
    dtype, _ = comparison.table[match.key]
    if match.state == "split":
        first, _ = real_pair(_plain_name(match.source or "", comparison))
        parts = torch.view_as_real(tensor.resolve_conj())
        return parts[..., 0 if match.key == first else 1].contiguous()
    if match.state == "fits":
        return tensor.clone(memory_format=torch.contiguous_format)
    cast = tensor.to(dtype)
    lost = not torch.equal(cast.to(tensor.dtype), tensor)
    if lost and (not dtype.is_floating_point or not _in_range(tensor, dtype)):
        raise CheckpointError(
            f"{match.key}: {match.found} does not fit into {match.wanted} without loss"
        )
    return cast.contiguous()


def _in_range(tensor: torch.Tensor, dtype: torch.dtype) -> bool:
    """Asked of the source: a cast to float8 may clip to its largest value and look finite."""
    limits = torch.finfo(dtype)
    return limits.min <= float(tensor.min()) and float(tensor.max()) <= limits.max
