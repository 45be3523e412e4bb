"""How fast and how lean is the doctor? Written to benchmarks/results/doctor.json.

    PYTHONPATH=src python benchmarks/doctor.py [--gigabytes 1.0]

Each file is examined in a fresh process. Time: the doctor against one `torch.aminmax` pass over the
same bytes, freshly mapped from the page cache each time, the two taking turns, torch's own number
of threads for both; the ratio is that of the medians. Memory: the peak of RssAnon (what is not
backed by a file), the whole process, torch's import included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "doctor.json"
TURNS = 9


def anonymous_mb() -> float:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


def make(kind: str, path: Path, nbytes: int) -> None:
    import torch
    from safetensors.torch import save_file

    dtype = torch.bfloat16 if "bf16" in kind else torch.float32
    torch.manual_seed(0)
    if kind.endswith("one large"):
        shapes = [(nbytes // dtype.itemsize // 4096, 4096)]
    elif kind.endswith("many"):
        shapes = [(1024, 1024), (1024,), (1024,)] * (nbytes // dtype.itemsize // 1024 // 1026)
    else:
        shapes = [(4096, 4096)] * (nbytes // dtype.itemsize // 4096**2)
    tensors = {f"layers.{i}.weight": torch.randn(shape).to(dtype) for i, shape in enumerate(shapes)}
    if "safetensors" in kind:
        save_file(tensors, path)
    else:
        torch.save(tensors, path)


def measure(path: Path) -> None:
    """In a fresh process: one doctor for the memory, then turns for the time."""
    import torch

    from brepfind.checkpoints.doctor import diagnose
    from brepfind.checkpoints.read import read_checkpoint

    peak, done = anonymous_mb(), threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, anonymous_mb())

    before = peak
    watcher = threading.Thread(target=watch)
    watcher.start()
    diagnosis = diagnose(path)
    peak = max(peak, anonymous_mb())
    done.set()
    watcher.join()
    assert diagnosis.verdict == "healthy", diagnosis.headline()

    tensors = [entry.tensor for entry in read_checkpoint(path, verify=False).entries]
    largest = max(tensor.nbytes for tensor in tensors) / 2**20
    del tensors

    def one_pass() -> None:
        for entry in read_checkpoint(path, verify=False).entries:
            torch.aminmax(entry.tensor)

    times: dict[str, list[float]] = {"pass": [], "doctor": []}
    busy: dict[str, list[float]] = {"pass": [], "doctor": []}
    for _ in range(TURNS):
        for name, work in (("pass", one_pass), ("doctor", lambda: diagnose(path))):
            start, worked = time.perf_counter(), time.process_time()
            work()
            times[name].append(time.perf_counter() - start)
            busy[name].append(time.process_time() - worked)
    medians = {name: statistics.median(values) for name, values in times.items()}
    result = {
        "tensors": sum(diagnosis.counts.values()),
        "gigabytes": round(diagnosis.nbytes / 1e9, 3),
        "threads": torch.get_num_threads(),
        "aminmax_pass_s": round(medians["pass"], 4),
        "doctor_s": round(medians["doctor"], 4),
        "doctor_spread_s": [round(min(times["doctor"]), 4), round(max(times["doctor"]), 4)],
        "time_ratio": round(medians["doctor"] / medians["pass"], 2),
        "time_ratio_best": round(min(times["doctor"]) / min(times["pass"]), 2),
        "processor_time_ratio": round(
            statistics.median(busy["doctor"]) / statistics.median(busy["pass"]), 2
        ),
        "anonymous_before_mb": round(before, 1),
        "anonymous_peak_mb": round(peak, 1),
        "largest_tensor_mb": round(largest, 1),
        "anonymous_limit_mb": round(1.3 * largest + 300, 1),
    }
    print(json.dumps(result))


def start_up() -> dict[str, float]:
    """Seconds to import torch, and to import torch and the doctor, taking turns."""
    imports = {"torch_s": "import torch", "doctor_s": "import brepfind.checkpoints.commands"}
    seconds: dict[str, list[float]] = {name: [] for name in imports}
    for _ in range(5):
        for name, code in imports.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            seconds[name].append(time.perf_counter() - start)
    return {name: round(statistics.median(values), 2) for name, values in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--measure", type=Path)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure)
        return
    kinds = [
        "torch zip fp32",
        "torch zip fp32 one large",
        "torch zip fp32 many",
        "torch zip bf16",
        "safetensors fp32",
        "safetensors bf16",
    ]
    results = {}
    load = round(os.getloadavg()[0], 2)  # other work on the machine: above 0.5 these say little
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            path = Path(folder) / ("model.safetensors" if "safetensors" in kind else "model.pt")
            command = [sys.executable, __file__]
            make(kind, path, int(arguments.gigabytes * 1e9))
            out = subprocess.run(
                [*command, "--measure", str(path)], check=True, capture_output=True, text=True
            )
            results[kind] = json.loads(out.stdout)
            path.unlink()
            print(kind, results[kind], flush=True)
    whole = {
        "asked": {"time_ratio": "<= 4", "anonymous_peak_mb": "<= 1.3 x largest tensor + 300"},
        "load_average_before": load,
        "start_up": start_up(),
        "worst_time_ratio": max(result["time_ratio"] for result in results.values()),
        "files": results,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(whole, indent=2) + "\n")
    print(f"worst ratio {whole['worst_time_ratio']}, start-up {whole['start_up']}: {RESULTS}")


if __name__ == "__main__":
    main()
