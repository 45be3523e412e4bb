"""Trainings of a benchmark: one process each, as many at once as there are cores, each kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from brepfind.files import digest, read_json, sha256
from brepfind.log import progress
from brepfind.processes import cores
from brepfind.training.config import TrainConfig
from brepfind.training.job import Job
from brepfind.training.resume import code_digest

# UV-Net keeps the activations of its CNNs: 12 GB, of which two are more than 24 GB hold.
_LARGE = "uvnet"
_one_large = Lock()


@cache
def _code() -> str:
    files = [Path(__file__).with_name(name) for name in ("kicad_train.py", "uvnet.py")]
    return digest([code_digest(), [sha256(path) for path in files]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One training, in a folder named after all that decides it.

    Attributes:
        name: of the row it is for.
        encoder: see :mod:`benchmarks.kicad_train`.
        weights: of the pretrained encoder, or None.
        work: the benchmark's folder.
    """

    name: str
    encoder: str
    config: TrainConfig
    weights: Path | None
    graphs: Path
    corpus: Path
    split: Path
    work: Path

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        inputs = [self.graphs / "manifest.parquet", self.corpus / "captions.parquet", self.split]
        inputs += [self.weights] if self.weights else []
        settings = self.config.model_dump(mode="json")
        key = digest([self.encoder, settings, _code(), [sha256(path) for path in inputs]])
        return self.work / f"{self.name}-{self.config.seed}-{key[:12]}"

    @property
    def done(self) -> bool:
        """Whether it has ended well."""
        return (self.folder / "model/train.json").is_file()

    def numbers(self) -> Any:
        """What it tells of itself."""
        return read_json(self.folder / "model/train.json")

    def run(self) -> None:
        """Train, or go on where an earlier run was stopped.

        Raises:
            SystemExit: if it does not end well; the message names its log.
        """
        folder = self.folder
        folder.mkdir(parents=True, exist_ok=True)
        self._job().write(folder / "job.json")
        command = [sys.executable, "-m", "brepfind.distributed.launch", "--standalone"]
        command += ["--nproc-per-node=1", "-m", "benchmarks.kicad_train"]
        command += [self.encoder, str(folder / "job.json")]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (folder / "log.txt").open("w") as log:
            done = subprocess.run(command, env=environment, stdout=log, stderr=log, check=False)
        if done.returncode:
            raise SystemExit(
                f"training ended with code {done.returncode}; see {folder / 'log.txt'}"
            )

    def _job(self) -> Job:
        folder = self.folder
        return Job(
            train=self.config,
            graphs=str(self.graphs),
            corpus=str(self.corpus),
            split=str(self.split),
            weights=str(self.weights) if self.weights else None,
            out=str(folder / "model"),
            state=str(folder / "state"),
            events=str(folder / "events.jsonl"),
            cost=str(folder / "cost.json"),
            postmortem=str(folder / "postmortem"),
            features=str(self.work / "features"),
            pairs=str(self.work / "pairs"),
            device="cpu",
        )


def train_all(trainings: Sequence[Training]) -> None:
    """Train what is not there yet, one process per core, and one large one at a time."""
    todo = list({one.folder: one for one in trainings if not one.done}.values())
    with progress("training", len(todo)) as bar, ThreadPoolExecutor(cores()) as pool:
        # The first alone: it computes the frozen features that the others read.
        for one in todo[:1]:
            one.run()
            bar.advance()
        for _ in pool.map(_run, todo[1:]):
            bar.advance()


def _run(training: Training) -> None:
    with _one_large if training.encoder == _LARGE else nullcontext():
        training.run()
