"""The pipeline on a generated sample of a given size, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.memory import measured
from brepfind.files import digest, read_json, sha256, write_json
from brepfind.params import read_params
from brepfind.pipeline import paths

ROOT = Path(__file__).resolve().parent.parent
_SHARED = ("src", "stages", "data/pretrained", "data/raw", "requirements.lock")

# One epoch is measured, and a model of one epoch passes no gate of quality: limits that stop it
# are open. None of these settings changes what a stage has to do.
SETTINGS: dict[str, Any] = {
    "extract.max_reject_rate": 1.0,
    "split.min_parts": 1,
    "train.epochs": 1,
    "train.validation_every": 1,
    "train.min_embedding_std": 0.0,
    "train.min_distinct_rows": 0.0,
    "health.min_rows": 8,
    "health.min_column_std": 0.0,
    "health.max_mean_cosine": 1.0,
    "health.min_effective_rank": 0.0,
    "health.min_effective_rank_share": 0.0,
    "health.min_participation": 0.0,
    "health.min_distinct": 0.0,
    "health.max_near_copies": 1.0,
    "health.min_self_retrieval": 0.0,
    "evaluate.min_self_retrieval": 0.0,
}
# What a stage keeps between runs, in .brepfind: without it, so that the work is really done.
_KEPT = {"extract": ("extracted",), "train": ("features", "pairs", "state")}


@dataclass(frozen=True, slots=True)
class Project:
    """A project of ``parts`` parts below ``work``."""

    work: Path
    parts: int
    settings: Mapping[str, Any]

    @property
    def root(self) -> Path:
        """Where it lies."""
        return self.work / str(self.parts)

    def make(self) -> None:
        """Settings of its own, code and checkpoint of the checkout."""
        for name in _SHARED:
            link = self.root / name
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(ROOT / name)
        params = read_params(ROOT / paths.PARAMS)
        for name, value in self.settings.items():
            *sections, key = name.split(".")
            section = params
            for part in sections:
                section = section[part]
            assert key in section, name
            section[key] = value
        text = yaml.safe_dump(params, sort_keys=False)
        (self.root / paths.PARAMS).write_text(text, encoding="utf-8")

    def of(self) -> str:
        """What a measurement is of: the settings and the code; another makes it anew."""
        code = [[str(path.relative_to(ROOT)), sha256(path)] for path in sorted(_code())]
        return digest([(self.root / paths.PARAMS).read_text(encoding="utf-8"), code])

    def stage(self, name: str) -> dict[str, Any]:
        """What a stage took, from an earlier run of the bench if it was measured already."""
        row = self.root / "rows" / f"{name}.json"
        if row.is_file() and (kept := read_json(row))["of"] == self.of():
            return dict(kept)
        for kept_folder in _KEPT.get(name, ()):
            shutil.rmtree(self.root / ".brepfind" / kept_folder, ignore_errors=True)
        command = [sys.executable, "-P", f"stages/{name}.py"]
        log = self.root / "logs" / f"{name}.txt"
        took = asdict(measured(command, self.root, log, environment()))
        cost = read_json(self.root / paths.cost_file(name))
        write_json(row, {**took, "of": self.of(), "cost": cost})
        return dict(read_json(row))


def _code() -> Iterator[Path]:
    for folder in ("src", "stages"):
        yield from (ROOT / folder).rglob("*.py")
    yield from (ROOT / "benchmarks").glob("scale*.py")
    yield from (ROOT / "benchmarks/memory.py", ROOT / "requirements.lock")


def environment() -> dict[str, str]:
    """Of a process that the bench starts: the checkout's code, nothing of a DVC or MLflow above."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DVC", "MLFLOW_TRACKING", "BREPFIND", "PYTHON", "OMP"))
    }
    return {**inherited, "PYTHONPATH": f"src{os.pathsep}{ROOT}"}
