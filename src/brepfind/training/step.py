"""The guarded step: nothing that is not finite gets into the weights, on any rank.

The order is: forward; all ranks agree whether it is finite (one small collective, which also
compares the step's number and carries a wish to stop); backward; unscale; the gradient's norm is
checked; step; the scale is updated where unscale ran. Verdicts are pure (``metrics/guard``); the
acts are here.

Dropout's random state is set at every forward pass from the seed, the step, the rank and the
micro-batch. So a step can be run again (accumulation, a post-mortem, a resume) with the same bits.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from brepfind.distributed.group import Group, assert_no_complex
from brepfind.errors import CheckFailed
from brepfind.metrics.guard import (
    Cause,
    Tally,
    Verdict,
    cause_of,
    judge,
    out_of_step,
)
from brepfind.training.batches import Micro, StepBatch
from brepfind.training.clock import Clock
from brepfind.training.config import TrainConfig
from brepfind.training.faults import Faults
from brepfind.training.loss import contrastive_loss
from brepfind.training.schedule import lr_share
from brepfind.training.statistics import LiveStatistics

# torch 2.13 renamed the argument that keeps DDP from sending rank 0's buffers in every step.
_KEEP_BUFFERS: dict[str, Any] = {
    "forward_sync_buffers"
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    else "broadcast_buffers": False
}
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What a step did.

    Attributes:
        loss: mean over the ranks; may be NaN where the verdict is not to step.
        gradient_norm: before clipping; NaN if backward did not run.
        lr: of the encoder and the heads.
        loss_scale: after the step; 1 without a scaler.
        bad_ranks: ranks whose own loss or features were not finite.
        stop: a rank asks to stop after this step.
        seconds: where the time went: ``forward``, ``gather`` (features of all ranks), ``loss``,
            ``backward`` (the ranks' averaging and, with micro-batches, their second pass in it),
            ``clip``, ``optimizer``, ``guard`` (its own looks and verdicts) and ``agree`` (until
            all ranks have said whether they are well, the wait for the slowest in it).
    """

    step: int
    loss: float
    gradient_norm: float
    lr: float
    loss_scale: float
    verdict: Verdict
    bad_ranks: tuple[int, ...]
    stop: bool
    seconds: dict[str, float]


class GuardedStep:
    """Runs steps on one rank; every rank runs the same ones.

    Args:
        module: what a pair passes through: called with a :class:`Micro` it returns part rows
            (b, D), text rows (b, D), not normalised, and what multiplies the logits (a scalar).
            All its learning parameters take part in every call. It may have ``after_step()``.
        optimizer: its parameter groups carry ``base_lr``.
        total_steps: of the whole run; the schedule ends there.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        group: Group,
        config: TrainConfig,
        total_steps: int,
        faults: Faults | None = None,
    ) -> None:
        assert_no_complex(module, "the model")
        self.module, self.optimizer, self.group, self.config = module, optimizer, group, config
        self.total_steps = total_steps
        self.limits = config.limits()
        self.tally = Tally()
        self.faults = faults or Faults((), group.rank)
        self.scaler: torch.amp.GradScaler | None = None
        if config.precision == "fp16":
            self.scaler = torch.amp.GradScaler(
                group.device.type, init_scale=config.initial_loss_scale
            )
        self.ddp: nn.Module = module
        if group.world > 1:
            self.ddp = DistributedDataParallel(
                module,
                **_KEEP_BUFFERS,  # they are frozen, or averaged before a validation
                gradient_as_bucket_view=True,
                static_graph=config.static_graph,
            )
        self._params = [p for p in module.parameters() if p.requires_grad]
        self._statistics = LiveStatistics(module)

    def run(self, step: int, batch: StepBatch, *, stop: bool = False) -> StepReport:
        """One step, taken or skipped or judged to end the run; the caller acts on ``halt``.

        Args:
            step: its number, skipped ones included, from 0; the same on all ranks.
            stop: this rank was asked to stop.

        Raises:
            CheckFailed: if the ranks are not at the same step of the same order.
        """
        clock = Clock()
        lr = self._set_lr(step)
        self.faults.before(step, self.module)
        self._statistics.remember()
        self.group.watch.beat("forward")
        clock.lap("guard")
        parts, texts, scale = self._forward(step, batch)
        clock.lap("forward")
        loss = self._loss(step, batch, parts, texts, scale, clock)
        healthy = self._healthy(step, parts, texts, scale)
        clock.lap("guard")
        rows = self._agree(step, batch, loss, healthy, stop)
        clock.lap("agree")
        losses = [_float_of(row[3]) for row in rows]
        bad = tuple(rank for rank, row in enumerate(rows) if not row[2])
        norm = math.nan
        cause = cause_of(loss_finite=not bad)
        if cause is None:
            self.group.watch.beat("backward", waits=self.group.world > 1)
            self._backward(step, batch, loss, parts, texts, scale)
            self.group.watch.beat("step")
            clock.lap("backward")
            norm, cause = self._check_gradient()
            clock.lap("clip")
        verdict = self._finish(step, cause, clock)
        return StepReport(
            step=step,
            loss=sum(losses) / len(losses),
            gradient_norm=norm,
            lr=lr,
            loss_scale=self.scale,
            verdict=verdict,
            bad_ranks=bad,
            stop=any(row[4] for row in rows),
            seconds=clock.seconds,
        )

    @property
    def scale(self) -> float:
        """The loss scale; 1 without a scaler."""
        return float(self.scaler.get_scale()) if self.scaler is not None else 1.0

    def average_statistics(self) -> None:
        """Make BatchNorm statistics that live the same on all ranks; before a validation."""
        self._statistics.average(self.group)

    @contextlib.contextmanager
    def statistics_kept(self) -> Iterator[None]:
        """Forward passes in the block leave BatchNorm statistics as they were."""
        kept = LiveStatistics(self.module)
        kept.remember()
        try:
            yield
        finally:
            kept.restore()

    # Forward ---------------------------------------------------------------------------------

    def _set_lr(self, step: int) -> float:
        share = lr_share(
            step,
            warmup=self.config.warmup_steps,
            total=self.total_steps,
            schedule=self.config.schedule,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = group["base_lr"] * share
        return self.config.lr * share

    def embed(self, module: nn.Module, step: int, number: int, micro: Micro) -> tuple[Tensor, ...]:
        """One micro-batch through the towers, with the random state that belongs to it."""
        torch.manual_seed(_mix(self.config.seed, step, self.group.rank, number))
        precision = self.config.precision
        with torch.autocast(
            self.group.device.type, dtype=_DTYPES.get(precision), enabled=precision != "fp32"
        ):
            rows: tuple[Tensor, ...] = module(micro)
        return rows

    def _forward(self, step: int, batch: StepBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of all this rank's pairs; with several micro-batches they carry no graph."""
        if len(batch.micros) == 1:
            parts, texts, scale = self.embed(self.ddp, step, 0, batch.micros[0])
            return parts, texts, scale
        with torch.no_grad():
            rows = [self.embed(self.module, step, n, m) for n, m in enumerate(batch.micros)]
        parts = wide(torch.cat([row[0] for row in rows])).requires_grad_()
        texts = wide(torch.cat([row[1] for row in rows])).requires_grad_()
        return parts, texts, rows[0][2].detach().clone().requires_grad_()

    def _loss(
        self,
        step: int,
        batch: StepBatch,
        parts: Tensor,
        texts: Tensor,
        scale: Tensor,
        clock: Clock,
    ) -> Tensor:
        rank, local, same = self.group.rank, self.config.loss.local, batch.same
        if local:
            same = same.view(self.group.world, -1, same.shape[1])[rank]
        self.group.watch.beat("gather features", waits=self.group.world > 1)
        loss = contrastive_loss(parts, texts, scale, same, rank=rank, local=local, lap=clock.lap)
        loss = self.faults.loss(loss, step)
        clock.lap("loss")
        return loss

    @torch.no_grad()
    def _healthy(self, step: int, parts: Tensor, texts: Tensor, scale: Tensor) -> bool:
        """Whether this rank's own part in the loss is well: one look at the device.

        A bad row of another rank makes this rank's loss bad too; it is not the culprit.
        """
        # A zero row has no direction: as bad as one that is not finite.
        norms = torch.cat([parts.float().norm(dim=1), texts.float().norm(dim=1)])
        own = torch.isfinite(norms).all() & (norms > 0).all() & torch.isfinite(scale)
        return bool(own.item()) and not self.faults.has("nan_loss", step)

    def _agree(
        self, step: int, batch: StepBatch, loss: Tensor, healthy: bool, stop: bool
    ) -> list[list[int]]:
        """Every rank's (step, digest, healthy, loss, stop); raises if they are out of step."""
        value = float(loss.detach())
        row = [step, batch.digest, int(healthy), _bits_of(value), int(stop)]
        row += [self.tally.skips, self.tally.overflows]
        if self.faults.has("skip", step):
            row[0] += 1
        rows = self.group.table(row, "agree")
        # The tally is compared too: ranks that judged an earlier gradient differently have
        # different weights by now.
        if problem := out_of_step([[row[0], row[1], row[5], row[6]] for row in rows]):
            raise CheckFailed(problem)
        if all(row[2] for row in rows):
            for row in rows:
                row[2] = int(math.isfinite(_float_of(row[3])))
        return rows

    # Backward and after ----------------------------------------------------------------------

    def _backward(
        self,
        step: int,
        batch: StepBatch,
        loss: Tensor,
        parts: Tensor,
        texts: Tensor,
        scale: Tensor,
    ) -> None:
        (self.scaler.scale(loss) if self.scaler is not None else loss).backward()
        if len(batch.micros) == 1:
            return
        # GradCache: the loss gave the gradient of every row; each micro-batch passes again with
        # the same random state and hands its rows' gradient down. Only the last one lets DDP
        # average, and it carries the gradient of the logits' factor.
        assert parts.grad is not None and texts.grad is not None and scale.grad is not None
        size = len(parts) // len(batch.micros)
        for number, micro in enumerate(batch.micros):
            last = number == len(batch.micros) - 1
            with contextlib.nullcontext() if last else self._unsynced():
                rows = self.embed(self.ddp, step, number, micro)
                rows_at = slice(number * size, (number + 1) * size)
                surrogate = (wide(rows[0]) * parts.grad[rows_at]).sum()
                surrogate = surrogate + (wide(rows[1]) * texts.grad[rows_at]).sum()
                weight = scale.grad if last else torch.zeros_like(scale.grad)
                (surrogate + rows[2] * weight).backward()

    @contextlib.contextmanager
    def _unsynced(self) -> Iterator[None]:
        if isinstance(self.ddp, DistributedDataParallel):
            with self.ddp.no_sync():
                yield
        else:
            yield

    def _check_gradient(self) -> tuple[float, Cause | None]:
        """The gradient's norm, and what is wrong with it; clipped if it is well."""
        overflow = False
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
            overflow = found_inf(self.scaler, self.optimizer)
        gradients = [p.grad for p in self._params if p.grad is not None]
        total = torch.nn.utils.get_total_norm(gradients)
        norm = float(total)
        cause = cause_of(
            loss_finite=True, gradient_finite=math.isfinite(norm) and not overflow, scaled=overflow
        )
        if cause is None:
            torch.nn.utils.clip_grads_with_norm_(self._params, self.config.grad_clip, total)
        return norm, cause

    def _finish(self, step: int, cause: Cause | None, clock: Clock) -> Verdict:
        """Take the step or undo what the forward pass left; count it; judge it."""
        ran = cause != "loss"
        if cause is None:
            if self.scaler is not None:
                self.scaler.step(self.optimizer)
            else:
                self.optimizer.step()
            if callable(after := getattr(self.module, "after_step", None)):
                after()
        else:
            self._statistics.restore()
        if ran and self.scaler is not None:
            # Only where unscale ran: after a skip before backward there is nothing to update on.
            self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        clock.lap("optimizer")
        self.tally, verdict = judge(
            self.tally, cause, step=step, scale=self.scale, limits=self.limits
        )
        clock.lap("guard")
        return verdict


def found_inf(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> bool:
    """Whether ``unscale_`` met a gradient that is not finite."""
    # The scaler keeps this per optimizer and device, and has no public way to ask.
    state: dict[str, Any] = scaler._per_optimizer_states[id(optimizer)]
    return any(bool(flag.item()) for flag in state["found_inf_per_device"].values())


def wide(rows: Tensor) -> Tensor:
    """Half precision made float32; what is wider stays as it is."""
    return rows.float() if rows.dtype in _DTYPES.values() else rows


def _bits_of(value: float) -> int:
    """A float as a whole number, so that it travels with the rest of a row."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def _float_of(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


def _mix(*numbers: int) -> int:
    """One seed from several numbers; near ones give unrelated seeds (splitmix64)."""
    state = 0
    for number in numbers:
        state = (state ^ number) + 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        state = (state ^ state >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state >> 1
