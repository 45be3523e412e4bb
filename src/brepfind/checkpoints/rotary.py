"""Rotary tables: complex ones, their two real halves, and ones that lost half of themselves.

``model.to(torch.bfloat16)`` turns a complex table into its cosine with one warning per process;
the sine is gone and no later cast brings it back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch

from brepfind.checkpoints.layout import Role
from brepfind.checkpoints.verdicts import ROTARY, Symptom, has_numbers

_ENOUGH = 1 << 19  # values; of a longer table, these tell enough
# What the halves of a rotation are called: each cosine with its sine.
_COSINES, _SINES = ("cosine", "cos", "real"), ("sine", "sin", "imag")


def rotary_symptoms(tensors: Mapping[str, torch.Tensor], role: Role = "weights") -> list[Symptom]:
    """What the rotary tables among some tensors show; tensors of one role, by name."""
    found = []
    for name, tensor in tensors.items():
        last = name.rsplit(".", 1)[-1]
        if not has_numbers(tensor) or not tensor.dim():
            continue
        if tensor.is_complex():
            if ROTARY.search(last) and tensor.dim() >= 2:
                parts = torch.view_as_real(_some(tensor).resolve_conj()).double()
                found.append(_turning(name, parts[..., 0], parts[..., 1], role))
            continue
        sine = _other_half(name, tensors, _COSINES, _SINES)
        cosine = _other_half(name, tensors, _SINES, _COSINES)
        # The module's name tells, too: rotary_emb.cos_cached. Not so of real and imaginary parts:
        # any weight of the module that once was complex has them.
        turns = ROTARY.search(name if "cos" in last else last)
        if turns and sine is not None and _fits(sine, tensor):
            found.append(_turning(name, _some(tensor).double(), _some(sine).double(), role))
        elif _lost(last, tensor) and sine is None and cosine is None:
            found.append(
                Symptom(
                    severity="sick" if ROTARY.search(last) else "look",
                    kind="lost_imaginary",
                    name=name,
                    text=f"a rotary table with its real part only ({_dtype(tensor)})",
                    advice="it was complex once and was cast to a real dtype; take the table from "
                    "the original file, or compute it anew",
                    role=role,
                )
            )
    return [symptom for symptom in found if symptom is not None]


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _some(tensor: torch.Tensor) -> torch.Tensor:
    """The first values along every dimension: a view may show more than memory holds."""
    left = _ENOUGH
    for dimension in reversed(range(tensor.dim())):
        size = tensor.shape[dimension]
        tensor = tensor.narrow(dimension, 0, min(size, left))
        left = max(1, left // max(1, size))
    return tensor


def _other_half(
    name: str, tensors: Mapping[str, torch.Tensor], mine: Sequence[str], others: Sequence[str]
) -> torch.Tensor | None:
    """The table beside ``freqs_cos`` that is called ``freqs_sin``, if there is one."""
    parent, dot, last = name.rpartition(".")
    for own, other in zip(mine, others, strict=True):
        if (
            own in last
            and (found := tensors.get(f"{parent}{dot}{last.replace(own, other)}")) is not None
        ):
            return found
    return None


def _fits(sine: torch.Tensor, cosine: torch.Tensor) -> bool:
    return sine.shape == cosine.shape and has_numbers(sine) and not sine.is_complex()


def _turning(name: str, cosine: torch.Tensor, sine: torch.Tensor, role: Role) -> Symptom | None:
    """A rotation has one length everywhere (1, or one factor that scales it)."""
    length = cosine.square() + sine.square()
    if not length.numel() or not torch.isfinite(length).all():
        return None  # the scan tells of NaN and Inf
    least, most = float(length.min()), float(length.max())
    if least > 0 and most <= 1.05 * least:
        return None
    return Symptom(
        severity="sick",
        kind="rotation",
        name=name,
        text=f"cos^2 + sin^2 runs from {least:.3g} to {most:.3g}: not a rotation",
        advice="one half of the table is damaged or belongs to another; take it from the original",
        role=role,
    )


def _lost(last: str, tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.dim() < 2 or not tensor.numel():
        return False
    if re.search(r"cis(_|$)", last):
        return tensor.shape[-1] != 2  # with 2 it holds both parts, as view_as_real gives them
    if tensor.dim() != 2 or tensor.shape[0] < 8 or tensor.element_size() < 2:
        return False
    head = tensor[:4, :_ENOUGH].double()
    if not (head[0] == 1).all() or (head[1] == 1).all() or head.abs().max() > 1.01:
        return False
    once = head[1]  # cos 2a = 2 cos^2 a - 1, and cos 3a = 4 cos^3 a - 3 cos a
    twice, thrice = 2 * once.square() - 1, 4 * once**3 - 3 * once
    off = max(float((head[2] - twice).abs().max()), float((head[3] - thrice).abs().max()))
    return off < (1e-3 if tensor.dtype in (torch.float32, torch.float64) else 0.05)
