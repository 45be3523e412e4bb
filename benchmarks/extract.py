"""How fast is the extraction? Beside brepgraph's, and beside Open CASCADE's reading alone.

    PYTHONPATH=src python -m benchmarks.extract [--real FOLDER] [--rounds 3]

Files: real ones (``--real``, ../shared/step-real by default; left out, and said so, where there are
none) and generated parts of the sample corpus; of each set those that both extractors accept.

Contenders, each in a process of its own, taking turns at every file, round after round:

    floor       Open CASCADE's read and transfer alone, through the very function that we call
    brepfind    STEP file to arrays; the validity check and the mass properties timed within
    brepgraph   0.3.0, preset ``uvnet``, one graph per solid

Numbers are the processor time of one core, imports and a first file apart (wall time beside it);
ratios are taken within a round, then the median of the rounds, with the least and the greatest.

Two workers: files per second of wall time of the extractor's own pool with two workers over one,
against two processes of the floor at once over one. They need a machine with two idle cores.

brepgraph is not one of this project's dependencies. It is put into .brepfind/peers by pip on the
first run; the bench says how where that fails. Writes benchmarks/results/extract.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brepfind.cad.extract import ExtractConfig

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "extract.json"
PEERS = HERE.parent / ".brepfind" / "peers"
REAL = HERE.parent.parent / "shared" / "step-real"
CONTENDERS = ("floor", "brepfind", "brepgraph")
GENERATED, SEED = 80, 3

# What one contender says of one file: faces, where it counts them, processor and wall seconds, and
# shares of the former. None for a file that it does not accept.
Timing = dict[str, float]
Turn = dict[str, Timing | None]


# --- in the contender's own process ------------------------------------------------------------


def contender(name: str) -> Callable[[Path], Timing]:
    """What turns a file into its faces and, where it knows, shares of its time."""
    from brepfind.cad import reading

    reading.quiet()
    if name == "floor":

        def read(path: Path) -> Timing:
            reading.read(path)
            return {}

        return read
    if name == "brepgraph":
        sys.path.insert(0, str(PEERS))
        import brepgraph  # type: ignore[import-not-found, unused-ignore]

        return lambda path: {
            "faces": sum(graph.num_faces for graph in brepgraph.load_all(path, "uvnet"))
        }
    return brepfind()


def brepfind() -> Callable[[Path], Timing]:
    from brepfind.cad import extract, mass, reading

    config = extract_config()
    spent = {"validity": 0.0, "mass": 0.0}

    def timed(share: str, work: Callable) -> Callable:
        def run(*arguments: object) -> object:
            begin = time.process_time()
            try:
                return work(*arguments)
            finally:
                spent[share] += time.process_time() - begin

        return run

    reading.is_valid = timed("validity", reading.is_valid)
    mass.integrate = timed("mass", mass.integrate)

    def run(path: Path) -> Timing:
        spent.update(validity=0.0, mass=0.0)
        parts = extract.extract_file(path, config)
        return {"faces": sum(len(part.face_type) for part in parts), **spent}

    return run


def extract_config() -> ExtractConfig:
    from brepfind.cad.extract import ExtractConfig

    return ExtractConfig(
        grid=10,
        max_faces=4095,
        multi_solid="merge",
        timeout_s=600.0,
        memory_gb=8.0,
        max_reject_rate=1.0,
        shards=1,
    )


def take_turns(name: str) -> None:
    """Time one contender on each file named on standard input; its answer is a line of JSON."""
    run = contender(name)
    for line in sys.stdin:
        wall, busy = time.perf_counter(), time.process_time()
        try:
            found: Timing | None = run(Path(line.rstrip("\n")))
        except Exception:
            found = None
        if found is not None:
            found["busy"] = time.process_time() - busy
            found["wall"] = time.perf_counter() - wall
        print(json.dumps(found), flush=True)


def take_list(files: Sequence[Path]) -> None:
    """Wall time of the floor on all files, its start apart."""
    run = contender("floor")
    run(files[0])
    begin = time.perf_counter()
    for path in files:
        run(path)
    print(json.dumps({"wall": time.perf_counter() - begin}))


def take_pool(workers: int, files: Sequence[Path]) -> None:
    """Wall time of the extractor's pool, its start apart."""
    from brepfind.cad.pool import extract_many

    config = extract_config()
    list(extract_many([("warm", files[0])], config, 1))
    begin = time.perf_counter()
    outcomes = extract_many([(str(path), path) for path in files], config, workers)
    if not all(outcome.parts for outcome in outcomes):
        raise SystemExit("a file that was accepted before was not by the pool")
    print(json.dumps({"wall": time.perf_counter() - begin}))


# --- around it ---------------------------------------------------------------------------------


def start(task: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a task in a process of its own, with one thread."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.extract", "--task", task, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **dict.fromkeys(names, "1")},
    )


def answer(process: subprocess.Popen[str]) -> float:
    """The wall time that a task found."""
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"a part of the bench ended with {process.returncode}: {process.args!r}")
    return float(json.loads(out.splitlines()[-1])["wall"])


def play(files: Sequence[Path], rounds: int) -> list[dict[str, Turn]]:
    """All contenders on all files; each is asked about a file before any about the next."""
    players = {name: start(name) for name in CONTENDERS}

    def ask(name: str, path: Path) -> Timing | None:
        process = players[name]
        assert process.stdin is not None
        assert process.stdout is not None
        print(path, file=process.stdin, flush=True)
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"{name} ended at {path}")
        return json.loads(line)

    try:
        for name in CONTENDERS:
            ask(name, files[0])  # to warm up
        played: list[dict[str, Turn]] = []
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", flush=True)
            played.append({name: {} for name in CONTENDERS})
            for path in files:
                for name in CONTENDERS:
                    played[-1][name][str(path)] = ask(name, path)
        return played
    finally:
        for process in players.values():
            process.communicate()


def need_brepgraph() -> None:
    if (PEERS / "brepgraph").is_dir():
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--target", str(PEERS), "brepgraph==0.3.0"]
    print("fetching brepgraph 0.3.0 into", PEERS)
    if subprocess.run(command).returncode:
        raise SystemExit(
            "bench-extract compares with brepgraph 0.3.0, which could not be fetched. Where there "
            f"is a network, run\n    {' '.join(command)}\nand bring {PEERS} here."
        )


def generated(folder: Path) -> list[Path]:
    from brepfind.corpus.sample.draw import draw_parts
    from brepfind.corpus.sample.families import FAMILIES
    from brepfind.corpus.sample.generate import build_parts

    specs = draw_parts(FAMILIES, GENERATED, SEED)
    files = [folder / f"{spec.model_id}.step" for spec in specs]
    build_parts(list(zip(specs, files, strict=True)), os.cpu_count() or 1)
    return files


def middle(values: Sequence[float]) -> dict[str, float]:
    """The median of the rounds, and how far they lie apart."""
    return {
        "median": round(statistics.median(values), 3),
        "least": round(min(values), 3),
        "greatest": round(max(values), 3),
    }


def compare(rounds: Sequence[dict[str, Turn]], files: Sequence[str]) -> dict[str, Any]:
    """The numbers of one set of files, from the turns of all rounds."""

    def total(turn: Turn, what: str) -> float:
        return sum(timing[what] for path in files if (timing := turn[path]) is not None)

    busy = {name: [total(turns[name], "busy") for turns in rounds] for name in CONTENDERS}
    wall = {name: [total(turns[name], "wall") for turns in rounds] for name in CONTENDERS}
    ours = [turns["brepfind"] for turns in rounds]
    faces = {name: total(rounds[0][name], "faces") for name in ("brepfind", "brepgraph")}

    def ratio(over: str, under: str) -> dict[str, float]:
        return middle([a / b for a, b in zip(busy[over], busy[under], strict=True)])

    def share(what: str) -> dict[str, float]:
        floors = zip(ours, busy["floor"], strict=True)
        return middle([total(turn, what) / floor for turn, floor in floors])

    return {
        "files": len(files),
        "faces": int(faces["brepfind"]),
        "faces_brepgraph": int(faces["brepgraph"]),
        "seconds": {name: middle(busy[name]) for name in CONTENDERS},
        "wall_seconds": {name: middle(wall[name]) for name in CONTENDERS},
        "faces_per_second_and_core": {
            name: round(faces["brepfind"] / statistics.median(busy[name]), 1) for name in CONTENDERS
        },
        "speedup_vs_brepgraph": ratio("brepgraph", "brepfind"),
        "time_over_floor": ratio("brepfind", "floor"),
        "validity_check_over_floor": share("validity"),
        "mass_properties_over_floor": share("mass"),
    }


def two_workers(listing: Path, rounds: int) -> dict[str, Any]:
    gains: dict[str, list[float]] = {"brepfind": [], "floor": []}

    def go(task: str) -> subprocess.Popen[str]:
        return start(task, "--listing", str(listing))

    for _ in range(rounds):
        one, two = (answer(go(f"pool{n}")) for n in (1, 2))
        gains["brepfind"].append(one / two)
        alone = answer(go("list"))
        copies = [go("list") for _ in range(2)]
        gains["floor"].append(2 * alone / max(answer(copy) for copy in copies))
    efficiency = [a / b for a, b in zip(gains["brepfind"], gains["floor"], strict=True)]
    return {
        "two_worker_efficiency": middle(efficiency),
        "gain": middle(gains["brepfind"]),
        "gain_of_two_floors": middle(gains["floor"]),
        "cores": os.cpu_count(),
    }


def show(name: str, numbers: dict) -> None:
    print(f"\n{name}: {numbers['files']} files, {numbers['faces']} faces")
    for who in CONTENDERS:
        seconds = numbers["seconds"][who]
        print(
            f"  {who:<10}{numbers['faces_per_second_and_core'][who]:>9.0f} faces/s per core"
            f"   {seconds['median']:.2f} s ({seconds['least']:.2f} to {seconds['greatest']:.2f})"
        )
    for what, text in (
        ("speedup_vs_brepgraph", "times as fast as brepgraph"),
        ("time_over_floor", "times the floor's time, of which"),
        ("validity_check_over_floor", "  the validity check"),
        ("mass_properties_over_floor", "  the mass properties"),
    ):
        value = numbers[what]
        spread = f"({value['least']:.2f} to {value['greatest']:.2f})"
        print(f"  {value['median']:.2f} {spread} {text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--real", type=Path, default=REAL)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--listing", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task in CONTENDERS:
        return take_turns(arguments.task)
    if arguments.task:
        files = [Path(line) for line in arguments.listing.read_text().splitlines()]
        if arguments.task == "list":
            return take_list(files)
        return take_pool(int(arguments.task.removeprefix("pool")), files)
    need_brepgraph()
    load = round(os.getloadavg()[0], 2)  # other work on the machine: above 0.5, trust ratios only
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sets = {"generated": generated(folder)}
        real = [p for p in sorted(arguments.real.rglob("*")) if p.suffix in (".step", ".stp")]
        if real:
            sets["real"] = real
        else:
            print(f"{arguments.real} holds no STEP files: the generated set only")
        rounds = play([path for files in sets.values() for path in files], arguments.rounds)
        accepted = {
            name: [
                str(path)
                for path in files
                if all(turn[str(path)] for turns in rounds for turn in turns.values())
            ]
            for name, files in sets.items()
        }
        everything = [path for files in accepted.values() for path in files]
        listing = folder / "listing"
        listing.write_text("\n".join(everything))
        pair = two_workers(listing, arguments.rounds)
    total = compare(rounds, everything)
    by_set = {name: compare(rounds, files) for name, files in accepted.items()}
    for name, numbers in {**by_set, "all": total}.items():
        show(name, numbers)
    for name, files in sets.items():
        left_out = [path.name for path in files if str(path) not in set(accepted[name])]
        by_set[name]["left_out"] = left_out
        print(f"\nleft out of {name}, not accepted by both: {', '.join(left_out) or 'none'}")
    efficiency = pair["two_worker_efficiency"]
    print(
        f"two workers gain {pair['gain']['median']:.2f}, two floors "
        f"{pair['gain_of_two_floors']['median']:.2f}: {efficiency['median']:.2f} of it "
        f"({efficiency['least']:.2f} to {efficiency['greatest']:.2f})"
    )
    headline = ("speedup_vs_brepgraph", "time_over_floor")
    whole = {
        "asked": {
            "speedup_vs_brepgraph": ">= 2.5",
            "time_over_floor": "<= 2.2",
            "two_worker_efficiency": ">= 0.85",
        },
        **{name: total[name]["median"] for name in headline},
        "two_worker_efficiency": efficiency["median"],
        "load_average_before": load,
        "rounds": arguments.rounds,
        "all": total,
        "sets": by_set,
        "two_workers": pair,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(whole, indent=2) + "\n")
    print(RESULTS)


if __name__ == "__main__":
    main()
