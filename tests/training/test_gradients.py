"""The real model's gradients: the same in one process and in several, whole and in pieces.

In float64 without dropout and with frozen statistics, the way two processes can equal one at all.
"""

from __future__ import annotations

import copy
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from brepfind.distributed.group import Group, open_group
from brepfind.training.batches import Micro, StepBatch, share_of
from brepfind.training.build import Pairs
from brepfind.training.faults import Faults
from brepfind.training.job import Job
from brepfind.training.loss import guessing, same_pairs
from brepfind.training.prepare import Prepared, prepare
from brepfind.training.step import GuardedStep
from tests.ranks import run_ranks, values
from tests.training.tiny import make_job

SIZE = 8
Case = tuple[int | None, bool]  # micro-batch, checkpointing


def double(micro: Micro) -> Micro:
    parts = {
        item.name: value.double()
        for item in fields(micro.parts)
        if (value := getattr(micro.parts, item.name)) is not None and value.is_floating_point()
    }
    return replace(
        micro,
        parts=replace(micro.parts, **parts),
        hidden=micro.hidden.double(),
        numbers=micro.numbers.double(),
    )


def batch_of(prepared: Prepared, group: Group, micro: int | None) -> StepBatch:
    """A rank's share of 8 pairs; the last two are gears, so that one rank of four has no edge."""
    items = prepared.pool.train
    gears = [n for n, i in enumerate(items.ids) if i.startswith("gear")]
    others = [n for n, i in enumerate(items.ids) if not i.startswith("gear")]
    everyone = np.array([*others[::4][: SIZE - 2], *gears[:2]])
    captions = np.array([items.captions[i][0] for i in everyone])
    mine = share_of(np.arange(SIZE), group.rank, group.world)
    micros = [
        double(prepared.pieces.micro(items.numbers[everyone[rows]].tolist(), captions[rows]))
        for rows in np.split(mine, range(micro or SIZE, len(mine), micro or SIZE))
    ]
    same = same_pairs(torch.from_numpy(items.twins[everyone]), torch.from_numpy(captions))
    chance, alone = guessing(same)
    return StepBatch(
        micros=tuple(micros), same=same, ids=tuple(map(str, everyone)), captions=(), digest=0,
        chance=chance, alone=alone,
    )  # fmt: skip


def gradients(path: str, cases: list[Case]) -> list[dict[str, torch.Tensor]]:
    """The gradient of every parameter in each case."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    job = Job.read(Path(path))
    job = job.model_copy(update={"train": job.train.model_copy(update={"processes": world})})
    found = []
    with open_group(300.0, device="cpu") as group:
        prepared = prepare(job, group, Faults((), group.rank))
        for micro, checkpointing in cases:
            found.append(_gradient(prepared, group, job, micro, checkpointing))
    return found


def _gradient(
    prepared: Prepared, group: Group, job: Job, micro: int | None, checkpointing: bool
) -> dict[str, torch.Tensor]:
    dual = copy.deepcopy(prepared.dual).double().eval()  # eval: no dropout anywhere
    dual.encoder.checkpoint_layers = checkpointing
    changes: dict[str, Any] = {
        "micro_batch": micro,
        "gradient_checkpointing": checkpointing,
        "grad_clip": 1e9,
        "warmup_steps": 0,
        "schedule": "constant",
    }
    config = type(job.train).model_validate({**job.train.model_dump(), **changes})
    learning = {n: p for n, p in dual.named_parameters() if p.requires_grad}
    before = {name: p.detach().clone() for name, p in learning.items()}
    # Plain descent at rate 1: what a step takes away is the gradient.
    optimizer = torch.optim.SGD([{"params": list(learning.values()), "lr": 1.0, "base_lr": 1.0}])
    guarded = GuardedStep(Pairs(dual), optimizer, group, config, total_steps=1)
    report = guarded.run(0, batch_of(prepared, group, micro))
    assert report.verdict.action == "step"
    return {name: before[name] - p.detach() for name, p in learning.items()}


@pytest.fixture(scope="module")
def alone(inputs, tmp_path_factory):
    run = tmp_path_factory.mktemp("gradients")
    make_job(inputs, run).write(run / "job.json")
    (found,) = values(run_ranks(gradients, 1, str(run / "job.json"), [(None, False)]))
    return str(run / "job.json"), found[0]


@pytest.mark.parametrize(
    ("world", "cases"),
    [
        (1, [(2, False), (1, True)]),
        (2, [(None, False), (None, True), (2, False), (1, True)]),
        pytest.param(4, [(None, False), (None, True), (1, True)], marks=pytest.mark.slow),
    ],
)
def test_gradients_equal_those_of_one_process_on_the_joined_batch(alone, world, cases) -> None:
    job, expected = alone
    assert all(g.abs().max() > 0 for name, g in expected.items() if "wq" in name)
    for rank in values(run_ranks(gradients, world, job, cases)):
        for found in rank:
            for name, gradient in expected.items():
                # The factor of the logits is taken in float32 whatever the model.
                limit = 1e-6 if name == "logit_scale" else 1e-9
                torch.testing.assert_close(
                    found[name], gradient, atol=limit, rtol=limit, msg=lambda m, n=name: f"{n}: {m}"
                )
