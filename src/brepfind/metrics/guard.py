"""What the training guard decides, from plain facts; the acts are in training.

A step can go wrong in three ways, told apart because their cures differ:

- ``loss``: the loss (or an embedding's norm) is not a usable number on some rank, before backward.
- ``gradient``: the loss was finite but the gradient is not.
- ``overflow``: the same under a loss scaler in fp16, where it is how the scale finds its level.

A skipped step is never silent and never endless: limits turn skips into a halt.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from brepfind.findings import Finding, at_least, at_most

Cause = Literal["loss", "gradient", "overflow"]
Action = Literal["step", "skip", "halt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardLimits:
    """Attributes:

    nonfinite: ``halt`` at the first loss or gradient that is not finite, or ``skip`` it.
    max_skips_in_a_row: so many skipped steps in a row end the run.
    max_skip_rate: a larger share of skipped steps among the last ``skip_window`` ends it.
    min_loss_scale: a loss scale below it ends the run; at 0 a good batch would write NaN.
    max_overflows_in_a_row: so many overflows of fp16 in a row end the run.
    """

    nonfinite: Literal["halt", "skip"]
    max_skips_in_a_row: int
    max_skip_rate: float
    skip_window: int
    min_loss_scale: float
    max_overflows_in_a_row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What has happened so far; part of the trainer's state, so that a resume forgets nothing.

    Attributes:
        skips, overflows: since the start of the run.
        skips_in_a_row, overflows_in_a_row: up to the last step.
        recent: steps that were skipped and lie within the window.
    """

    skips: int = 0
    overflows: int = 0
    skips_in_a_row: int = 0
    overflows_in_a_row: int = 0
    recent: tuple[int, ...] = ()

    def as_plain(self) -> dict[str, Any]:
        """Plain data for the trainer's state."""
        return {
            "skips": self.skips,
            "overflows": self.overflows,
            "skips_in_a_row": self.skips_in_a_row,
            "overflows_in_a_row": self.overflows_in_a_row,
            "recent": list(self.recent),
        }

    @classmethod
    def from_plain(cls, value: dict[str, Any]) -> Tally:
        """The reverse of :meth:`as_plain`."""
        return cls(**{**value, "recent": tuple(value["recent"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What to do with a step, and why in words a person reads (empty for a good step)."""

    action: Action
    cause: Cause | None = None
    reason: str = ""


def cause_of(
    *, loss_finite: bool, gradient_finite: bool | None = None, scaled: bool = False
) -> Cause | None:
    """What went wrong with a step, if anything.

    Args:
        loss_finite: on all ranks.
        gradient_finite: of the norm over all parameters; None before backward.
        scaled: whether the loss was scaled for fp16.
    """
    if not loss_finite:
        return "loss"
    if gradient_finite is None or gradient_finite:
        return None
    return "overflow" if scaled else "gradient"


def judge(
    tally: Tally, cause: Cause | None, *, step: int, scale: float, limits: GuardLimits
) -> tuple[Tally, Verdict]:
    """Count a step and say what to do with it.

    Args:
        cause: what went wrong; None for a good step.
        step: number of the step, skipped ones included, from 0.
        scale: the loss scale that would hold after this step; 1 without a scaler.

    Returns:
        The tally with this step in it, and the verdict.
    """
    recent = tuple(old for old in tally.recent if old > step - limits.skip_window)
    if cause is None:
        tally = replace(tally, skips_in_a_row=0, overflows_in_a_row=0, recent=recent)
        if not scale >= limits.min_loss_scale:
            return tally, _halt(None, f"the loss scale is {scale:g}, below its floor")
        return tally, Verdict(action="step")
    if cause == "overflow":
        return _judge_overflow(replace(tally, recent=recent), scale, limits)
    recent = (*recent, step)
    tally = replace(
        tally,
        skips=tally.skips + 1,
        skips_in_a_row=tally.skips_in_a_row + 1,
        overflows_in_a_row=0,
        recent=recent,
    )
    if limits.nonfinite == "halt":
        return tally, _halt(cause, f"the {cause} is not finite")
    if tally.skips_in_a_row >= limits.max_skips_in_a_row:
        return tally, _halt(
            cause, f"the {cause} is not finite for the {tally.skips_in_a_row}. step in a row"
        )
    if len(recent) > limits.max_skip_rate * limits.skip_window:
        return tally, _halt(
            cause,
            f"the {cause} is not finite and {len(recent)} of the last {limits.skip_window} steps "
            f"were skipped, more than a share of {limits.max_skip_rate:g}",
        )
    return tally, Verdict(action="skip", cause=cause, reason=f"the {cause} is not finite")


def _judge_overflow(tally: Tally, scale: float, limits: GuardLimits) -> tuple[Tally, Verdict]:
    tally = replace(
        tally, overflows=tally.overflows + 1, overflows_in_a_row=tally.overflows_in_a_row + 1
    )
    if not scale >= limits.min_loss_scale:
        return tally, _halt(
            "overflow", f"the fp16 gradient overflows and the loss scale fell to {scale:g}"
        )
    if tally.overflows_in_a_row >= limits.max_overflows_in_a_row:
        return tally, _halt(
            "overflow", f"the fp16 gradient overflows for the {tally.overflows_in_a_row}. time"
        )
    return tally, Verdict(
        action="skip", cause="overflow", reason="the fp16 gradient overflows at this loss scale"
    )


def _halt(cause: Cause | None, reason: str) -> Verdict:
    return Verdict(action="halt", cause=cause, reason=reason)


def out_of_step(rows: list[list[int]]) -> str | None:
    """Why the ranks may not go on together, from each rank's (step, digest of the batch order).

    Without this, ranks that skipped different batches would add gradients of different steps.
    """
    if all(row == rows[0] for row in rows):
        return None
    seen = ", ".join(f"rank {rank} is at step {row[0]}" for rank, row in enumerate(rows))
    if all(row[0] == rows[0][0] for row in rows):
        seen = f"all are at step {rows[0][0]} but with another order of batches"
    return f"the ranks are out of step: {seen}"


def judge_plan(steps_per_rank: list[int]) -> str | None:
    """Why an epoch may not start, from the number of steps each rank would do."""
    if min(steps_per_rank) < 1:
        return "a rank has no batch at all; lower train.batch_size or add parts"
    if len(set(steps_per_rank)) > 1:
        return f"the ranks would do unequal numbers of steps: {steps_per_rank}"
    return None


def tower_findings(
    tower: str, *, std: float, distinct: float, min_std: float, min_distinct: float
) -> list[Finding]:
    """Whether a tower is dead or collapsed, from its validation embeddings.

    Args:
        std: mean standard deviation of the unit rows' columns times the root of their number:
            about 1 for healthy rows, 0 for equal ones.
        distinct: distinct embeddings over distinct inputs.
    """
    advice = f"the {tower} tower gives the same embedding to different inputs"
    return [
        at_least(f"train.{tower}.embedding_std", std, min_std, advice=advice),
        at_least(f"train.{tower}.distinct_rows", distinct, min_distinct, advice=advice),
    ]


def stuck_at_chance(loss: float, chance: float, margin: float) -> Finding:
    """A warning where the loss stays at that of guessing: nothing is told apart.

    Args:
        loss: mean over an epoch.
        chance: the loss of equal embeddings, ln(batch) where all other pairs are negatives.
        margin: how far below it the loss must be.
    """
    return at_least(
        "train.loss_below_chance",
        chance - loss,
        margin,
        advice=f"the loss is that of guessing, {chance:.4g}: the towers tell nothing apart",
        otherwise="warning",
    )


def scale_finding(logit_scale: float, largest: float) -> Finding:
    """Whether the logit scale (its log) is finite and within its clamp."""
    return at_most("train.logit_scale", logit_scale, largest, advice="clamp it after each step")
