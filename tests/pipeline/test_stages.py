"""dvc.yaml, params.yaml and the code say the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import grimp
import pytest
import yaml

from brepfind.cad.extract import ExtractConfig
from brepfind.checkpoints.sanitize import SanitizeConfig
from brepfind.corpus.prepare import PrepareConfig
from brepfind.corpus.splits import SplitConfig
from brepfind.metrics.gate import HealthConfig
from brepfind.params import Section, load_section, read_params
from brepfind.pipeline.config import PublishConfig, RuntimeConfig
from brepfind.pipeline.paths import STAGES
from brepfind.retrieval.evaluate import EvaluateConfig
from brepfind.training.config import TrainConfig
from tests.pipeline.project import REPO, Project

SECTIONS: dict[str, type[Section]] = {
    "prepare": PrepareConfig,
    "extract": ExtractConfig,
    "split": SplitConfig,
    "sanitize": SanitizeConfig,
    "train": TrainConfig,
    "health": HealthConfig,
    "evaluate": EvaluateConfig,
    "publish": PublishConfig,
    "runtime": RuntimeConfig,
}

# What cannot change a result: who runs a stage, who listens, how it is said.
_NO_RESULT = {
    "brepfind",
    "brepfind.pipeline",
    *(
        f"brepfind.pipeline.{name}"
        for name in (
            "config",
            "context",
            "datasets",
            "failure",
            "fingerprint",
            "join",
            "paths",
            "publish_model",
            "runner",
            "tether",
        )
    ),
    *(f"brepfind.{name}" for name in ("errors", "events", "log", "processes")),
    "brepfind.tracking",
    *(
        f"brepfind.tracking.{name}"
        for name in (
            "champion",
            "machine",
            "package",
            "registry",
            "served",
            "spool",
            "store",
            "tracker",
        )
    ),
}

ALL = {"extract", "split", "train", "health", "evaluate", "publish"}
MODEL = {"train", "health", "evaluate", "publish"}
TOUCHED: list[tuple[str, set[str]]] = [
    ("findings.py", set(STAGES)),
    ("corpus/prepare.py", {"prepare"}),
    ("corpus/sample/generate.py", {"prepare"}),
    ("corpus/splits.py", {"prepare", "split", "evaluate", "publish"}),
    ("corpus/manifest.py", {"prepare"} | ALL),
    ("cad/topology.py", {"extract", "publish"}),
    ("cad/arrays.py", ALL),
    ("graphs/store.py", ALL),
    ("checkpoints/scan.py", {"split", "sanitize"} | MODEL),
    ("models/encoder.py", {"sanitize"} | MODEL),
    ("metrics/gate.py", MODEL),
    ("distributed/group.py", {"train"}),
    ("training/loop.py", {"train"}),
    ("training/build.py", {"train", "health"}),
    ("retrieval/embed.py", {"health", "evaluate", "publish"}),
    ("retrieval/leaks.py", {"split", "health", "evaluate", "publish"}),
    ("report/markdown.py", {"publish"}),
    ("report/templates/style.css", {"publish"}),
    ("pipeline/page.py", {"publish"}),
    *((f"pipeline/{stage}.py", {stage}) for stage in STAGES if stage != "evaluate"),
    ("pipeline/evaluate.py", {"evaluate", "publish"}),  # publish shows the same directions
    # These can change no result.
    ("pipeline/runner.py", set()),
    ("tracking/tracker.py", set()),
    ("cli.py", set()),
    ("log.py", set()),
]

_STATUS = """
import json, sys
from pathlib import Path
from dvc.repo import Repo

found = {}
with Repo(".") as repo:
    for name in json.loads(sys.argv[1]):
        file = Path("src/brepfind") / name
        before = file.read_bytes()
        file.write_bytes(before + b"# touched\\n")
        found[name] = sorted(repo.status())
        file.write_bytes(before)
    found[""] = sorted(repo.status())
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    content = yaml.safe_load((REPO / "dvc.yaml").read_text(encoding="utf-8"))
    stages: dict[str, Any] = content["stages"]
    return stages


def test_sections_are_the_stages_and_runtime(described: dict[str, Any]) -> None:
    assert list(read_params(REPO / "params.yaml")) == [*STAGES, "runtime"]
    assert list(described) == list(STAGES)
    assert sorted(path.stem for path in (REPO / "stages").glob("*.py")) == sorted(STAGES)


@pytest.mark.parametrize("name", SECTIONS)
def test_params_yaml_is_valid(name: str) -> None:
    load_section(REPO / "params.yaml", name, SECTIONS[name])


@pytest.mark.parametrize(
    ("stage", "config", "no_result"),
    [("train", TrainConfig, {"timeout_s"}), ("extract", ExtractConfig, {"cluster"})],
)
def test_a_stage_depends_on_every_setting_that_changes_a_result(
    stage: str, config: type[Section], no_result: set[str], described: dict[str, Any]
) -> None:
    wanted = {f"{stage}.{name}" for name in config.model_fields if name not in no_result}
    assert set(described[stage]["params"]) == wanted


def test_publish_depends_on_every_section(described: dict[str, Any]) -> None:
    """Otherwise a pipeline run of which it is the only stage left would never be closed."""
    leaves = {*described["train"]["params"], *described["extract"]["params"]}
    assert set(described["publish"]["params"]) == {*STAGES, *leaves} - {"train", "extract"}


def test_a_stage_depends_on_all_code_it_imports(described: dict[str, Any]) -> None:
    """What is imported and undeclared would leave a stage up to date after a change."""
    graph = grimp.build_graph("brepfind", cache_dir=None)
    missing = {}
    for stage in STAGES:
        modules = {f"brepfind.pipeline.{stage}"}
        if stage == "train":  # under torchrun
            modules |= {"brepfind.distributed.launch", "brepfind.training.__main__"}
        used = modules.union(*map(graph.find_upstream_modules, modules))
        declared = [Path(dep.replace("${code}", "brepfind")) for dep in described[stage]["deps"]]
        undeclared = {
            module
            for module in used - _NO_RESULT
            if not any(
                Path(module.replace(".", "/")).is_relative_to(dep.with_suffix(""))
                for dep in declared
            )
        }
        if undeclared:
            missing[stage] = sorted(undeclared)
    assert missing == {}


@pytest.fixture(scope="module")
def status(project: Project, request: pytest.FixtureRequest) -> dict[str, list[str]]:
    """By source file: the stages that DVC would run again after a change of it."""
    request.getfixturevalue("experiment")
    names = json.dumps([name for name, _ in TOUCHED])
    ended = project.command(sys.executable, "-W", "ignore", "-c", _STATUS, names)
    assert ended.code == 0, ended.output[-3000:]
    found: dict[str, list[str]] = json.loads(ended.output.splitlines()[-1])
    return found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "stages"), TOUCHED, ids=[name for name, _ in TOUCHED])
def test_a_touched_source_runs_the_right_stages_again(
    name: str, stages: set[str], status: dict[str, list[str]]
) -> None:
    assert status[""] == []
    assert set(status[name]) == stages
