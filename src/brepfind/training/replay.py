"""Show a bad step again, on one process, from what a run left in its post-mortem folder.

    python -m brepfind.training.replay POSTMORTEM [RANK]

The batch, the weights and dropout's random state are those of the step, so the same module is
named as in the run.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from brepfind.distributed.group import Group, Place
from brepfind.distributed.watch import Watch
from brepfind.errors import BrepfindError, InputError
from brepfind.log import get_logger, setup_logging
from brepfind.models.dual import DualEncoder
from brepfind.models.encoder import BrepEncoder, EncoderConfig
from brepfind.models.norm import freeze_batch_norm
from brepfind.models.text import TextTower
from brepfind.training.build import Pairs, build_optimizer
from brepfind.training.config import TrainConfig
from brepfind.training.evidence import facts_of, local_loss, micro_of
from brepfind.training.loss import unit_pairs
from brepfind.training.provenance import traced
from brepfind.training.step import GuardedStep, wide

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A step shown again.

    Attributes:
        step, rank: which step of which rank.
        ids: the parts in that rank's batch.
        then, now: one sentence each: what the run found, and what is found here.
        facts: see :mod:`brepfind.training.provenance`.
    """

    step: int
    rank: int
    ids: tuple[str, ...]
    then: str
    now: str
    facts: dict[str, Any]

    @property
    def text(self) -> str:
        """For a person."""
        same = "the same is seen here" if self.then == self.now else f"seen here: {self.now}"
        return (
            f"step {self.step} of rank {self.rank}, {len(self.ids)} parts "
            f"({', '.join(self.ids[:5])}{', ...' if len(self.ids) > 5 else ''})\n"
            f"the run saw: {self.then}\n{same}"
        )


def replay(folder: Path, rank: int | None = None) -> Replay:
    """Run the kept step again under hooks.

    Args:
        folder: a run's post-mortem folder, or the one of its training in it.
        rank: whose batch; None takes the first that was kept.

    Raises:
        InputError: if the folder keeps no step, or it cannot be read.
    """
    state = _read(folder, rank)
    config = TrainConfig.model_validate({**state["config"], "processes": 1})
    dual = _dual(config, state)
    place = Place(rank=0, world=1, local_rank=0, local_world=1)
    watch = Watch(0, 1, timeout_s=config.timeout_s, folder=None)
    group = Group(place, torch.device("cpu"), watch, None, config.timeout_s)
    guarded = GuardedStep(Pairs(dual), build_optimizer(config, dual), group, config, 1)
    group.rank = state["rank"]  # dropout's random state belongs to the rank
    with traced(guarded.module) as trace:
        rows = [
            guarded.embed(guarded.module, state["step"], number, micro_of(plain))
            for number, plain in enumerate(state["micros"])
        ]
        own = unit_pairs(
            wide(torch.cat([row[0] for row in rows])), wide(torch.cat([row[1] for row in rows]))
        )
        loss = local_loss(
            own,
            state["everyone"],
            rows[0][2],
            state["same"],
            state["rank"],
            state["world"],
            local=config.loss.local,
        )
        facts = facts_of(guarded.module, trace, loss, state["scale"])
    share = len(state["ids"]) // state["world"]
    mine = state["ids"][state["rank"] * share : (state["rank"] + 1) * share]
    return Replay(
        step=state["step"],
        rank=state["rank"],
        ids=tuple(mine),
        then=state["facts"]["sentence"],
        now=facts["sentence"],
        facts=facts,
    )


def _read(folder: Path, rank: int | None) -> dict[str, Any]:
    found = sorted([*folder.glob("step-rank*.pt"), *folder.glob("training/step-rank*.pt")])
    if rank is not None:
        found = [path for path in found if path.name == f"step-rank{rank}.pt"]
    if not found:
        raise InputError(f"{folder}: keeps no step; look at its reason.json")
    try:
        state: dict[str, Any] = torch.load(found[0], map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError) as error:
        raise InputError(f"{found[0]}: cannot be read ({str(error)[:200]})") from error
    return state


def _dual(config: TrainConfig, state: dict[str, Any]) -> DualEncoder:
    tensors = state["tensors"]
    shapes = {
        name.removeprefix("encoder."): tuple(tensor.shape)
        for name, tensor in tensors.items()
        if name.startswith("encoder.")
    }
    sizes = EncoderConfig.from_shapes(
        shapes, dropout=config.encoder.dropout, max_faces=config.encoder.max_faces
    )
    text = TextTower.load(config.text_tower, config.text_train, config.last_layers)
    dual = DualEncoder(BrepEncoder(sizes), text, config.dual)
    dual.freeze(config.freeze)
    if config.freeze_batch_norm:
        freeze_batch_norm(dual.encoder)
    with torch.no_grad():
        for name, tensor in dual.state_dict().items():
            if name in tensors:
                tensor.copy_(tensors[name])
    return dual.train()


def main(arguments: list[str]) -> int:
    """The command; returns its exit code."""
    setup_logging()
    if not 1 <= len(arguments) <= 2:
        log.error("usage: python -m brepfind.training.replay POSTMORTEM [RANK]")
        return 2
    try:
        rank = int(arguments[1]) if len(arguments) == 2 else None
        found = replay(Path(arguments[0]), rank)
    except (BrepfindError, ValueError) as error:
        log.error("%s", error)
        return 2
    sys.stdout.write(found.text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
