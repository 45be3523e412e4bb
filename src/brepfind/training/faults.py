"""Faults that tests put into a run through the environment; params.yaml cannot.

``BREPFIND_TEST_NAN_LOSS_AT_STEP=k`` makes the loss of step k NaN on every rank.
``BREPFIND_TEST_FAULT=kind@step`` or ``kind@step@rank`` puts in one of:

- ``nan_loss``, ``inf_gradient``, ``nan_weight``, ``nan_statistic``: a number goes bad;
- ``sleep``, ``die``, ``raise``, ``bug``, ``skip``: the rank sleeps, ends without a word, raises
  in its loader (as for a bad input, or as for a bug), or leaves a step out;
- ``sigterm``, ``sigkill``, ``sigint``: it is told, or made, to end; ``sigterm_validate`` in the
  validation after that many steps, ``sigkill_best`` when that validation's weights are written but
  not yet the state that names them.
"""

from __future__ import annotations

import math
import os
import signal
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from brepfind.errors import InputError

KINDS = (
    "nan_loss",
    "inf_gradient",
    "nan_weight",
    "nan_statistic",
    "sleep",
    "die",
    "raise",
    "bug",
    "skip",
    "sigterm",
    "sigint",
    "sigkill",
    "sigterm_validate",
    "sigkill_best",
)
_SLEEP_S = 600.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: what, at which step, on which rank (None for all)."""

    kind: str
    step: int
    rank: int | None = None


class Faults:
    """The faults of this run; none, outside tests."""

    def __init__(self, faults: tuple[Fault, ...], rank: int) -> None:
        self._faults = tuple(fault for fault in faults if fault.rank in (None, rank))

    @classmethod
    def from_environment(cls, rank: int) -> Faults:
        """Read the two variables.

        Raises:
            InputError: if the second is not of the form above.
        """
        faults = []
        if at := os.environ.get("BREPFIND_TEST_NAN_LOSS_AT_STEP"):
            faults.append(Fault("nan_loss", int(at)))
        for text in filter(None, os.environ.get("BREPFIND_TEST_FAULT", "").split(",")):
            kind, *where = text.split("@")
            if kind not in KINDS or not 1 <= len(where) <= 2:
                raise InputError(f"BREPFIND_TEST_FAULT: {text!r} is no kind@step or kind@step@rank")
            faults.append(Fault(kind, *map(int, where)))
        return cls(tuple(faults), rank)

    def has(self, kind: str, step: int) -> bool:
        """Whether this fault is due on this rank."""
        return any(fault.kind == kind and fault.step == step for fault in self._faults)

    def before(self, step: int, module: nn.Module) -> None:
        """Faults that happen before a step's forward pass."""
        if not self._faults:
            return
        if self.has("sleep", step):
            time.sleep(_SLEEP_S)
        if self.has("die", step):
            os._exit(7)
        for kind, number in (
            ("sigterm", signal.SIGTERM),
            ("sigint", signal.SIGINT),
            ("sigkill", signal.SIGKILL),
        ):
            if self.has(kind, step):
                os.kill(os.getpid(), number)
        if self.has("nan_weight", step):
            weight = next(p for p in module.parameters() if p.requires_grad and p.dim() > 1)
            weight.data.view(-1)[0] = math.nan
        if self.has("nan_statistic", step):
            means = [b for name, b in module.named_buffers() if name.endswith("running_mean")]
            means[-1].view(-1)[0] = math.nan  # the first are those of CNNs that may be frozen

    def moment(self, name: str, step: int) -> None:
        """Faults of a moment outside the steps: ``validate`` or ``best``."""
        for signal_name in ("sigterm", "sigkill"):
            if self.has(f"{signal_name}_{name}", step):
                os.kill(os.getpid(), getattr(signal, signal_name.upper()))

    def loading(self, step: int) -> None:
        """Faults of the loader."""
        if self.has("raise", step):
            raise InputError(f"a fault put in by a test: the loader fails at step {step}")
        if self.has("bug", step):
            raise AssertionError(f"a fault put in by a test at step {step}")

    def loss(self, loss: Tensor, step: int) -> Tensor:
        """The loss; or one gone bad; or one that is well but whose gradient is infinite."""
        if self.has("nan_loss", step):
            return loss * math.nan
        if self.has("inf_gradient", step):
            bad: Tensor = _InfiniteGradient.apply(loss)
            return bad
        return loss


class _InfiniteGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor) -> Tensor:
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * math.inf
