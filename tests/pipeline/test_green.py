"""All stages pass: what is there afterwards, and what a second command does."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from brepfind.pipeline.paths import STAGES
from tests.pipeline.project import TAG, Done, Project

pytestmark = pytest.mark.timeout(1800)

RECALL = "test/text_to_cad/R_at_1"


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for item in value.values() for number in _numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in _numbers(item)]
    return [float(value)] if isinstance(value, int | float) else []


def test_the_pipeline_run_is_finished_with_its_stages_under_it(green: Done) -> None:
    assert green.pipeline.info.status == "FINISHED"
    # Those that had passed before the repair are under the attempt that ran them.
    assert set(green.stages) == {"train", "health", "evaluate", "publish"}
    assert {run.info.status for run in green.stages.values()} == {"FINISHED"}
    assert green.stages["train"].data.params["train.processes"] == "2"


def test_params_and_recall_stand_on_the_pipeline_run(green: Done, project: Project) -> None:
    data = green.pipeline.data
    assert data.params["train.lr"] == "0.001"
    assert data.params["prepare.parts"] == "32.0"
    assert 0.0 <= data.metrics[RECALL] <= 1.0
    # Of stages that other attempts ran, too.
    assert data.metrics["extract/reject_rate"] == 0.0
    assert data.metrics["sanitize/coverage"] == 1.0


def test_every_metrics_file_is_strict_json_of_finite_numbers(green: Done, project: Project) -> None:
    for stage in STAGES:
        for folder in ("metrics", "metrics/cost"):
            text = (project.root / folder / f"{stage}.json").read_text(encoding="utf-8")
            content = json.loads(text, parse_constant=_refuse)
            assert all(math.isfinite(number) for number in _numbers(content)), stage


def test_the_evaluation_has_every_table_asked_for(green: Done, project: Project) -> None:
    result = project.json("metrics/evaluate.json")
    keys = {"n_queries", "n_items", "R_at_1", "R_at_5", "R_at_10", "median_rank"}
    tables = [result[name] for name in ("text_to_cad", "cad_to_text", "cad_to_cad")]
    tables += [result["baselines"][name]["text_to_cad"] for name in ("chance", "ridge")]
    assert all(keys <= set(table) for table in tables)
    items = result["text_to_cad"]["n_items"]
    assert result["baselines"]["chance"]["text_to_cad"]["R_at_1"] == pytest.approx(1 / items)


def test_report_index_and_weights_are_there(green: Done, project: Project) -> None:
    assert (project.root / "reports/report.md").read_text(encoding="utf-8").startswith("# Report")
    for path in ("data/index/index.json", "data/model/best.safetensors", "data/embeddings"):
        assert (project.root / path).exists()
    published = project.artifacts(green.pipeline, "report")
    assert {"report.md", "params.yaml", "dvc.lock"} <= published


def test_warnings_of_evaluate_are_on_the_page(green: Done, project: Project) -> None:
    found = project.json("reports/evaluate.json")["findings"]
    warned = [one["name"] for one in found if one["verdict"] == "warning"]
    assert warned  # so few test parts could not tell health from a collapse
    assert len(warned) == project.json("metrics/evaluate.json")["warnings"]
    page = (project.root / "reports/index.html").read_text(encoding="utf-8")
    assert all(f"<code>{name}</code>" in page for name in warned)


def test_a_second_command_does_nothing(green: Done, again: Done) -> None:
    assert again.ended.ran == []
    assert "Data and pipelines are up to date." in again.ended.output
    assert [run.info.run_id for run in again.pipelines] == [
        run.info.run_id for run in green.pipelines
    ]
    assert set(again.stages) == set(green.stages)


def test_a_limit_of_health_alone_gives_a_run_with_its_recall(
    mended: Done, other_limit: Done
) -> None:
    assert other_limit.ended.ran == ["health", "evaluate", "publish"]
    assert other_limit.pipeline.info.status == "FINISHED"
    assert other_limit.pipeline.info.run_id != mended.pipeline.info.run_id
    assert other_limit.pipeline.data.params["health.warn_mean_cosine"] == "0.5"
    for metric in (RECALL, "train/best/recall", "extract/graphs"):
        assert other_limit.pipeline.data.metrics[metric] == mended.pipeline.data.metrics[metric]
    assert other_limit.pipeline.data.tags[f"{TAG}attempt"] == "1"
