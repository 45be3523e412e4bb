"""Does memory stay flat over thousands of files?

    PYTHONPATH=src python -m benchmarks.extract_memory [--files 2000] [--parts 40] [--workers 2]

Generated parts are copied under distinct names and extracted without the cache. At each file that
is done the resident memory of all workers is summed. Workers are renewed, so the sum is a saw; it
is compared by its mean and its peak over 400 files (one life of two workers) around file 500 and
at the end. The same for the process that asks and writes the store.

Writes benchmarks/results/extract_memory.json.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import psutil

from brepfind.cad.extract import ExtractConfig
from brepfind.cad.isolation import RENEW_AFTER
from brepfind.cad.pool import Outcome, extract_many
from brepfind.corpus.prepare import PrepareConfig, prepare
from brepfind.files import write_json
from brepfind.graphs import extraction

CONFIG = ExtractConfig(
    grid=10,
    max_faces=400,
    multi_solid="merge",
    timeout_s=120.0,
    memory_gb=4.0,
    max_reject_rate=1.0,
    shards=16,
)
RESULTS = Path(__file__).parent / "results" / "extract_memory.json"
LIMIT = 0.10


def workers_mb() -> float:
    """Resident memory of all workers: the children of the fork server that work on files."""
    total = 0
    for server in psutil.Process().children():
        for worker in server.children():
            try:
                total += worker.memory_info().rss
            except psutil.NoSuchProcess:  # renewed just now
                continue
    return total / 2**20


def measured(samples: list[tuple[float, float]]) -> Iterator[None]:
    own = psutil.Process()
    while True:
        samples.append((workers_mb(), own.memory_info().rss / 2**20))
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--parts", type=int, default=40, help="distinct ones among the files")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    samples: list[tuple[float, float]] = []
    clock = measured(samples)

    def watched(
        files: Sequence[tuple[str, Path]], config: ExtractConfig, workers: int
    ) -> Iterator[Outcome]:
        for outcome in extract_many(files, config, workers):
            next(clock)
            yield outcome

    extraction.extract_many = watched  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        files = copies(Path(folder), given.parts, given.files)
        tally = extraction.extract_store(files, Path(folder) / "store", CONFIG, given.workers)
    life = RENEW_AFTER * given.workers
    early = slice(500 - life // 2, 500 + life // 2)
    late = slice(given.files - life, given.files)
    series = np.array(samples)
    found = {
        "files": tally.files,
        "accepted": tally.accepted,
        "workers": given.workers,
        "renewed_after": RENEW_AFTER,
        "limit": LIMIT,
    }
    for column, name in enumerate(("workers", "parent")):
        for kind, measure in (("mean", np.mean), ("peak", np.max)):
            first, last = (float(measure(series[part, column])) for part in (early, late))
            found[f"{name}_{kind}_mb_at_500"] = round(first, 1)
            found[f"{name}_{kind}_mb_at_end"] = round(last, 1)
            found[f"{name}_{kind}_growth"] = round(last / first - 1, 4)
    write_json(RESULTS, found)
    for name, value in found.items():
        print(f"{name:28} {value}")
    flat = all(found[f"workers_{kind}_growth"] <= LIMIT for kind in ("mean", "peak"))
    print("flat" if flat else "NOT FLAT")


def copies(folder: Path, parts: int, count: int) -> list[tuple[str, str, Path]]:
    """``count`` files with distinct names, of ``parts`` generated ones."""
    sample = PrepareConfig(
        source="sample",
        parts=parts,
        seed=7,
        captions_per_part=1,
        step_dir=None,
        captions=None,
        max_orphan_rate=0.0,
    )
    prepare(sample, folder / "corpus", workers=2)
    sources = sorted((folder / "corpus").rglob("*.step"))
    assert len(sources) == parts
    (folder / "raw").mkdir()
    found = []
    for number in range(count):
        path = folder / "raw" / f"{number:05d}.step"
        shutil.copy(sources[number % parts], path)
        found.append((path.stem, path.name, path))
    return found


if __name__ == "__main__":
    main()
