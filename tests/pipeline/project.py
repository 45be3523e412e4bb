"""A project of its own for tests: git, DVC and MLflow store apart from the checkout's."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from brepfind.files import sha256
from brepfind.params import read_params

REPO = Path(__file__).resolve().parents[2]
TAG = "brepfind."

# A corpus that trains in seconds, and limits that so few parts can reach.
TINY: dict[str, Any] = {
    "prepare.parts": 32,
    "prepare.captions_per_part": 2,
    "extract.shards": 4,
    "split.test": 0.25,
    "split.validation": 0.2,
    "split.min_parts": 3,
    "sanitize.checkpoint": "data/pretrained/tiny.ckpt",
    "train.processes": 2,
    "train.epochs": 2,
    "train.batch_size": 8,
    "train.warmup_steps": 2,
    "train.embed_dim": 32,
    "train.validation_every": 1,
    "train.min_embedding_std": 0.01,
    "train.min_distinct_rows": 0.2,
    "health.min_rows": 16,
    "health.min_column_std": 0.02,
    "health.max_mean_cosine": 0.999,
    "health.min_effective_rank": 1.2,
    "health.min_participation": 1.05,
    "health.max_near_copies": 0.9,
    "evaluate.bootstrap": 50,
}


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    output: str

    @property
    def ran(self) -> list[str]:
        """The stages that DVC ran, in order."""
        return re.findall(r"Running stage '(\w+)'", self.output)

    @property
    def sentence(self) -> str:
        """The one line that says why a stage stopped."""
        said = [line for line in self.output.splitlines() if line.startswith("STOPPED at ")]
        assert len(said) == 1, self.output[-3000:]
        return said[0]


@dataclass(frozen=True)
class Stop:
    """A command that stopped, as it was right after."""

    ended: Ended
    pipeline: Run
    stages: dict[str, Run]
    evidence: Path
    report: str
    page: str
    artifacts: set[str]
    before: dict[str, str]
    after: dict[str, str]
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """A command that ended well, as it was right after."""

    ended: Ended
    pipelines: list[Run]
    stages: dict[str, Run]

    @property
    def pipeline(self) -> Run:
        """The newest pipeline run."""
        return self.pipelines[0]


class Project:
    """The copy: edited, run and looked at as its owner would."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def make(cls, root: Path) -> Project:
        """A copy of the code with tiny settings, under git and DVC; no data yet."""
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
        for name in ("src", "stages"):
            shutil.copytree(REPO / name, root / name, ignore=ignore)
        for name in (".gitignore", ".dvcignore", "dvc.yaml", "params.yaml", "requirements.lock"):
            shutil.copy2(REPO / name, root / name)
        for name in ("data/raw", "data/pretrained"):
            (root / name).mkdir(parents=True)
            shutil.copy2(REPO / name / "README.md", root / name)
        shutil.copy2(REPO / "data/.gitignore", root / "data")
        project = cls(root)
        project.set(TINY)
        for command in (
            ["git", "init", "--quiet", "--initial-branch=main"],
            [sys.executable, "-m", "dvc", "init", "--quiet"],
        ):
            assert project.command(*command).code == 0
        shutil.copy2(REPO / ".dvc/config", root / ".dvc/config")
        return project

    # Acts

    def command(self, *command: str, timeout_s: float = 900, **environment: str) -> Ended:
        """Run a command in the project, as in a fresh shell with the venv on the path."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DVC", "MLFLOW", "BREPFIND", "GIT_", "PYTHON"))
        }
        done = subprocess.run(
            command,
            cwd=self.root,
            env={
                **inherited,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "DVC_SITE_CACHE_DIR": str(self.root.parent / "dvc-site"),
                **{f"GIT_{who}_NAME": "Test" for who in ("AUTHOR", "COMMITTER")},
                **{f"GIT_{who}_EMAIL": "test@example.com" for who in ("AUTHOR", "COMMITTER")},
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        return Ended(done.returncode, done.stdout)

    def dvc(self, *arguments: str, timeout_s: float = 900, **environment: str) -> Ended:
        return self.command(
            sys.executable, "-m", "dvc", *arguments, timeout_s=timeout_s, **environment
        )

    def commit(self, message: str) -> None:
        assert self.command("git", "add", "--all").code == 0
        ended = self.command("git", "commit", "--quiet", "--message", message)
        assert ended.code == 0, ended.output

    def set(self, values: Mapping[str, Any]) -> None:
        """Change params.yaml: ``{"train.lr": 0.1}``."""
        file = self.root / "params.yaml"
        params = read_params(file)
        for name, value in values.items():
            *sections, key = name.split(".")
            section = params
            for part in sections:
                section = section[part]
            assert key in section, name
            section[key] = value
        file.write_text(yaml.safe_dump(params, sort_keys=False), encoding="utf-8")

    # What is there

    def json(self, path: str) -> Any:
        return json.loads((self.root / path).read_text(encoding="utf-8"))

    def digests(self, *folders: str) -> dict[str, str]:
        """SHA-256 of every file below some folders; none for a folder that is not there."""
        files = [
            file
            for folder in folders
            for file in sorted((self.root / folder).rglob("*"))
            if file.is_file()
        ]
        return {file.relative_to(self.root).as_posix(): sha256(file) for file in files}

    def evidence(self, ended: Ended) -> Path:
        """The folder that the sentence of a stopped stage names."""
        found = re.search(r"Evidence: (\S+) and (\S+)$", ended.sentence)
        assert found is not None, ended.sentence
        assert (self.root / found[1]).is_file()
        folder = self.root / found[2]
        assert folder.is_dir()
        return folder

    def client(self) -> MlflowClient:
        with warnings.catch_warnings():
            # SQLAlchemy 2.1 deprecates what MLflow 3.17 does with it.
            warnings.simplefilter("ignore")
            return MlflowClient(f"sqlite:///{self.root / 'mlflow.db'}")

    def runs(self, kind: str = "pipeline") -> list[Run]:
        """All runs of a kind in the project's own store, the newest first."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            client = self.client()
            return list(
                client.search_runs(
                    [one.experiment_id for one in client.search_experiments()],
                    f"tags.`{TAG}kind` = '{kind}'",
                    order_by=["attributes.start_time DESC"],
                )
            )

    def stages_of(self, pipeline: Run) -> dict[str, Run]:
        """The stage runs under a pipeline run, by stage."""
        return {
            run.data.tags[f"{TAG}stage"]: run
            for run in self.runs("stage")
            if run.data.tags["mlflow.parentRunId"] == pipeline.info.run_id
        }

    def artifacts(self, run: Run, folder: str) -> set[str]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            listed = self.client().list_artifacts(run.info.run_id, folder)
            return {Path(one.path).name for one in listed}

    def artifact(self, run: Run, path: str) -> str:
        """The text of one artifact."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Path(self.client().download_artifacts(run.info.run_id, path)).read_text("utf-8")
