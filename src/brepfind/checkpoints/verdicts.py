"""From vital signs to verdicts: what is sick, what is worth a look. Pure decisions."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from brepfind.checkpoints.bits import FLOATS
from brepfind.checkpoints.layout import Number, Role, is_loss_scale
from brepfind.checkpoints.scan import TensorVitals
from brepfind.findings import Finding
from brepfind.log import printable

Severity = Literal["sick", "look"]

#: In the last part of a name: a table of rotary positions.
ROTARY = re.compile(r"freqs|rope|rotary|cis")

_NUMBERS = frozenset(FLOATS) | {  # what torch computes with; float4 and bits8 are only kept
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64),
    *(torch.complex32, torch.complex64, torch.complex128),
}
MAX_LOGIT_SCALE = math.log(100.0)
_NAME_LENGTH, _TEXT_LENGTH = 160, 400  # characters of a line for people; JSON has all
_FEW_HALF_DENORMALS = 0.05  # float16 weights near zero are often denormal


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """One thing that is wrong, or worth a look, with one tensor or the file.

    Attributes:
        severity: ``sick`` fails the check, ``look`` does not.
        kind: stable and short, such as ``nan`` or ``missing``.
        name: the tensor, or the key, as in the checkpoint.
        text: what was seen, such as ``12.50% NaN``.
        share: the share of values, 0 to 1, where that makes sense.
        first: the index of the first such value.
        advice: what it usually means and what to do.
        role: what the tensor is for.
    """

    severity: Severity
    kind: str
    name: str
    text: str
    share: float | None = None
    first: tuple[int, ...] | None = None
    advice: str = ""
    role: Role = "weights"

    @property
    def shown_name(self) -> str:
        """The name as a terminal can show it, whatever a stranger put into it."""
        return printable(self.name, _NAME_LENGTH) or "(no name)"

    def line(self) -> str:
        """``layers.0.feed_forward.w1.weight: 12.50% NaN``, for people."""
        return f"{self.shown_name}: {printable(self.text, _TEXT_LENGTH)}"

    def finding(self) -> Finding:
        """The symptom in the form of every check's result."""
        return Finding(
            name=self.name,
            value=self.text,
            limit=_ASKED.get(self.kind, "none"),
            verdict="failed" if self.severity == "sick" else "warning",
            advice=self.advice,
        )

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        return {
            "severity": self.severity,
            "kind": self.kind,
            "name": self.name,
            "role": self.role,
            "text": self.text,
            "share": self.share,
            "first": list(self.first) if self.first is not None else None,
            "advice": self.advice,
        }


_ASKED = {
    "nan": "finite",
    "inf": "finite",
    "complex": "real",
    "empty": "at least one value",
    "unreadable": "readable",
    "logit_scale": "<= ln 100 = 4.6052",
    "missing": "there",
    "unexpected": "known to the architecture",
    "misshaped": "the architecture's shape",
    "mistyped": "the architecture's dtype",
    "misplaced": "in the shard that the index names",
    "unwritable": "a plain dense tensor",
    "lost_imaginary": "complex, or two real tables",
    "rotation": "cos^2 + sin^2 = 1",
    "scaler": "> 0",
}


def share_text(count: int, total: int, what: str) -> str:
    """``12.50% NaN``; tiny shares keep their count: ``1 of 16,777,216 NaN``."""
    share = count / total if total else 0.0
    if share < 1e-4:
        return f"{count:,} of {total:,} {what}"
    # Rounded down at the top: 100.00% would say that none is left.
    return f"{min(share, 0.9999):.2%} {what}" if count < total else f"all {what}"


def symptoms(vitals: TensorVitals, *, allow_complex: bool = True) -> list[Symptom]:
    """What the values of one tensor show."""
    found: list[Symptom] = []
    size = math.prod(vitals.shape)  # not of what is stored: one Inf may be shown many times

    def add(severity: Severity, kind: str, text: str, **more: Any) -> None:
        found.append(
            Symptom(
                severity=severity,
                kind=kind,
                name=vitals.name,
                text=text,
                role=vitals.role,
                **more,
            )
        )

    if vitals.unreadable:
        advice = "its values could not be checked, so they are not vouched for"
        add("sick", "unreadable", vitals.unreadable, advice=advice)
    if vitals.nan:
        add(
            "sick",
            "nan",
            share_text(vitals.nan, vitals.numel, "NaN"),
            share=vitals.nan_share,
            first=vitals.first_nan,
            advice=_nonfinite_advice(vitals.role, size),
        )
    if vitals.inf:
        # A best score that was never beaten is stored as infinity by several trainers.
        severity: Severity = "look" if vitals.role == "other" and size == 1 else "sick"
        add(
            severity,
            "inf",
            share_text(vitals.inf, vitals.numel, "Inf"),
            share=vitals.inf_share,
            first=vitals.first_inf,
            advice=_nonfinite_advice(vitals.role, size),
        )
    if vitals.complex:
        _complex(vitals, add, allow_complex)
    if vitals.role in ("weights", "ema"):
        _oddities(vitals, add)
    return found


def _complex(vitals: TensorVitals, add: Any, allowed: bool) -> None:
    if not allowed:
        advice = (
            "NCCL refuses it and a cast to bf16 keeps its real part only: run brepfind sanitize"
        )
        add("sick", "complex", str(vitals.dtype).removeprefix("torch."), advice=advice)
    elif vitals.imaginary_zero and "cis" in vitals.name.rsplit(".", 1)[-1]:
        advice = "it went through a real dtype once; take the table from the original file"
        add("sick", "lost_imaginary", "complex, but every imaginary part is 0", advice=advice)
    else:
        advice = (
            "NCCL refuses complex tensors and a cast to bf16 keeps the real part only: "
            "brepfind sanitize makes two real tables of it"
        )
        kind = str(vitals.dtype).removeprefix("torch.")
        text = f"{kind}, imaginary parts all 0" if vitals.imaginary_zero else kind
        add("look", "complex", text, advice=advice)


def _oddities(vitals: TensorVitals, add: Any) -> None:
    numbers = vitals.dtype.is_floating_point
    if 0 in vitals.shape:
        # A table of no rows is somebody's; no layer has a weight that is a list of nothing.
        left = vitals.shape == (0,) and vitals.name.rsplit(".", 1)[-1] == "weight"
        advice = "ZeRO-3 and FSDP leave such behind where a weight was not gathered"
        add("sick" if left else "look", "empty", "holds no value", advice=advice)
    if vitals.constant and vitals.numel > 1:
        text = "all zero" if vitals.zero else "constant"
        add("look", "zero" if vitals.zero else "constant", text, share=1.0)
    # Position 0 of a rotary table is a row of ones, or of zeros, by its nature.
    if vitals.constant_rows and not ROTARY.search(vitals.name.rsplit(".", 1)[-1]):
        add(
            "look",
            "constant_rows",
            share_text(vitals.constant_rows, vitals.shape[0], "of the rows constant"),
            share=vitals.constant_rows / vitals.shape[0],
            first=(vitals.first_constant_row or 0,),
        )
    if vitals.far:
        add(
            "look",
            "far",
            f"up to {vitals.largest:.3g}, {vitals.far_factor:.0f} times what 90% stay below",
            share=vitals.far / vitals.numel,
            first=vitals.first_far,
            advice="flipped bits or a diverging weight look like this",
        )
    few = vitals.dtype is torch.float16 and vitals.denormal < _FEW_HALF_DENORMALS * vitals.numel
    if numbers and vitals.denormal and not few:
        add(
            "look",
            "denormal",
            share_text(vitals.denormal, vitals.numel, "denormal"),
            share=vitals.denormal / vitals.numel,
            first=vitals.first_denormal,
        )


def _nonfinite_advice(role: Role, numel: int = 1) -> str:
    if role == "other" and numel > 1:
        return "it lies outside the weights' own folder; if a model reads it, that model is lost"
    return {
        "weights": "the weights are lost; go back to the last checkpoint without NaN or Inf",
        "ema": "an average never recovers from one NaN; use the live weights and start it anew",
        "optimizer": "every resume from here gives NaN weights; resume without optimizer state",
        "scaler": "resume without the scaler's state",
        "other": "a comparison with NaN is always false, so it may have chosen the wrong best",
    }[role]


def number_symptom(number: Number) -> Symptom | None:
    """What a plain number beside the tensors shows: a dead loss scale, a NaN learning rate."""
    name, value = ".".join(number.path), number.value
    if is_loss_scale(number.path, number.role) and not (math.isfinite(value) and value > 0):
        return Symptom(
            severity="sick",
            kind="scaler",
            name=name,
            text=f"loss scale {value}",
            advice="the next good step would write NaN into the weights; resume without it",
            role="scaler",
        )
    if math.isnan(value):
        advice = _nonfinite_advice(number.role if number.role != "weights" else "other")
        return Symptom(
            severity="sick", kind="nan", name=name, text="is NaN", advice=advice, role=number.role
        )
    return None


def has_numbers(tensor: torch.Tensor) -> bool:
    """Whether its values are there, dense, and of a kind that torch computes with."""
    dense = tensor.layout is torch.strided and not tensor.is_meta
    return dense and tensor.dtype in _NUMBERS  # which no quantised dtype is


def is_logit_scale(name: str) -> bool:
    """Whether a key names the logarithm of a contrastive model's inverse temperature."""
    return name.rsplit(".", 1)[-1] in ("logit_scale", "log_logit_scale", "log_inv_temperature")


def logit_scale_symptom(
    name: str, tensor: torch.Tensor, role: Role, *, sigmoid: bool = False
) -> Symptom | None:
    """A logit scale out of range; NaN and Inf are told by the scan.

    Args:
        sigmoid: the loss is SigLIP's, which bears more than a softmax does.
    """
    if tensor.numel() != 1 or not tensor.is_floating_point() or not has_numbers(tensor):
        return None
    value = float(tensor.to(torch.float64).reshape(()))
    if not math.isfinite(value):
        return None
    rounding = MAX_LOGIT_SCALE * torch.finfo(tensor.dtype).eps
    if value <= MAX_LOGIT_SCALE + rounding:
        return None
    overflows = "the softmax overflows next; clamp it to ln 100 after each step"
    return Symptom(
        severity="look" if sigmoid else "sick",
        kind="logit_scale",
        name=name,
        text=f"{value:.4f} is above ln 100 = {MAX_LOGIT_SCALE:.4f}",
        advice="the logit_bias beside it says sigmoid loss, which bears this; a softmax does not"
        if sigmoid
        else overflows,
        role=role,
    )


def findings(vitals: Sequence[TensorVitals], *, allow_complex: bool = True) -> list[Finding]:
    """Every symptom of a scan in the form of every check's result, the failed ones first."""
    found = [
        symptom.finding()
        for one in vitals
        for symptom in symptoms(one, allow_complex=allow_complex)
    ]
    return sorted(found, key=lambda finding: finding.verdict != "failed")
