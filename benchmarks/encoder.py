"""How much faster and leaner is the encoder than a plain one? Written to results/encoder.json.

    PYTHONPATH=src python -m benchmarks.encoder [--parts 32] [--rounds 3]

The yardstick is ``encoder_plain.py``: the same computation as a careful person would first write
it. Both get the same weights (the paper's size) and the same seeded batches of 5 to 100 faces, run
with the running statistics of eval mode, and must give equal embeddings and equal gradients before
anything is measured.

Three set-ups. In the first two the surface and the curve CNN are frozen, as they are by default,
and their features computed once and handed to both encoders.

- ``speedup`` and ``memory_ratio``: on a whole batch of params.yaml's ``train.batch_size``, which is
  what one process has;
- ``one_rank``: on what a rank has of it where ``train.processes`` ranks share it;
- ``with_cnns``: the CNNs run and learn too. They are the same dense convolutions on both sides and
  most of the time, so little can be won there.

The number of parts matters: from some thirty on, the plain encoder's score matrices are so large
that glibc takes fresh pages from the kernel for each of them, which costs as much as filling them.

Time is forward plus backward of one batch, the median over all turns: the processor time of one
thread, which other work on the machine disturbs least; the clock's is given too. Memory is the
peak resident set of the process less what it was after the imports. Every turn is a fresh process,
and the two encoders take turns, because a machine's own speed drifts; ``spread`` says by how much.
The plain encoder's padded matrices are made beforehand: its authors do that in their loader.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.encoder_batches import random_batch
from benchmarks.encoder_plain import Padded, PlainEncoder
from brepfind.files import write_json
from brepfind.graphs.batch import PartBatch
from brepfind.models.encoder import BrepEncoder, EncoderConfig
from brepfind.params import load_section
from brepfind.pipeline import paths
from brepfind.training.config import TrainConfig

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/encoder.json"
SETUPS = ("frozen", "learning")
KINDS = ("plain", "lean")
FEWEST, MOST = 5, 100
BATCHES = 2
# Relative to the largest number of the tensor. Float32 sums in another order: the gradient of a
# kernel is a sum over 130,000 samples, where the plain encoder is 3e-5 from float64, the lean 3e-6.
TOLERANCE = 5e-4


def peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def make_batches(encoder: BrepEncoder, parts: int, setup: str) -> list[PartBatch]:
    batches = []
    for seed in range(BATCHES):
        sizes = np.random.default_rng(seed).integers(FEWEST, MOST + 1, size=parts)
        batch = random_batch([int(size) for size in sizes], seed)
        if setup == "frozen":
            with torch.no_grad():
                batch = replace(
                    batch,
                    face_surface=encoder.encode_surfaces(batch.face_grid),
                    edge_curve=encoder.encode_curves(batch.edge_grid),
                    face_grid=None,
                    edge_grid=None,
                )
        batches.append(batch)
    return batches


def make_encoders(setup: str) -> tuple[PlainEncoder, BrepEncoder]:
    """Both with the same weights, statistics moved off 0 and 1, in eval mode."""
    config = EncoderConfig()
    lean = BrepEncoder(config, seed=0).eval()
    torch.manual_seed(0)
    for name, value in lean.state_dict().items():
        if name.endswith("running_mean"):
            value.normal_(std=0.1)
        elif name.endswith("running_var"):
            value.uniform_(0.5, 2.0)
    # Angles reach 181: with the statistics of a trained encoder they are not far from 1.
    angle = lean.graph_attn_bias.angle_encoder.bn1
    angle.running_var.fill_(100.0)
    plain = PlainEncoder(config.dim, config.layers, config.heads, config.kv_heads, config.hidden)
    plain.load_state_dict(lean.state_dict())
    if setup == "frozen":
        for encoder in (plain, lean):
            encoder.graph_node_feature.surf_encoder.requires_grad_(False)
            encoder.graph_attn_bias.curv_encoder.requires_grad_(False)
    return plain, lean


def loss_of(graph: Tensor, faces: Tensor) -> Tensor:
    """Something that every number takes part in, with a weight of its own."""
    columns = torch.linspace(-1.0, 1.0, graph.shape[1])
    return (graph.tanh() * columns).sum() + (faces.tanh() * columns).mean()


def run(encoder: nn.Module, batch: PartBatch, padded: Padded | None) -> tuple[Tensor, Tensor]:
    graph, faces = encoder(batch) if padded is None else encoder(batch, padded)
    loss_of(graph, faces).backward()
    return graph, faces


def differences(setup: str, parts: int) -> dict[str, float]:
    """The largest differences of results and gradients, each relative to its tensor's largest."""
    plain, lean = make_encoders(setup)
    worst = {"embeddings": 0.0, "gradients": 0.0}
    for batch in make_batches(lean, parts, setup):
        outs = run(plain, batch, Padded(batch)), run(lean, batch, None)
        pairs = {"embeddings": list(zip(*outs, strict=True)), "gradients": []}
        learned = dict(lean.named_parameters())
        for name, parameter in plain.named_parameters():
            if parameter.requires_grad:
                assert parameter.grad is not None and learned[name].grad is not None, name
                pairs["gradients"].append((parameter.grad, learned[name].grad))
        for what, tensors in pairs.items():
            for theirs, ours in tensors:
                scale = theirs.detach().abs().max().item()
                # NaN must fail, and `max` would drop it.
                off = (theirs - ours).detach().abs().max().item() / max(scale, 1e-12)
                worst[what] = off if not (off <= worst[what]) else worst[what]
        plain.zero_grad()
        lean.zero_grad()
    return worst


def measure(kind: str, setup: str, parts: int, steps: int) -> dict[str, object]:
    """In a fresh process: one round to warm up, then ``steps`` over every batch."""
    imported = peak_mb()
    plain, lean = make_encoders(setup)
    batches = make_batches(lean, parts, setup)
    encoder: nn.Module = plain if kind == "plain" else lean
    del plain, lean
    padded = [Padded(batch) if kind == "plain" else None for batch in batches]
    cpu, wall = [], []
    for _ in range(steps + 1):
        for batch, ready in zip(batches, padded, strict=True):
            encoder.zero_grad()
            start = time.process_time(), time.perf_counter()
            run(encoder, batch, ready)
            cpu.append(time.process_time() - start[0])
            wall.append(time.perf_counter() - start[1])
    warm = len(batches)
    return {"cpu": cpu[warm:], "wall": wall[warm:], "peak_mb": peak_mb() - imported}


def compare(setup: str, parts: int, rounds: int, steps: int) -> dict[str, object]:
    off = differences(setup, parts)
    if not all(value <= TOLERANCE for value in off.values()):
        raise SystemExit(f"{setup}: the two encoders do not agree: {off}")
    cpu: dict[str, list[float]] = {kind: [] for kind in KINDS}
    wall: dict[str, list[float]] = {kind: [] for kind in KINDS}
    peaks: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for turn in range(rounds):
        for kind in KINDS if turn % 2 == 0 else KINDS[::-1]:
            command = [sys.executable, "-m", "benchmarks.encoder", "--worker", kind]
            command += ["--setup", setup, "--parts", str(parts), "--steps", str(steps)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            result = json.loads(done.stdout.splitlines()[-1])
            cpu[kind] += result["cpu"]
            wall[kind] += result["wall"]
            peaks[kind].append(result["peak_mb"])
    cpu_s = {kind: statistics.median(cpu[kind]) for kind in KINDS}
    wall_s = {kind: statistics.median(wall[kind]) for kind in KINDS}
    peak = {kind: statistics.median(peaks[kind]) for kind in KINDS}
    return {
        "parts": parts,
        "speedup": round(cpu_s["plain"] / cpu_s["lean"], 2),
        "speedup_by_the_clock": round(wall_s["plain"] / wall_s["lean"], 2),
        "memory_ratio": round(peak["lean"] / peak["plain"], 3),
        "cpu_seconds": {kind: round(value, 3) for kind, value in cpu_s.items()},
        "peak_mb": {kind: round(value) for kind, value in peak.items()},
        "spread": {
            kind: [round(min(values), 3), round(max(values), 3)] for kind, values in cpu.items()
        },
        "largest_relative_difference": {what: float(f"{v:.1e}") for what, v in off.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    train = load_section(ROOT / paths.PARAMS, "train", TrainConfig)
    parser.add_argument("--parts", type=int, default=train.batch_size, help="parts per batch")
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes per encoder")
    parser.add_argument("--steps", type=int, default=3, help="measured passes per process")
    parser.add_argument("--worker", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--setup", choices=SETUPS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.worker:
        print(json.dumps(measure(args.worker, args.setup, args.parts, args.steps)))
        return
    result = {
        **compare("frozen", args.parts, args.rounds, args.steps),
        "one_rank": compare("frozen", args.parts // train.processes, args.rounds, args.steps),
        "with_cnns": compare("learning", args.parts, args.rounds, args.steps),
        "batches": {"count": BATCHES, "faces": [FEWEST, MOST]},
        "machine": {
            "threads": 1,
            "cpus": os.cpu_count(),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "system": platform.machine(),
            "torch": torch.__version__,
        },
    }
    write_json(RESULTS, result)
    print(json.dumps(result, indent=2))
    print(f"written to {RESULTS}")


if __name__ == "__main__":
    main()
