"""Time and memory of every stage as the corpus grows: `make bench-scale`.

    PYTHONPATH=src python -m benchmarks.scale [--sizes 1000 10000] [--simulated 100000 1000000]

The pipeline of generated samples of each size is run stage by stage, with the settings of
params.yaml but for one epoch of training and open limits; a run of 64 parts first is the *floor*:
imports, weights, workers, what a stage takes however few parts there are. Growth is fitted above
the floor, ``floor + c * n ** a``, and followed to a million parts.

What can be done without a million STEP files is then done with the largest sample repeated (see
:mod:`benchmarks.scale_simulated`): split as a stage, and steps in a process each.

Rows are kept in ``build/bench-scale``, so that the bench can be stopped and goes on; remove
``build/bench-scale/SIZE/rows/STAGE.json`` to measure a stage again, or the folder for all; other
settings or other code measure all of it again. Half an hour to over an
hour on two cores; ``--simulated`` with no number leaves the second half out, smaller ``--sizes``
shorten the first. Linux only. Writes ``benchmarks/results/scale.json``.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks import scale_simulated
from benchmarks.memory import measured
from benchmarks.scale_fit import Growth, grown
from benchmarks.scale_project import ROOT, SETTINGS, Project, environment
from brepfind.files import read_json, write_json
from brepfind.log import console, setup_logging
from brepfind.pipeline import paths
from brepfind.processes import cores

WORK = ROOT / "build/bench-scale"
OUT = ROOT / "benchmarks/results/scale.json"
FLOOR = 64  # parts; with fewer, training has no whole batch
GOAL = 1_000_000
# The machine that is asked what breaks first.
MEMORY_GB = 24.0
DAY_S = 86_400.0
# What is made, beside time and memory, in bytes a part: disks break, too.
_FOLDERS = {
    "STEP files": "data/corpus/step",
    "graph store": "data/graphs",
    "kept extractions": ".brepfind/extracted",
    "pairwise matrices": ".brepfind/pairs",
    "frozen features": ".brepfind/features",
}

Rows = dict[str, dict[int, dict[str, Any]]]  # by stage or step, and size


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    setup_logging()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--simulated", type=int, nargs="*", default=[100_000, GOAL])
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args(arguments)
    sizes = sorted(set(asked.sizes) - {FLOOR})
    if not sizes:
        parser.error(f"--sizes needs a size beside {FLOOR}, which is always run")
    stages: Rows = {name: {} for name in paths.STAGES}
    for parts in [FLOOR, *sizes]:
        for name, row in run_stages(parts):
            stages[name][parts] = row
    largest = project(max(sizes)).root
    steps: Rows = {name: {} for name in ("split", *scale_simulated.STEPS)}
    for parts in sorted(asked.simulated):
        for name, row in run_steps(largest, parts):
            steps[name][parts] = row
    growth = {
        "measured": {name: growths(rows, _floor(rows)) for name, rows in stages.items()},
        "simulated": {
            name: growths(rows, _floor(stages["split"]) if name == "split" else _imports(rows))
            for name, rows in steps.items()
            if rows
        },
    }
    disk = disk_bytes(largest, max(sizes))
    result = {
        "cores": cores(),
        "floor_parts": FLOOR,
        "settings": SETTINGS,
        "stages": _plain(stages),
        "simulated": _plain(steps),
        "growth": {
            kind: {name: _told(found) for name, found in several.items()}
            for kind, several in growth.items()
        },
        "disk_bytes_a_part": disk,
        "breaks_first": breaks(growth),
    }
    write_json(asked.out, result)
    show(stages, steps, growth, disk)
    console.print(f"written to {os.path.relpath(asked.out, ROOT)}")
    return 0


# Measuring ----------------------------------------------------------------------------------------


def project(parts: int) -> Project:
    return Project(WORK, parts, {**SETTINGS, "prepare.parts": parts})


def run_stages(parts: int) -> Iterable[tuple[str, dict[str, Any]]]:
    """All stages on a sample of a size."""
    mine = project(parts)
    mine.make()
    for name in paths.STAGES:
        row = mine.stage(name)
        _say(name, parts, row)
        yield name, row


def run_steps(source: Path, parts: int) -> Iterable[tuple[str, dict[str, Any]]]:
    """Split as a stage, and every step, on the sample in ``source`` repeated."""
    mine = Project(WORK / f"simulated-from-{source.name}", parts, SETTINGS)
    mine.make()
    scale_simulated.make(source, mine.root, parts)
    for name in (paths.WEIGHTS.parent, Path(".brepfind/pairs")):
        (mine.root / name).parent.mkdir(parents=True, exist_ok=True)
        if not (mine.root / name).is_symlink():
            (mine.root / name).symlink_to(source / name)
    row = mine.stage("split")
    _say("split", parts, row)
    yield "split", row
    for name in scale_simulated.STEPS:
        row = _step(mine, name)
        _say(name, parts, row)
        yield name, row


def _step(mine: Project, name: str) -> dict[str, Any]:
    folder = mine.root
    kept = folder / "rows" / f"step-{name}.json"
    if not kept.is_file() or read_json(kept)["of"] != mine.of():
        told = folder / "logs" / f"{name}.json"
        command = [sys.executable, "-m", "benchmarks.scale_simulated", name, str(folder), str(told)]
        log = folder / "logs" / f"{name}.txt"
        took = measured(command, ROOT, log, environment())
        # The step tells its own seconds, without imports.
        write_json(kept, {**asdict(took), **read_json(told), "of": mine.of()})
    return dict(read_json(kept))


def _say(name: str, parts: int, row: Mapping[str, Any]) -> None:
    console.print(f"{name:12} {parts:>9,} parts {row['seconds']:8.1f} s {row['peak_gb']:6.2f} GB")


def disk_bytes(folder: Path, parts: int) -> dict[str, float]:
    """Bytes a part of what the pipeline leaves on the disk."""
    return {
        name: sum(f.stat().st_size for f in (folder / where).rglob("*") if f.is_file()) / parts
        for name, where in _FOLDERS.items()
    }


# Judging ------------------------------------------------------------------------------------------


def growths(rows: Mapping[int, Mapping[str, Any]], floor: Mapping[str, float]) -> dict[str, Growth]:
    """Growth of seconds and memory; the floor's own size is no point of the fit."""
    return {
        what: grown(floor[what], {n: row[what] for n, row in rows.items() if n != FLOOR})
        for what in ("seconds", "peak_gb")
    }


def _floor(rows: Mapping[int, Mapping[str, Any]]) -> dict[str, float]:
    return {what: rows[FLOOR][what] for what in ("seconds", "peak_gb")}


def _imports(rows: Mapping[int, Mapping[str, Any]]) -> dict[str, float]:
    """A step's seconds begin after its imports, and its floor is their memory."""
    return {"seconds": 0.0, "peak_gb": min(row["imports_gb"] for row in rows.values())}


def breaks(growth: Mapping[str, Mapping[str, Mapping[str, Growth]]]) -> list[dict[str, Any]]:
    """At how many parts a stage or step outgrows the machine, the first to break first."""
    found = [
        {"what": name, "how": kind, "limit": limit, "parts": round(reached)}
        for kind, several in growth.items()
        for name, grows in several.items()
        for limit, reached in (
            (f"{MEMORY_GB:g} GB", grows["peak_gb"].reaches(MEMORY_GB)),
            ("a day", grows["seconds"].reaches(DAY_S)),
        )
        if math.isfinite(reached)
    ]
    return sorted(found, key=lambda one: one["parts"])


# Telling ------------------------------------------------------------------------------------------


def show(
    stages: Rows,
    steps: Rows,
    growth: Mapping[str, Mapping[str, Mapping[str, Growth]]],
    disk: Mapping[str, float],
) -> None:
    """The tables a person reads."""
    for kind, rows, said in (
        (
            "measured",
            stages,
            "the real pipeline, one epoch of training; the last two columns are extrapolated",
        ),
        ("simulated", steps, "the largest sample repeated; one process of each step"),
    ):
        if not growth[kind]:
            continue
        sizes = sorted({n for mine in rows.values() for n in mine})
        table = Table(title=f"{kind}: {said}")
        table.add_column("stage" if kind == "measured" else "step")
        for n in sizes:
            table.add_column(f"{n:,}\ns / GB", justify="right")
        table.add_column("growth\ns / GB", justify="right")
        table.add_column(f"{GOAL:,}\nh / GB", justify="right")
        table.add_column(f"a day, {MEMORY_GB:g} GB\nat parts", justify="right")
        for name, grows in growth[kind].items():
            seconds, memory = grows["seconds"], grows["peak_gb"]
            table.add_row(
                name,
                *(
                    f"{rows[name][n]['seconds']:.1f} / {rows[name][n]['peak_gb']:.2f}"
                    for n in sizes
                ),
                f"{_exponent(seconds)} / {_exponent(memory)}",
                f"{seconds.value(GOAL) / 3600:.2f} / {memory.value(GOAL):.1f}",
                f"{_parts(seconds.reaches(DAY_S))}, {_parts(memory.reaches(MEMORY_GB))}",
            )
        console.print(table)
    for name, mine in steps.items():
        for n, row in mine.items():
            if facts := row.get("facts"):
                console.print(
                    f"  {name} at {n:,}: {_facts(facts)}", soft_wrap=True, highlight=False
                )
    console.print("On the disk, kB a part: " + _facts({k: v / 1e3 for k, v in disk.items()}))
    for one in breaks(growth)[:5]:
        console.print(
            f"{one['what']} ({one['how']}) takes {one['limit']} at {_parts(one['parts'])} parts"
        )


def _exponent(growth: Growth) -> str:
    return "flat" if growth.flat else f"n^{growth.exponent:.2f}"


def _parts(n: float) -> str:
    if not math.isfinite(n) or n > 1e9:
        return "-"
    return f"{float(f'{n:.2g}'):,.0f}"


def _facts(facts: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {value:,.4g}" if isinstance(value, float) else
        f"{name.replace('_', ' ')} {value:,}" if isinstance(value, int) else f"{name} {value}"
        for name, value in facts.items()
    )  # fmt: skip


def _told(grows: Mapping[str, Growth]) -> dict[str, Any]:
    return {
        what: {
            "floor": growth.floor,
            "exponent": None if growth.flat else growth.exponent,
            "at_1000000": growth.value(GOAL),
        }
        for what, growth in grows.items()
    }


def _plain(rows: Rows) -> dict[str, Any]:
    return {
        name: {str(n): {k: v for k, v in row.items() if k != "settings"} for n, row in mine.items()}
        for name, mine in rows.items()
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
