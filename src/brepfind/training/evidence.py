"""A bad step, run again and kept: provenance for the post-mortem, the batch for a replay."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brepfind.distributed.gather import gather_with_grad
from brepfind.errors import InputError
from brepfind.files import atomic_path
from brepfind.graphs.batch import PartBatch
from brepfind.training.batches import Micro, StepBatch
from brepfind.training.loss import loss_of_rows, unit_pairs
from brepfind.training.provenance import sentence, traced
from brepfind.training.step import GuardedStep, wide


def explain(guarded: GuardedStep, step: int, batch: StepBatch) -> tuple[dict[str, Any], Tensor]:
    """Run a step again under hooks, without touching weights or statistics; a collective.

    Returns:
        The facts of :mod:`provenance` for this rank, and all ranks' unit rows (N, 2 D).
    """
    module, group = guarded.module, guarded.group
    with guarded.statistics_kept(), traced(module) as trace:
        rows = [guarded.embed(module, step, n, micro) for n, micro in enumerate(batch.micros)]
        with torch.autocast(group.device.type, enabled=False):
            own = unit_pairs(
                wide(torch.cat([row[0] for row in rows])), wide(torch.cat([r[1] for r in rows]))
            )
        everyone = gather_with_grad(own.detach())
        loss = guarded.faults.loss(_loss(guarded, batch, own, everyone, rows[0][2]), step)
        facts = facts_of(module, trace, loss, guarded.scale)
    return facts, everyone


def facts_of(module: nn.Module, trace: Any, loss: Tensor, scale: float) -> dict[str, Any]:
    """Backward, if the loss is finite, and everything the hooks saw."""
    finite = bool(torch.isfinite(loss.detach()))
    forward = trace.forward_facts() or (None if finite else trace.minus_facts())
    facts: dict[str, Any] = {"forward": forward, "loss_finite": finite}
    if facts["forward"] is None and finite:
        learning = {name: p for name, p in module.named_parameters() if p.requires_grad}
        # Not backward(): that would wake DistributedDataParallel's own hooks on the parameters.
        found = torch.autograd.grad(loss * scale, list(learning.values()), allow_unused=True)
        facts["backward"] = trace.backward_facts(dict(zip(learning, found, strict=True)))
    return {**facts, "sentence": sentence(facts)}


def _loss(
    guarded: GuardedStep, batch: StepBatch, own: Tensor, everyone: Tensor, scale: Tensor
) -> Tensor:
    group, local = guarded.group, guarded.config.loss.local
    return local_loss(own, everyone, scale, batch.same, group.rank, group.world, local=local)


def local_loss(
    own: Tensor,
    everyone: Tensor,
    scale: Tensor,
    same: Tensor,
    rank: int,
    world: int,
    *,
    local: bool,
) -> Tensor:
    """A rank's loss, given all ranks' rows; only its own rows carry a gradient."""
    share = len(own)
    joined = torch.cat([everyone[: rank * share], own, everyone[(rank + 1) * share :]])
    if local:
        same = same.view(world, -1, same.shape[1])[rank]
    return loss_of_rows(own, joined, scale, same, rank=rank, local=local)


def keep(
    path: Path,
    guarded: GuardedStep,
    step: int,
    batch: StepBatch,
    everyone: Tensor,
    facts: dict[str, Any],
) -> None:
    """Write a rank's batch and the model's tensors; numbers that are not finite are the point."""
    dual = guarded.module.get_submodule("dual")
    tensors = {
        name: tensor.detach().cpu()
        for name, tensor in dual.state_dict(keep_vars=True).items()
        # What is frozen in the text tower is loaded again by its name.
        if not name.startswith("text.") or getattr(tensor, "requires_grad", False)
    }
    state = {
        "step": step,
        "rank": guarded.group.rank,
        "world": guarded.group.world,
        "scale": guarded.scale,
        "config": guarded.config.model_dump(mode="json"),
        "ids": list(batch.ids),
        "captions": list(batch.captions),
        "same": batch.same.cpu(),
        "everyone": everyone.cpu(),
        "micros": [plain_micro(micro) for micro in batch.micros],
        "tensors": tensors,
        "facts": facts,
    }
    with atomic_path(path) as aside:
        torch.save(state, aside)


def plain_micro(micro: Micro) -> dict[str, Any]:
    """A micro-batch as tensors by name."""
    parts = {
        item.name: value.cpu()
        for item in fields(micro.parts)
        if (value := getattr(micro.parts, item.name)) is not None
    }
    texts = {name: getattr(micro, name).cpu() for name in ("hidden", "mask", "numbers")}
    return {"parts": parts, **texts}


def micro_of(plain: dict[str, Any]) -> Micro:
    """The reverse of :func:`plain_micro`.

    Raises:
        InputError: if another version of this code wrote it.
    """
    missing = {"face_grid": None, "edge_grid": None}
    try:
        return Micro(
            parts=PartBatch(**{**missing, **plain["parts"]}),
            hidden=plain["hidden"],
            mask=plain["mask"],
            numbers=plain["numbers"],
        )
    except (KeyError, TypeError) as error:
        raise InputError(
            f"the kept step was written by another version of brepfind ({error}); replay it with "
            "that one"
        ) from error
