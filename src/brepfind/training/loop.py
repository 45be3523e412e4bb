"""The loop: epochs of guarded steps, validation, saving, and how a run ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from brepfind.distributed.group import Group
from brepfind.errors import CheckFailed, Interrupted
from brepfind.events import Events
from brepfind.files import write_json
from brepfind.findings import Finding, require
from brepfind.log import get_logger, progress
from brepfind.metrics.guard import Tally, judge_plan, scale_finding
from brepfind.models.dual import MAX_LOGIT_SCALE
from brepfind.training.batches import StepBatch, share_of
from brepfind.training.clock import Clock
from brepfind.training.dead import probe
from brepfind.training.evidence import explain, keep
from brepfind.training.job import Job
from brepfind.training.ledger import Ledger, draw
from brepfind.training.prepare import Prepared
from brepfind.training.provenance import WELL
from brepfind.training.reason import StepHalted
from brepfind.training.results import read_best, write_results, write_weights
from brepfind.training.resume import (
    StateFolder,
    code_digest,
    learning,
    optimizer_tensors,
    put_back,
    require_finite,
)
from brepfind.training.signals import StopFlag, ignore_in_worker
from brepfind.training.step import StepReport
from brepfind.training.validation import embed, judge

log = get_logger(__name__)


class Run:
    """One training run as one rank sees it.

    Attributes:
        epoch: passes finished. at: steps finished in the next one.
        best: the row of the history whose weights are the best so far; empty before there is one.
    """

    def __init__(
        self, job: Job, prepared: Prepared, group: Group, events: Events, stop: StopFlag
    ) -> None:
        self.job, self.config, self.group = job, job.train, group
        self.prepared, self.guarded = prepared, prepared.guarded
        self.events, self.stop = events, stop
        self.folder = StateFolder(Path(job.state), prepared.fingerprint)
        self.epoch, self.at = 0, 0
        self.ledger = Ledger()
        self.best: dict[str, float] = {}
        self.since_best = 0
        self.clock = Clock()
        self.other_code = False
        self.loader: torch.utils.data.DataLoader[StepBatch] | None = None

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
        if not self.ledger.history:
            self._validate()
        try:
            with progress("train", self.config.epochs * self.prepared.order.steps) as bar:
                bar.advance(self.step)
                while self.epoch < self.config.epochs and not self._patience_is_over():
                    self._epoch(bar.advance)
        finally:
            self._end_workers()
        self._finish()

    # Steps -----------------------------------------------------------------------------------

    def _epoch(self, advance: Callable[[], None]) -> None:
        steps = self.prepared.order.steps
        left = self.group.table([steps - self.at], "start of epoch")
        if self.at < steps:
            if problem := judge_plan([row[0] for row in left]):
                raise CheckFailed(problem)
            for batch in self._batches():
                self._one(batch)
                advance()
        self.ledger.close_epoch(
            self.epoch + 1, self.events, most_at_chance=self.config.max_epochs_at_chance
        )
        last = self.epoch + 1 == self.config.epochs
        due = last or (self.epoch + 1) % self.config.validation_every == 0
        self.guarded.average_statistics()
        if due:
            self._validate()
        self.epoch, self.at, self.ledger.sums = self.epoch + 1, 0, {}
        self._save()

    def _batches(self) -> Iterator[StepBatch]:
        """The rest of the epoch's batches, on the device."""
        if self.loader is None:
            workers = self.job.loader_workers
            self.loader = torch.utils.data.DataLoader(
                self.prepared.data,
                batch_size=None,
                sampler=_Steps(self),
                num_workers=workers,
                # Each takes seconds to start, so they live as long as the run.
                persistent_workers=workers > 0,
                multiprocessing_context="forkserver" if workers else None,
                worker_init_fn=ignore_in_worker,
                pin_memory=self.group.device.type == "cuda",
            )
        self.clock.skip()
        self.group.watch.beat("load batch")
        for batch in self.loader:
            moved = batch.to(self.group.device)
            self.clock.lap("load")
            yield moved
            self.clock.skip()
            self.group.watch.beat("load batch")

    def _end_workers(self) -> None:
        """Tell the loader's workers to end: they ignore the signals that would end them, and an
        exception on its way keeps the iterator, whose end would tell them, alive.
        """
        iterator = getattr(self.loader, "_iterator", None)  # torch has no public way
        if iterator is not None:
            iterator._shutdown_workers()
        self.loader = None

    def _one(self, batch: StepBatch) -> None:
        report = self.guarded.run(self.step, batch, stop=bool(self.stop))
        self.clock.skip()
        self.at += 1
        provenance = self._provenance(report, batch)
        self._account(report, batch, provenance)
        if report.verdict.action == "halt":
            raise StepHalted(*self._explain(report, batch, provenance))
        self.clock.lap("account")
        if self.step % self.config.scan_every == 0:
            require_finite("model", learning(self.prepared.dual))
            self.clock.lap("scan")
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
        self.clock.skip()
        self.group.watch.beat("explain")
        facts, everyone = explain(self.guarded, report.step, batch)
        of_ranks = self.group.gather(facts, "gather provenance")
        found = [rank for rank, said in enumerate(of_ranks) if said["sentence"] != WELL]
        ranks = list(report.bad_ranks) or found or list(range(self.group.world))
        if self.group.rank in ranks:
            folder = Path(self.job.postmortem)
            path = folder / f"step-rank{self.group.rank}.pt"
            keep(path, self.guarded, report.step, batch, everyone, facts)
        self.clock.lap("provenance")
        return {**of_ranks[ranks[0]], "ranks": ranks}

    def _account(self, report: StepReport, batch: StepBatch, provenance: dict[str, Any]) -> None:
        for name, seconds in report.seconds.items():
            self.clock.add(name, seconds)
        self.ledger.count(report, batch)
        if report.verdict.action == "skip":
            facts = self._facts(report, batch, provenance)
            if self.group.first:
                said = f"; {provenance['sentence']}" if provenance else ""
                log.warning("step %d skipped: %s%s", report.step, facts["reason"], said)
            self.events.happened("step_skipped", facts)
        draw(self.events, report, self.guarded.tally, scaled=self.guarded.scaler is not None)

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
        self.clock.skip()
        dual, items = self.prepared.dual, self.prepared.pool.validation
        embedded = embed(dual, self.prepared.pieces, items, self.group, self._told_to_stop)
        if embedded is None:
            self._interrupted()
        scale = float(dual.logit_scale.detach().exp())
        with self.group.watch.computing("judge validation"):
            judged = judge(
                embedded,
                items,
                scale=scale,
                min_std=self.config.min_embedding_std,
                min_distinct=self.config.min_distinct_rows,
            )
        self.group.barrier("validation judged")
        # All have the same rows; where machines differ in a last bit, the first one's word counts.
        numbers, findings = self.group.from_first(judged, "share validation")
        started = self.step > 0
        layers = self._probe(grids=not started)
        quiet = sum(finding.verdict == "warning" for finding in layers)
        numbers = {"layers_half_dead": float(quiet), **numbers}
        self.clock.lap("validation")
        require("train", layers)
        row = {"epoch": float(self.epoch + 1 if started else 0), "step": float(self.step)}
        row |= self.ledger.means(self.guarded.tally, self.guarded.scale)
        row |= {"logit_scale": scale} | numbers
        self.ledger.history.append(row)
        for name, value in numbers.items():
            self.events.point(f"validation/{name}", value, self.step)
        self.events.happened("epoch", row)
        loss = f"loss {row['loss']:.4f}, " if "loss" in row else ""
        log.info("epoch %d: %svalidation recall %.4f", row["epoch"], loss, numbers["recall"])
        if started:
            # Before the first step a tower may be flat by its initial weights; after, it is dead.
            limit = MAX_LOGIT_SCALE + 1e-6  # in float32 the clamp lies a little above
            findings.append(scale_finding(float(dual.logit_scale.detach()), limit))
            require("train", findings)
            if odd := not_finite(row):
                raise CheckFailed(f"validation: not finite: {', '.join(odd)}")
            self._keep_best(row)

    def _probe(self, *, grids: bool) -> list[Finding]:
        """Whether layers are dead: rank 0 looks, all have its findings."""
        findings: list[Finding] = []
        if self.group.first:
            self.group.watch.beat("probe layers")
            dual, pieces = self.prepared.dual, self.prepared.pieces
            items = self.prepared.pool.validation
            findings = probe(dual, pieces, items, self.group.device, grids=grids)
        return self.group.from_first(findings, "probe layers")

    def _told_to_stop(self) -> bool:
        self.guarded.faults.moment("validate", self.step)
        return bool(self.stop)

    def _keep_best(self, row: dict[str, float]) -> None:
        """Keep the weights if their recall is the best so far.

        They go into a file of their own, and the state that names it is written after it: a run
        that is ended between the two resumes from the older state, whose file is still there.
        """
        if row["recall"] > self.best.get("recall", -1.0):
            self.best, self.since_best = dict(row), 0
            if self.group.first:
                path = self.folder.best(row["step"])
                write_weights(path, self.config, self.prepared, row)
            self.guarded.faults.moment("best", self.step)
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
            if state is not None and state["best"]:
                read_best(self.folder.best(state["best"]["step"]), state["best"])
        state = self.group.from_first(state, "resume")
        if state is None:
            return
        put_back(self.prepared.dual, state["tensors"])
        self.guarded.optimizer.load_state_dict(state["optimizer"])
        if self.guarded.scaler is not None:
            self.guarded.scaler.load_state_dict(state["scaler"])
        self.guarded.tally = Tally.from_plain(state["tally"])
        self.ledger = Ledger(**state["ledger"])
        self.epoch, self.at = state["epoch"], state["at"]
        self.best, self.since_best = state["best"], state["since_best"]
        self.clock.seconds = state["seconds"]
        changed = state["code"] != code_digest()
        self.other_code = state["other_code"] or changed
        if changed and self.group.first:
            log.warning("resuming a run that other code, or another torch, began")
        facts = {"passed_over": self.folder.passed_over, "other_code": changed}
        self.events.happened("resumed", {"step": self.step, "epoch": self.epoch, **facts})

    def _save(self) -> None:
        """Write the state; the other ranks go on, and meet rank 0 at the next step."""
        if not self.group.first:
            return
        self.clock.skip()
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
            "ledger": self.ledger.as_plain(),
            "epoch": self.epoch,
            "at": self.at,
            "best": self.best,
            "since_best": self.since_best,
            "seconds": self.clock.seconds,
            "code": code_digest(),
            "other_code": self.other_code,
        }
        self.folder.save(self.step, state)
        self.clock.lap("save")

    def _interrupted(self) -> NoReturn:
        self._save()
        self.group.barrier("save before stopping")
        raise Interrupted(
            f"training was told to stop ({self.stop.reason or 'another rank was'}) and saved its "
            f"state after step {self.step}; run it again to go on"
        )

    def _finish(self) -> None:
        if not self.best:
            raise CheckFailed("training ended without a single checkpoint that was accepted")
        if self.group.first:
            self.clock.skip()
            out = Path(self.job.out)
            history = self.ledger.history
            write_weights(out / "last.safetensors", self.config, self.prepared, history[-1])
            write_results(
                out,
                history=history,
                numbers=self._numbers(),
                best=read_best(self.folder.best(self.best["step"]), self.best),
                optimizer=self.guarded.optimizer,
            )
            self.clock.lap("save")
            write_json(Path(self.job.cost), self._cost())
            self.folder.drop()
        self.group.barrier("write results")

    def _numbers(self) -> dict[str, Any]:
        """The run in numbers, the same for the same run; not finite is none of them."""
        ledger, order, tally = self.ledger, self.prepared.order, self.guarded.tally
        first, *_, last = ledger.history
        return {
            "epochs": self.epoch,
            "steps": self.step,
            "train_parts": len(self.prepared.pool.train),
            "validation_parts": len(self.prepared.pool.validation),
            "captions": len(self.prepared.pool.texts),
            "captions_truncated": self.prepared.truncated,
            "left_out": self.prepared.pool.left_out,
            "parts_sitting_out_an_epoch": order.sitting_out,
            "parts_never_trained_on": order.never_seen(self.epoch),
            "pairs": ledger.pairs,
            "pairs_without_negative": ledger.alone,
            "skipped_steps": tally.skips,
            "overflows": tally.overflows,
            "epochs_without_step": ledger.without_step,
            "epochs_at_chance": ledger.at_chance,
            "epochs_at_chance_at_the_end": ledger.at_chance_in_a_row,
            "resumed_under_other_code": int(self.other_code),
            "best": self.best,
            "last": last,
            # Before the first step a tower may be flat, and then there is no recall, for one.
            "not_finite_before_training": dict.fromkeys(not_finite(first), 1),
        }

    def _cost(self) -> dict[str, Any]:
        """What the run took, in all its processes: seconds by name, and shares of a step."""
        seconds = self.clock.seconds
        steps = {
            name: value
            for name, value in seconds.items()
            if name not in ("validation", "save", "provenance")
        }
        total = sum(steps.values())
        return {
            "pairs_per_second": self.ledger.pairs / total,
            "seconds_by_part": seconds,
            "share_of_a_step": {name: value / total for name, value in steps.items()},
        }


class _Steps(torch.utils.data.Sampler[tuple[int, int]]):
    """The steps that are left of the epoch a run is in when it is asked."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __iter__(self) -> Iterator[tuple[int, int]]:
        epoch, first, steps = self._run.epoch, self._run.at, self._run.prepared.order.steps
        return ((epoch, at) for at in range(first, steps))


def not_finite(row: dict[str, float]) -> list[str]:
    """The names of the numbers that are not finite."""
    return [name for name, value in row.items() if not math.isfinite(value)]
