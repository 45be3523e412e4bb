"""The loop: epochs of guarded steps, validation, saving, and how a run ends."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from brepfind.checkpoints.state import save_state
from brepfind.checkpoints.weights import save_weights
from brepfind.distributed.group import Group
from brepfind.errors import CheckFailed, Interrupted
from brepfind.events import Events
from brepfind.files import atomic_path, write_json, write_text
from brepfind.findings import require
from brepfind.log import get_logger, progress
from brepfind.metrics.guard import Tally, judge_plan, stuck_at_chance
from brepfind.training.batches import StepBatch, share_of
from brepfind.training.build import metadata
from brepfind.training.evidence import explain, keep
from brepfind.training.job import Job
from brepfind.training.prepare import Prepared
from brepfind.training.provenance import WELL
from brepfind.training.reason import StepHalted
from brepfind.training.resume import (
    StateFolder,
    learning,
    optimizer_tensors,
    put_back,
    require_finite,
)
from brepfind.training.signals import StopFlag, ignore_in_worker
from brepfind.training.step import StepReport
from brepfind.training.validation import embed, judge

log = get_logger(__name__)

# Every step's point up to here, then every tenth: a tracker takes long over each.
_DENSE_STEPS = 200
_SPARSE = 10
# How far under ln(batch) the loss must be at the end not to be called chance.
_CHANCE_MARGIN = 0.02


class Run:
    """One training run as one rank sees it.

    Attributes:
        epoch: passes finished. at: steps finished in the next one.
        history: a row per validation.
    """

    def __init__(
        self, job: Job, prepared: Prepared, group: Group, events: Events, stop: StopFlag
    ) -> None:
        self.job, self.config, self.group = job, job.train, group
        self.prepared, self.guarded = prepared, prepared.guarded
        self.events, self.stop = events, stop
        self.folder = StateFolder(Path(job.state), prepared.fingerprint)
        self.epoch, self.at = 0, 0
        self.history: list[dict[str, float]] = []
        self.best: dict[str, float] = {}
        self.since_best = 0
        self.sums: dict[str, float] = {}
        self.cost: dict[str, float] = {}

    @property
    def step(self) -> int:
        """Steps seen, skipped ones included."""
        return self.epoch * self.prepared.order.steps + self.at

    def fit(self) -> None:
        """Train to the end, write the results, and drop the state.

        Raises:
            CheckFailed: if the guard or a validation ends the run; nothing good is overwritten.
            Interrupted: if any rank was asked to stop; the state was saved.
        """
        self._resume()
        if not self.history:
            self._validate()
        with progress("train", self.config.epochs * self.prepared.order.steps) as bar:
            bar.advance(self.step)
            while self.epoch < self.config.epochs and not self._patience_is_over():
                self._epoch(bar.advance)
        self._finish()

    # Steps -----------------------------------------------------------------------------------

    def _epoch(self, advance: Any) -> None:
        steps = self.prepared.order.steps
        left = self.group.table([steps - self.at, steps], "start of epoch")
        if self.at < steps:
            if problem := judge_plan([row[0] for row in left]):
                raise CheckFailed(problem)
            for batch in self._batches():
                self._one(batch)
                advance()
        last = self.epoch + 1 == self.config.epochs
        due = last or (self.epoch + 1) % self.config.validation_every == 0
        self.guarded.average_statistics()
        if due:
            self._validate()
        self.epoch, self.at, self.sums = self.epoch + 1, 0, {}
        self._save()

    def _batches(self) -> Iterator[StepBatch]:
        device = self.group.device
        loader = torch.utils.data.DataLoader(
            self.prepared.data,
            batch_size=None,
            sampler=[(self.epoch, at) for at in range(self.at, self.prepared.order.steps)],
            num_workers=self.job.loader_workers,
            multiprocessing_context="forkserver" if self.job.loader_workers else None,
            worker_init_fn=ignore_in_worker,
            pin_memory=device.type == "cuda",
        )
        iterator = iter(loader)
        while True:
            began = time.perf_counter()
            self.group.watch.beat("load batch")
            batch = next(iterator, None)
            if batch is None:
                return
            batch = batch.to(device)
            self._spend("load", time.perf_counter() - began)
            yield batch

    def _one(self, batch: StepBatch) -> None:
        step = self.step
        began = time.perf_counter()
        report = self.guarded.run(step, batch, stop=bool(self.stop))
        self._spend("steps", time.perf_counter() - began)
        self.at += 1
        provenance = self._provenance(report, batch)
        self._account(report, batch, provenance)
        if report.verdict.action == "halt":
            raise StepHalted(*self._explain(report, batch, provenance))
        if self.step % self.config.scan_every == 0:
            began = time.perf_counter()
            require_finite("model", learning(self.prepared.dual))
            self._spend("scan", time.perf_counter() - began)
        if report.stop:
            self._interrupted()
        if self.step % self.job.save_every == 0 and self.at < self.prepared.order.steps:
            self._save()

    def _provenance(self, report: StepReport, batch: StepBatch) -> dict[str, Any]:
        """Run the first bad step again and keep it; every rank takes part, as the verdict is
        everyone's. An overflow while the scale settles needs no explanation.
        """
        verdict, tally = report.verdict, self.guarded.tally
        first = tally.skips == 1 and verdict.cause in ("loss", "gradient")
        if verdict.cause is None or not (verdict.action == "halt" or first):
            return {}
        self.group.watch.beat("explain")
        facts, everyone = explain(self.guarded, report.step, batch)
        of_ranks = self.group.gather(facts, "gather provenance")
        found = [rank for rank, said in enumerate(of_ranks) if said["sentence"] != WELL]
        ranks = list(report.bad_ranks) or found or list(range(self.group.world))
        if self.group.rank in ranks:
            folder = Path(self.job.postmortem)
            path = folder / f"step-rank{self.group.rank}.pt"
            keep(path, self.guarded, report.step, batch, everyone, facts)
        return {**of_ranks[ranks[0]], "ranks": ranks}

    def _account(self, report: StepReport, batch: StepBatch, provenance: dict[str, Any]) -> None:
        for name, seconds in report.seconds.items():
            self._spend(name, seconds)
        if report.verdict.action == "step":
            for name, value in (("steps", 1.0), ("loss", report.loss)):
                self.sums[name] = self.sums.get(name, 0.0) + value
            self.sums["gradient_norm"] = max(
                self.sums.get("gradient_norm", 0.0), report.gradient_norm
            )
        tally = self.guarded.tally
        if report.verdict.action == "skip":
            facts = self._facts(report, batch, provenance)
            if self.group.first:
                said = f"; {provenance['sentence']}" if provenance else ""
                log.warning("step %d skipped: %s%s", report.step, facts["reason"], said)
            self.events.happened("step_skipped", facts)
            self.events.point("train/skipped_steps", tally.skips, report.step)
            self.events.point("train/overflows", tally.overflows, report.step)
        if report.step < _DENSE_STEPS or report.step % _SPARSE == 0:
            if math.isfinite(report.loss):
                self.events.point("train/loss", report.loss, report.step)
            if math.isfinite(report.gradient_norm):
                self.events.point("train/gradient_norm", report.gradient_norm, report.step)
            self.events.point("train/lr", report.lr, report.step)
            self.events.point("train/skipped_steps", tally.skips, report.step)
            if self.guarded.scaler is not None:
                self.events.point("train/loss_scale", report.loss_scale, report.step)

    def _facts(
        self, report: StepReport, batch: StepBatch, provenance: dict[str, Any]
    ) -> dict[str, Any]:
        ranks = provenance.get("ranks") or report.bad_ranks or range(self.group.world)
        mine = [share_of(np.arange(len(batch.ids)), rank, self.group.world) for rank in ranks]
        return {
            "step": report.step,
            "epoch": self.epoch,
            "cause": report.verdict.cause,
            "reason": report.verdict.reason,
            "rank": ranks[0],
            "ranks": list(ranks),
            "part_ids": [batch.ids[number] for numbers in mine for number in numbers],
            "loss": report.loss,
            "gradient_norm": report.gradient_norm,
            "loss_scale": report.loss_scale,
            "lr": report.lr,
            "skipped": self.guarded.tally.skips,
            "overflows": self.guarded.tally.overflows,
            "provenance": provenance,
        }

    def _explain(
        self, report: StepReport, batch: StepBatch, provenance: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        facts = self._facts(report, batch, provenance)
        ids = facts["part_ids"]
        shown = ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")
        ranks = ", ".join(map(str, facts["ranks"]))
        summary = (
            f"training stopped at step {report.step} (epoch {self.epoch + 1}): "
            f"{report.verdict.reason}; rank {ranks}, parts {shown}"
            + (f"; {provenance['sentence']}" if provenance else "")
        )
        return summary, facts

    # Validation ------------------------------------------------------------------------------

    def _validate(self) -> None:
        began = time.perf_counter()
        items = self.prepared.pool.validation
        embedded = embed(self.prepared.dual, self.prepared.pieces, items, self.group, self.stop)
        if embedded is None:
            self._interrupted()
        scale = float(self.prepared.dual.logit_scale.detach().exp())
        numbers, findings = judge(
            embedded,
            items,
            scale=scale,
            min_std=self.config.min_embedding_std,
            min_distinct=self.config.min_distinct_rows,
        )
        numbers = self.group.from_first(numbers, "share validation")
        self._spend("validation", time.perf_counter() - began)
        started = self.step > 0
        row = {"epoch": float(self.epoch + 1 if started else 0), "step": float(self.step)}
        row |= self._epoch_means()
        row |= {"logit_scale": scale} | numbers
        self.history.append(row)
        for name, value in numbers.items():
            if math.isfinite(value):
                self.events.point(f"validation/{name}", value, self.step)
        self.events.happened("epoch", row)
        log.info(
            "epoch %d: loss %.4f, validation recall %.4f",
            int(row["epoch"]),
            row.get("loss", math.nan),
            numbers["recall"],
        )
        if started:
            # Before the first step a tower may be flat by its initial weights; after, it is dead.
            require("train", findings)
            self._keep_best(row)

    def _epoch_means(self) -> dict[str, float]:
        steps = self.sums.get("steps", 0.0)
        if not steps:
            return {"loss": math.nan, "gradient_norm": math.nan, **self._counts()}
        return {
            "loss": self.sums["loss"] / steps,
            "gradient_norm": self.sums["gradient_norm"],
            **self._counts(),
        }

    def _counts(self) -> dict[str, float]:
        tally = self.guarded.tally
        return {
            "skipped": float(tally.skips),
            "overflows": float(tally.overflows),
            "loss_scale": self.guarded.scale,
        }

    def _keep_best(self, row: dict[str, float]) -> None:
        """Keep the weights if their recall is the best so far; NaN never is."""
        if row["recall"] > self.best.get("recall", -1.0):
            self.best, self.since_best = dict(row), 0
            if self.group.first:
                self._write_weights(self.folder.folder / "best.safetensors", row)
            self.group.barrier("write best weights")
        else:
            self.since_best += 1

    def _patience_is_over(self) -> bool:
        patience = self.config.patience
        return patience is not None and self.since_best >= patience

    # Saving and ending -----------------------------------------------------------------------

    def _resume(self) -> None:
        state: dict[str, Any] | None = None
        if self.group.first:
            self.folder.begin()
            state = self.folder.load()
        state = self.group.from_first(state, "resume")
        if state is None:
            return
        put_back(self.prepared.dual, state["tensors"])
        self.guarded.optimizer.load_state_dict(state["optimizer"])
        if self.guarded.scaler is not None:
            self.guarded.scaler.load_state_dict(state["scaler"])
        self.guarded.tally = Tally.from_plain(state["tally"])
        self.epoch, self.at = state["epoch"], state["at"]
        self.history, self.best = state["history"], state["best"]
        self.since_best, self.sums = state["since_best"], state["sums"]
        self.events.happened("resumed", {"step": self.step, "epoch": self.epoch})

    def _save(self) -> None:
        """Write the state; the other ranks go on, and meet rank 0 at the next step."""
        if not self.group.first:
            return
        began = time.perf_counter()
        self.group.watch.beat("save")
        optimizer = self.guarded.optimizer
        require_finite("optimizer", optimizer_tensors(optimizer))
        tensors = learning(self.prepared.dual)
        require_finite("model", tensors)
        scaler = self.guarded.scaler
        state = {
            "tensors": {name: tensor.cpu() for name, tensor in tensors.items()},
            "optimizer": optimizer.state_dict(),
            "scaler": scaler.state_dict() if scaler is not None else {},
            "tally": self.guarded.tally.as_plain(),
            "epoch": self.epoch,
            "at": self.at,
            "history": self.history,
            "best": self.best,
            "since_best": self.since_best,
            "sums": self.sums,
        }
        self.folder.save(self.step, state)
        self._spend("save", time.perf_counter() - began)

    def _interrupted(self) -> NoReturn:
        self._save()
        self.group.barrier("save before stopping")
        raise Interrupted(
            f"training was told to stop ({self.stop.reason or 'another rank was'}) and saved its "
            f"state after step {self.step}; run it again to go on"
        )

    def _write_weights(self, path: Path, row: dict[str, float]) -> None:
        dual = self.prepared.dual
        tensors = {name: t.detach().cpu().contiguous() for name, t in dual.state_dict().items()}
        facts = {
            "epoch": int(row["epoch"]),
            "step": int(row["step"]),
            "recall": row["recall"],
            "held_out_loss": row["held_out_loss"],
            "fingerprint": self.prepared.fingerprint,
        }
        save_weights(path, tensors, metadata(self.config, dual, **facts))

    def _finish(self) -> None:
        if not self.best:
            raise CheckFailed("training ended without a single validation that gave a recall")
        if self.group.first:
            out = Path(self.job.out)
            self._write_weights(out / "last.safetensors", self.history[-1])
            for name in ("best.safetensors", "best.safetensors.sha256"):
                source = self.folder.folder / name
                if source.exists():
                    with atomic_path(out / name) as aside:
                        aside.write_bytes(source.read_bytes())
            # The health gate looks at the optimizer's moments too; the resumable state goes.
            save_state(out / "optimizer.pt", {"optimizer": self.guarded.optimizer.state_dict()})
            write_text(out / "history.csv", _csv(self.history))
            write_json(out / "train.json", self._numbers())
            write_json(out / "cost.json", self.cost)
            self.folder.drop()
        self.group.barrier("write results")

    def _numbers(self) -> dict[str, Any]:
        last = self.history[-1]
        chance = stuck_at_chance(last["loss"], self.config.batch_size, _CHANCE_MARGIN)
        if chance.verdict != "ok":
            log.warning("%s", chance.line())
        numbers: dict[str, Any] = {
            "epochs": self.epoch,
            "steps": self.step,
            "train_parts": len(self.prepared.pool.train),
            "validation_parts": len(self.prepared.pool.validation),
            "captions": len(self.prepared.pool.texts),
            "captions_truncated": self.prepared.truncated,
            "skipped_steps": self.guarded.tally.skips,
            "overflows": self.guarded.tally.overflows,
            "left_out": self.prepared.pool.left_out,
            "chance_loss": math.log(self.config.batch_size),
            "best": self.best,
            "last": last,
        }
        return {
            name: {k: v for k, v in value.items() if math.isfinite(v)}
            if isinstance(value, dict)
            else value
            for name, value in numbers.items()
        }

    def _spend(self, name: str, seconds: float) -> None:
        self.cost[name] = self.cost.get(name, 0.0) + seconds


def _csv(rows: list[dict[str, float]]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        # What is not a number is an empty cell: plots read nan as text.
        writer.writerow(
            {name: f"{value:.10g}" for name, value in row.items() if math.isfinite(value)}
        )
    return buffer.getvalue()
