"""Does training work on the GPUs of this machine? Two guarded steps in each precision say so.

    make check-gpu                                     one process per GPU, over NCCL
    python -m benchmarks.check_gpu --device cpu --processes 2     the same over gloo

The dual encoder has the paper's size (5,095,777 parameters in the encoder) and the shipped text
tower; the parts are random graphs of 5 to 100 faces. Each rank asserts that no complex tensor is
left, that both steps were taken and that the weights moved and are finite. Without a GPU it says so
and ends with 0; a failure ends with another code.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import time

import torch

from benchmarks.encoder_batches import random_batch
from brepfind.distributed.group import Group, assert_no_complex, open_group
from brepfind.models.encoder import EncoderConfig
from brepfind.models.numbers import sentence_numbers
from brepfind.training.batches import Micro, StepBatch
from brepfind.training.build import Pairs, build_dual, build_optimizer
from brepfind.training.config import LossConfig, TrainConfig
from brepfind.training.step import GuardedStep

CAPTIONS = ("hex bolt M8 x 40", "plain washer for M6", "spur gear, 24 teeth", "angle bracket")
STEPS = 2


def settings(processes: int, precision: str, pairs: int) -> TrainConfig:
    """What two steps need; the rest is as in params.yaml's spirit: halt on anything odd."""
    return TrainConfig(
        processes=processes,
        epochs=1,
        batch_size=pairs * processes,
        micro_batch=None,
        lr=1e-4,
        text_lr=1e-5,
        weight_decay=0.01,
        warmup_steps=0,
        schedule="constant",
        precision=precision,  # type: ignore[arg-type]
        text_tower="minilm",
        text_train="last",
        last_layers=2,
        text_fp16=False,
        encoder=EncoderConfig(),
        embed_dim=256,
        size_features=True,
        shape_features=True,
        number_features=True,
        freeze=[],
        freeze_batch_norm=True,
        gradient_checkpointing=False,
        loss=LossConfig(local=True),
        grad_clip=1.0,
        nonfinite="halt",
        max_skips_in_a_row=3,
        max_skip_rate=0.2,
        skip_window=20,
        initial_loss_scale=1024.0,
        min_loss_scale=1.0,
        max_overflows_in_a_row=10,
        scan_every=1,
        validation_every=1,
        patience=None,
        min_embedding_std=0.0,
        min_distinct_rows=0.0,
        max_epochs_at_chance=None,
        seed=0,
        timeout_s=300.0,
    )


def check(group: Group, precision: str, pairs: int) -> float:
    """Two steps; returns pairs per second of all ranks together, the second step's."""
    config = settings(group.world, precision, pairs)
    dual = build_dual(config, None).to(group.device)
    assert_no_complex(dual, "the dual encoder")
    sizes = [5 + 95 * place // max(pairs - 1, 1) for place in range(pairs)]
    captions = [CAPTIONS[place % len(CAPTIONS)] + f" no. {place}" for place in range(pairs)]
    tokens = dual.text.tokenize(captions)
    tokens = type(tokens)(tokens.ids.to(group.device), tokens.mask.to(group.device), 0)
    with torch.no_grad():
        hidden = dual.text.lower(tokens)
    batch = StepBatch(
        micros=(
            Micro(
                parts=random_batch(sizes, seed=group.rank),
                hidden=hidden,
                mask=tokens.mask,
                numbers=sentence_numbers(captions),
            ),
        ),
        same=torch.eye(config.batch_size, dtype=torch.bool),
        ids=tuple(str(place) for place in range(config.batch_size)),
        captions=tuple(captions),
        digest=0,
        chance=math.log(config.batch_size),
        alone=0,
    ).to(group.device)
    before = [parameter.detach().clone() for parameter in dual.parameters()]
    step = GuardedStep(Pairs(dual), build_optimizer(config, dual), group, config, total_steps=STEPS)
    seconds = 0.0
    for number in range(STEPS):
        started = time.perf_counter()
        report = step.run(number, batch)
        if group.device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - started
        assert report.verdict.action == "step", (
            f"{precision}: step {number} was not taken: {report.verdict}"
        )
    moved = {
        name.split(".")[0]
        for (name, now), was in zip(dual.named_parameters(), before, strict=True)
        if not torch.equal(now, was)
    }
    learning = {name.split(".")[0] for name, p in dual.named_parameters() if p.requires_grad}
    assert moved == learning, f"{precision}: {sorted(moved)} moved, {sorted(learning)} should"
    assert all(torch.isfinite(parameter).all() for parameter in dual.parameters())
    assert_no_complex(dual, "the dual encoder after training")
    return config.batch_size / seconds


def main() -> int:
    """Start one process per GPU, or be one of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--processes", type=int, help="default: one per GPU")
    parser.add_argument("--pairs", type=int, default=32, help="pairs per process (default 32)")
    args = parser.parse_args()
    if "RANK" not in os.environ:
        if args.device == "cuda" and not torch.cuda.is_available():
            print("check-gpu: torch sees no GPU here, so there is nothing to check")
            return 0
        processes = args.processes or (torch.cuda.device_count() if args.device == "cuda" else 1)
        command = [sys.executable, "-m", "brepfind.distributed.launch", "--standalone"]
        command += [f"--nproc-per-node={processes}", "-m", "benchmarks.check_gpu", *sys.argv[1:]]
        return subprocess.run(command, check=False).returncode
    with open_group(300.0, device="auto" if args.device == "cuda" else "cpu") as group:
        for precision in ("fp32", "bf16", "fp16"):
            rate = check(group, precision, args.pairs)
            if group.first:
                name = torch.cuda.get_device_name() if group.device.type == "cuda" else "CPU"
                print(f"{precision}: ok, {rate:.0f} pairs/s on {group.world} x {name}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
