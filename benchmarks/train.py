"""What the guard costs, and what a second process gains, beside a bare loop.

    python -m benchmarks.train [--rounds 12] [--steps 10] [--out benchmarks/results/train.json]

The bare loop has the same model, data, optimizer, clipping and scaler, and nothing of the guard. A
machine's speed changes from minute to minute, so nothing is compared across minutes: every round
runs each of these once, in turns, each process on one thread:

- ``guarded`` and ``bare`` alone, and ``again``, the bare loop once more, whose ratio to ``bare`` is
  how far the machine is from itself;
- ``copies``: two bare loops at the same time, which know nothing of each other;
- ``ranks``: two processes that train together, as training does.

``guard_share`` is the guard's own timed share of a guarded step: its looks and verdicts, its scans,
and the account it keeps. ``two_process_efficiency`` is what two ranks gain over one process, over
what two copies gain over one: 1 if training together costs nothing. Each is the median over the
rounds, with the quartiles beside it. On a machine with other work the second says little.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.encoder_batches import random_batch
from brepfind.distributed.group import Group, open_group
from brepfind.events import EventFile
from brepfind.files import write_json
from brepfind.models.numbers import sentence_numbers
from brepfind.params import read_params
from brepfind.training.batches import Micro, StepBatch
from brepfind.training.build import Pairs, build_dual, build_optimizer
from brepfind.training.clock import Clock
from brepfind.training.config import TrainConfig
from brepfind.training.ledger import Ledger, draw
from brepfind.training.loss import contrastive_loss, guessing
from brepfind.training.resume import learning, require_finite
from brepfind.training.step import GuardedStep

PAIRS = 16  # of each process in a step, as in the default run
SIZES = (4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 26, 30, 34, 40, 48, 60)  # faces
BATCHES = 4
GUARD = ("guard", "agree", "account", "scan")
# The encoder that is shipped.
ENCODER = {"dim": 128, "layers": 4, "heads": 8, "kv_heads": 4, "feed_forward": 256}


def settings(world: int) -> TrainConfig:
    """Those of params.yaml, with as many pairs for each process."""
    section = read_params(Path("params.yaml"))["train"]
    encoder = {**section["encoder"], **ENCODER}
    changes = {"processes": world, "batch_size": PAIRS * world, "encoder": encoder}
    return TrainConfig.model_validate({**section, **changes})


def batches_of(config: TrainConfig, module: Pairs, rank: int) -> list[StepBatch]:
    """A rank's batches, with what the frozen parts give in place of grids and tokens."""
    encoder, world = module.dual.encoder.config, config.processes
    same = torch.eye(config.batch_size, dtype=torch.bool)
    chance, alone = guessing(same)
    found = []
    for number in range(BATCHES):
        drawn = torch.Generator().manual_seed(100 * number + rank)
        parts = random_batch(list(SIZES), seed=100 * number + rank)
        assert parts.face_grid is not None and parts.edge_grid is not None
        surface = torch.randn(len(parts.face_grid), encoder.dim // 2, generator=drawn)
        curve = torch.randn(len(parts.edge_grid), encoder.heads, generator=drawn)
        parts = replace(
            parts, face_grid=None, edge_grid=None, face_surface=surface, edge_curve=curve
        )
        captions = [f"hex bolt M{place} x {number + rank}, zinc" for place in range(PAIRS)]
        tokens = module.dual.text.tokenize(captions)
        micro = Micro(
            parts=parts,
            hidden=module.dual.text.lower(tokens),
            mask=tokens.mask,
            numbers=sentence_numbers(captions),
        )
        found.append(
            StepBatch(
                micros=(micro,),
                same=same,
                ids=tuple(str(place) for place in range(PAIRS * world)),
                captions=tuple(captions),
                digest=number,
                chance=chance,
                alone=alone,
            )
        )
    return found


class Bare:
    """Forward, backward, clip, step: what a training script has that trusts its numbers."""

    def __init__(self) -> None:
        self.config = settings(1)
        self.module = Pairs(build_dual(self.config, None))
        self.optimizer = build_optimizer(self.config, self.module.dual)
        self.scaler = torch.amp.GradScaler("cpu", enabled=self.config.precision == "fp16")
        self.batches = batches_of(self.config, self.module, 0)
        self.params = [p for p in self.module.parameters() if p.requires_grad]

    def run(self, steps: int) -> dict[str, float]:
        """Returns the seconds it took."""
        began = time.perf_counter()
        for number in range(steps):
            batch = self.batches[number % BATCHES]
            parts, texts, scale = self.module(batch.micros[0])
            loss = contrastive_loss(parts, texts, scale, batch.same)
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.params, self.config.grad_clip)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)
            self.module.after_step()
        return {"seconds": time.perf_counter() - began}


class Guarded:
    """The step and its account as the loop has them, on batches that are at hand."""

    def __init__(self, group: Group, events: EventFile) -> None:
        self.config = settings(group.world)
        module = Pairs(build_dual(self.config, None))
        optimizer = build_optimizer(self.config, module.dual)
        self.batches = batches_of(self.config, module, group.rank)
        self.guarded = GuardedStep(module, optimizer, group, self.config, total_steps=10**6)
        self.module, self.events, self.ledger, self.step = module, events, Ledger(), 0

    def run(self, steps: int) -> dict[str, float]:
        """Returns the seconds it took, and seconds by the parts of a step."""
        began = time.perf_counter()
        clock = Clock()
        for _ in range(steps):
            batch = self.batches[self.step % BATCHES]
            report = self.guarded.run(self.step, batch)
            assert report.verdict.action == "step", report.verdict
            clock.skip()
            for name, seconds in report.seconds.items():
                clock.add(name, seconds)
            self.ledger.count(report, batch)
            draw(self.events, report, self.guarded.tally, scaled=False)
            clock.lap("account")
            self.step += 1
            if self.step % self.config.scan_every == 0:
                require_finite("model", learning(self.module.dual))
                clock.lap("scan")
        return {"seconds": time.perf_counter() - began, **clock.seconds}


def work(kind: str, environment: dict[str, str], pipe: Connection) -> None:
    """A process: runs so many steps of a loop whenever it is asked by name."""
    os.environ.update(environment)
    torch.set_num_threads(1)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_group(3600.0, device="cpu") as group,
        closing(EventFile(Path(folder) / "events.jsonl")) as events,
    ):
        loops: dict[str, Callable[[int], dict[str, float]]] = {}
        if kind != "rank":
            loops["bare"] = Bare().run
        if kind != "copy":
            loops["guarded"] = Guarded(group, events).run
        for loop in loops.values():
            loop(BATCHES)  # warm
        pipe.send("ready")
        while asked := pipe.recv():
            name, steps = asked
            pipe.send(loops[name](steps))


def start(store: dist.TCPStore) -> dict[str, list[Connection]]:
    """Two processes on their own and two ranks, ready to run; the ranks meet in the store."""
    context = multiprocessing.get_context("spawn")
    workers: dict[str, list[Connection]] = {"alone": [], "ranks": []}
    places: list[tuple[str, str, dict[str, str]]] = [("alone", "solo", {}), ("alone", "copy", {})]
    for rank in range(2):
        variables = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
        places.append(("ranks", "rank", variables))
    for where, kind, variables in places:
        here, there = context.Pipe()
        context.Process(target=work, args=(kind, variables, there), daemon=True).start()
        workers[where].append(here)
    for pipe in [*workers["alone"], *workers["ranks"]]:
        assert pipe.recv() == "ready"
    return workers


def ask(pipes: Sequence[Connection], loop: str, steps: int) -> tuple[float, list[dict[str, float]]]:
    """Pairs per second of processes that run at the same time, and what each says."""
    for pipe in pipes:
        pipe.send((loop, steps))
    said = [pipe.recv() for pipe in pipes]
    return len(pipes) * PAIRS * steps / max(one["seconds"] for one in said), said


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4)
    return {"lower_quartile": low, "median": middle, "upper_quartile": high}


def shares(said: Sequence[dict[str, float]]) -> dict[str, float]:
    """Of all the time of steps, by name."""
    names = dict.fromkeys(name for one in said for name in one if name != "seconds")
    total = sum(one[name] for one in said for name in one if name != "seconds")
    return {name: sum(one.get(name, 0.0) for one in said) / total for name in names}


def measure(rounds: int, steps: int) -> dict[str, Any]:
    """All rounds."""
    # It must outlive the ranks.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    workers = start(store)
    solo, ranks = workers["alone"][:1], workers["ranks"]
    turns: dict[str, tuple[list[Connection], str]] = {
        "bare": (solo, "bare"),
        "guarded": (solo, "guarded"),
        "ranks": (ranks, "guarded"),
        "copies": (workers["alone"], "bare"),
        "again": (solo, "bare"),
    }
    rates: dict[str, list[float]] = {name: [] for name in turns}
    said: dict[str, list[dict[str, float]]] = {name: [] for name in turns}
    names = list(turns)
    for number in range(rounds):
        # Each takes every place in the order in turn.
        for name in names[number % len(names) :] + names[: number % len(names)]:
            rate, told = ask(*turns[name], steps)
            rates[name].append(rate)
            said[name] += told
    for pipe in [*workers["alone"], *ranks]:
        pipe.send(None)

    def ratio(above: str, below: str) -> list[float]:
        return [a / b for a, b in zip(rates[above], rates[below], strict=True)]

    copies, together = ratio("copies", "bare"), ratio("ranks", "guarded")
    efficiency = [mine / theirs for mine, theirs in zip(together, copies, strict=True)]
    guard = [
        sum(one.get(name, 0.0) for name in GUARD)
        / sum(value for name, value in one.items() if name != "seconds")
        for one in said["guarded"]
    ]
    return {
        "guard_share": statistics.median(guard),
        "two_process_efficiency": statistics.median(efficiency),
        "guard_share_spread": spread(guard),
        "two_process_efficiency_spread": spread(efficiency),
        "loop_against_itself": spread(ratio("again", "bare")),
        "guarded_over_bare": spread(ratio("guarded", "bare")),
        "gain_of_two_copies": spread(copies),
        "gain_of_two_ranks": spread(together),
        "pairs_per_second": {name: statistics.median(found) for name, found in rates.items()},
        "share_of_a_step": {name: shares(said[name]) for name in ("guarded", "ranks")},
    }


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=10, help="of each loop in a round")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/train.json"))
    given = parser.parse_args()
    load = os.getloadavg()[0]
    result = {
        "rounds": given.rounds,
        "steps": given.steps,
        "pairs_per_process": PAIRS,
        "cores": len(os.sched_getaffinity(0)),
        "load_before": load,
        **measure(given.rounds, given.steps),
    }
    write_json(given.out, result)
    print(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
