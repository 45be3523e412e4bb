"""What a run counts and says as it goes: the sums of an epoch, the history, curve points.

It is part of the trainer's state, so that a resumed run forgets nothing. Every rank keeps the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

from brepfind.events import Events
from brepfind.findings import Finding, at_most, require
from brepfind.log import get_logger
from brepfind.metrics.guard import Tally, stuck_at_chance
from brepfind.training.batches import StepBatch
from brepfind.training.step import StepReport

log = get_logger(__name__)

# Every step's point up to here, then every tenth: a tracker takes long over each.
_DENSE_STEPS = 200
_SPARSE = 10
# How far below guessing an epoch's loss must be not to be called chance.
_CHANCE_MARGIN = 0.02
# A larger share of pairs without a negative says that the data repeats itself.
_MOST_ALONE = 0.1


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Attributes:

    history: a row per validation.
    sums: of the epoch under way; ``lr`` and ``gradient_norm`` are the last and the largest.
    pairs, alone: that went into the loss, and those of them without a negative; of the run.
    at_chance, at_chance_in_a_row: epochs whose loss was that of guessing; of the run, and up to
        the last one.
    without_step: epochs in which not one step was taken.
    closed: epochs that have been judged.
    """

    history: list[dict[str, float]] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    pairs: int = 0
    alone: int = 0
    at_chance: int = 0
    at_chance_in_a_row: int = 0
    without_step: int = 0
    closed: int = 0

    def as_plain(self) -> dict[str, Any]:
        """Plain data for the trainer's state."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def count(self, report: StepReport, batch: StepBatch) -> None:
        """Count a step; what was skipped has no part in the means."""
        self._add("seen", 1.0)
        self._add("chance", batch.chance)
        self.sums["lr"] = report.lr
        if report.verdict.action != "step":
            return
        self.pairs += len(batch.ids)
        self.alone += batch.alone
        self._add("taken", 1.0)
        self._add("loss", report.loss)
        # The largest: a mean would hide a spike.
        norm = max(self.sums.get("gradient_norm", 0.0), report.gradient_norm)
        self.sums["gradient_norm"] = norm

    def means(self, tally: Tally, scale: float) -> dict[str, float]:
        """The epoch under way as columns of the history. What there is no number for (a loss
        before the first step) has no column rather than one that is not a number.
        """
        sums = self.sums
        row: dict[str, float] = {}
        if sums.get("taken"):
            row |= {"loss": sums["loss"] / sums["taken"], "gradient_norm": sums["gradient_norm"]}
        if sums.get("seen"):
            row |= {"chance_loss": sums["chance"] / sums["seen"], "lr": sums["lr"]}
        return row | {
            "taken": sums.get("taken", 0.0),
            "skipped": float(tally.skips),
            "overflows": float(tally.overflows),
            "loss_scale": scale,
        }

    def close_epoch(self, epoch: int, events: Events, *, most_at_chance: int | None) -> None:
        """Judge an epoch that has been trained on; once, however often a resumed run asks.

        Args:
            epoch: its number, from 1.

        Raises:
            CheckFailed: if no pair had a negative, or the loss has been that of guessing for
                ``most_at_chance`` epochs in a row.
        """
        if epoch <= self.closed:
            return
        self.closed = epoch
        chance = self.sums["chance"] / self.sums["seen"]
        findings = [
            Finding(
                name="train.pairs_with_negatives",
                value=chance,
                limit="> 0",
                verdict="ok" if chance > 0 else "failed",
                advice="" if chance > 0 else "all parts are twins or all captions are the same",
            ),
            at_most(
                "train.pairs_without_negative",
                self.alone / max(1, self.pairs),
                _MOST_ALONE,
                advice="their loss is 0 whatever the model does: parts or captions repeat",
                otherwise="warning",
            ),
        ]
        if self.sums.get("taken"):
            stuck = stuck_at_chance(self.sums["loss"] / self.sums["taken"], chance, _CHANCE_MARGIN)
            self.at_chance_in_a_row = self.at_chance_in_a_row + 1 if stuck.verdict != "ok" else 0
            self.at_chance += stuck.verdict != "ok"
            findings.append(stuck)
        else:
            self.without_step += 1
            log.warning("epoch %d: not one step was taken", epoch)
        if most_at_chance is not None:
            findings.append(
                at_most(
                    "train.epochs_at_chance",
                    self.at_chance_in_a_row,
                    most_at_chance - 1,
                    advice="the loss is that of guessing, epoch after epoch",
                )
            )
        for finding in findings:
            if finding.verdict != "ok":
                log.warning("epoch %d: %s", epoch, finding.line())
                events.happened("finding", {"epoch": epoch, **finding.as_json()})
        require("train", findings)

    def _add(self, name: str, value: float) -> None:
        self.sums[name] = self.sums.get(name, 0.0) + value


def draw(events: Events, report: StepReport, tally: Tally, *, scaled: bool) -> None:
    """A step's points of the curves. A loss or norm that is not finite has none: its step was
    skipped, which is an event and a point of its own.
    """
    skipped = report.verdict.action == "skip"
    if report.step >= _DENSE_STEPS and report.step % _SPARSE and not skipped:
        return
    points = {
        "train/loss": report.loss,
        "train/gradient_norm": report.gradient_norm,
        "train/lr": report.lr,
        "train/skipped_steps": float(tally.skips),
        "train/overflows": float(tally.overflows),
    }
    if scaled:
        points["train/loss_scale"] = report.loss_scale
    for name, value in points.items():
        if math.isfinite(value):
            events.point(name, value, report.step)
