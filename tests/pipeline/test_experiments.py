"""DVC's own commands over a project's metrics, plots, params and experiments."""

from __future__ import annotations

import json
import re
import time

import pytest

from tests.pipeline.project import TAG, Done, Project

pytestmark = pytest.mark.timeout(1800)

RECALL = "test/text_to_cad/R_at_1"


def test_an_experiment_compares_with_the_base_run(other_limit: Done, experiment: Done) -> None:
    assert experiment.ended.ran == ["train", "health", "evaluate", "publish"]
    run, base = experiment.pipeline, other_limit.pipeline
    assert run.info.experiment_id == base.info.experiment_id
    assert run.info.status == "FINISHED"
    # `-S` writes 1e-05, which is a number all the same.
    assert (run.data.params["train.lr"], base.data.params["train.lr"]) == ("1e-05", "0.001")
    differ = {key for key, value in run.data.params.items() if base.data.params.get(key) != value}
    assert differ == {"train.lr"}
    assert RECALL in run.data.metrics and RECALL in base.data.metrics
    assert run.info.run_name.split(" #")[0] in experiment.ended.output  # DVC's name of it


def test_metrics_diff(experiment: Done, project: Project) -> None:
    ended = project.dvc("metrics", "diff", "--json", "--all")
    assert ended.code == 0, ended.output
    changed = json.loads(ended.output)
    assert {"old", "new"} <= set(changed["metrics/evaluate.json"]["text_to_cad.R_at_1"])
    assert "best.recall" in changed["metrics/train.json"]


def test_params_diff(experiment: Done, project: Project) -> None:
    ended = project.dvc("params", "diff", "--json")
    assert ended.code == 0, ended.output
    changed = json.loads(ended.output)["params.yaml"]
    assert list(changed) == ["train.lr"]
    assert (changed["train.lr"]["old"], changed["train.lr"]["new"]) == (0.001, 1e-05)


def test_plots_show(experiment: Done, project: Project) -> None:
    ended = project.dvc("plots", "show", "--json")
    assert ended.code == 0, ended.output
    for name in ("loss", "validation_recall", "logit_scale"):
        assert name in ended.output
    page = project.dvc("plots", "diff", "HEAD")
    assert page.code == 0, page.output
    assert (project.root / "dvc_plots/index.html").is_file()


def test_exp_show_has_a_row_for_it(experiment: Done, project: Project) -> None:
    ended = project.dvc("exp", "show", "--csv")
    assert ended.code == 0, ended.output
    assert "1e-05" in ended.output and "text_to_cad.R_at_1" in ended.output


def wait_for_queue(project: Project, limit_s: float = 1200) -> None:
    """`dvc queue start` returns at once; `dvc queue status` says how its experiments stand."""
    deadline = time.monotonic() + limit_s
    while True:
        said = project.dvc("queue", "status").output
        if not re.search(r"\b(Queued|Running)\b", said):
            break
        assert time.monotonic() < deadline, said
        time.sleep(2)
    assert "Failed" not in said, said


@pytest.mark.slow
def test_temporary_and_queued_experiments_reach_the_main_store(
    experiment: Done, project: Project
) -> None:
    """They run in copies that are deleted; every row and artifact is in the checkout's store.

    The queue is the README's: a grid of values, then two workers.
    """
    known = {run.info.run_id for run in project.runs()}
    commands = [
        ("exp", "run", "--temp", "--name", "temporary", "-S", "evaluate.seed=11"),
        ("exp", "run", "--queue", "--name", "grid", "-S", "evaluate.seed=12,13"),
        ("queue", "start", "-j", "2"),
    ]
    for command in commands:
        ended = project.dvc(*command, timeout_s=900)
        assert ended.code == 0, ended.output[-3000:]
    wait_for_queue(project)
    new = {
        run.data.tags[f"{TAG}experiment_name"]: run
        for run in project.runs()
        if run.info.run_id not in known
    }
    assert set(new) == {"temporary", "grid-1", "grid-2"}
    assert {run.info.experiment_id for run in new.values()} == {
        experiment.pipeline.info.experiment_id
    }
    for name, seed in (("temporary", "11.0"), ("grid-1", "12.0"), ("grid-2", "13.0")):
        run = new[name]
        assert run.info.status == "FINISHED", name
        assert run.data.params["evaluate.seed"] == seed
        assert RECALL in run.data.metrics
        assert set(project.stages_of(run)) >= {"evaluate", "publish"}
        assert "report.md" in project.artifacts(run, "report")
    databases = sorted(path.name for path in project.root.rglob("mlflow.db"))
    assert databases == ["mlflow.db"]
