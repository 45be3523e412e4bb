"""A broken state stops the real ``dvc repro`` where it broke, says why and keeps the evidence."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from tests.pipeline.conftest import NAN_STEP
from tests.pipeline.project import TAG, Done, Project, Stop

# Set-up counts: run alone, a late test waits for all that comes before it.
pytestmark = pytest.mark.timeout(1800)

CASES = [
    ("garbage", "extract", ["prepare", "extract"]),
    ("nan_checkpoint", "sanitize", ["prepare", "extract", "split", "sanitize"]),
    ("nan_loss", "train", ["split", "sanitize", "train"]),
    ("constant_tower", "health", ["health"]),
    ("nan_weight", "health", ["health"]),
]


@pytest.fixture(params=CASES, ids=[case[0] for case in CASES])
def case(request: pytest.FixtureRequest) -> tuple[Stop, str, list[str]]:
    name, at, ran = request.param
    return request.getfixturevalue(name), at, ran


def test_a_broken_state_stops_where_it_broke(case: tuple[Stop, str, list[str]]) -> None:
    stopped, _, ran = case
    assert stopped.ended.code != 0
    # What had passed before did not run again, and nothing ran after.
    assert stopped.ended.ran == ran
    assert stopped.before == stopped.after


def test_one_sentence_names_the_check_and_the_evidence(case: tuple[Stop, str, list[str]]) -> None:
    stopped, at, _ = case
    assert stopped.ended.sentence.startswith(f"STOPPED at {at}: ")
    assert f"Evidence: reports/{at}-failure.md and .brepfind/postmortem/" in stopped.ended.sentence
    assert "Traceback" not in stopped.ended.output
    reason = stopped.pipeline.data.tags[f"{TAG}reason"].rstrip(".")
    assert reason in stopped.ended.sentence
    assert stopped.report.startswith(f"# {at} stopped\n\n{reason}")
    assert str(stopped.evidence) in stopped.report
    assert (stopped.evidence / "report.md").read_text(encoding="utf-8") == stopped.report


def test_mlflow_has_it_failed_with_the_reason(case: tuple[Stop, str, list[str]]) -> None:
    stopped, at, _ = case
    stage = stopped.stages[at]
    assert stage.info.status == "FAILED"
    assert stopped.pipeline.info.status == "FAILED"
    assert stopped.pipeline.data.tags[f"{TAG}stopped_at"] == at
    assert stopped.pipeline.data.tags[f"{TAG}reason"] == stage.data.tags[f"{TAG}reason"] != ""
    assert {"report.md", "findings.json", "params.yaml"} <= stopped.artifacts
    others = [run.info.status for name, run in stopped.stages.items() if name != at]
    assert set(others) <= {"FINISHED"}


def test_garbage_names_every_file(garbage: Stop) -> None:
    assert "extract.reject_rate is 0.5, asked is <= 0.05" in garbage.ended.sentence
    rejects = pd.read_csv(garbage.evidence / "rejects.csv")
    assert sorted(rejects["path"]) == sorted(garbage.facts["rejected"].splitlines())
    assert set(rejects["reason"]) == {"unreadable"}
    assert "rejects.csv" in garbage.artifacts
    assert garbage.after == {}  # no split, no weights, no model


def test_a_nan_in_the_checkpoint_names_the_tensor(nan_checkpoint: Stop) -> None:
    assert nan_checkpoint.facts["tensor"] in nan_checkpoint.ended.sentence
    assert nan_checkpoint.facts["tensor"] in nan_checkpoint.report
    found = json.loads((nan_checkpoint.evidence / "report.json").read_text(encoding="utf-8"))
    assert nan_checkpoint.facts["tensor"] in json.dumps(found["findings"])
    assert nan_checkpoint.after == {}


def test_a_nan_loss_names_step_rank_and_parts(nan_loss: Stop, project: Project) -> None:
    assert f"step {NAN_STEP}" in nan_loss.ended.sentence
    facts = json.loads((nan_loss.evidence / "reason.json").read_text(encoding="utf-8"))
    assert facts["step"] == NAN_STEP
    assert facts["rank"] in (0, 1)
    known = set(pd.read_parquet(project.root / "data/split/split.parquet")["model_id"])
    assert facts["part_ids"] and set(facts["part_ids"]) <= known
    assert "reason.json" in nan_loss.artifacts
    assert nan_loss.after == {}


def test_a_constant_tower_is_named(constant_tower: Stop) -> None:
    assert "the embeddings: health.cad." in constant_tower.ended.sentence
    signs = json.loads((constant_tower.evidence / "health.json").read_text(encoding="utf-8"))
    assert signs["self_retrieval"] < 0.5
    assert "health.cad.distinct" in constant_tower.report
    assert "evaluate" not in constant_tower.stages


def test_a_nan_weight_is_named_with_its_share(nan_weight: Stop) -> None:
    assert "text_projection.out.weight" in nan_weight.ended.sentence
    rows = json.loads((nan_weight.evidence / "tensors.json").read_text(encoding="utf-8"))
    bad = [row for row in rows if row["kind"] == "nan"]
    assert [(row["file"], row["name"]) for row in bad] == [
        ("best.safetensors", "text_projection.out.weight")
    ]
    assert 0 < bad[0]["share"] < 1
    assert "evaluate" not in nan_weight.stages


def test_after_a_repair_the_next_command_goes_on(nan_loss: Stop, green: Done) -> None:
    # The three repairs before it: files, checkpoint, loss; each time only what was left ran.
    assert green.ended.ran == ["train", "health", "evaluate", "publish"]
    assert green.pipeline.info.status == "FINISHED"
    assert green.pipeline.info.run_id != nan_loss.pipeline.info.run_id
    # The same state again: a new attempt beside the failed one, which stays failed.
    tags, failed = green.pipeline.data.tags, nan_loss.pipeline.data.tags
    assert tags[f"{TAG}fingerprint"] == failed[f"{TAG}fingerprint"]
    assert int(tags[f"{TAG}attempt"]) == int(failed[f"{TAG}attempt"]) + 1
    status = {run.info.run_id: run.info.status for run in green.pipelines}
    assert status[nan_loss.pipeline.info.run_id] == "FAILED"


def test_after_a_bad_model_is_replaced_a_new_attempt_is_finished(
    green: Done, constant_tower: Stop, nan_weight: Stop, mended: Done, project: Project
) -> None:
    assert mended.ended.ran[0] == "health"
    assert "train" not in mended.ended.ran
    assert mended.ended.ran[-1] == "publish"
    tags = mended.pipeline.data.tags
    assert mended.pipeline.info.status == "FINISHED"
    assert tags[f"{TAG}fingerprint"] == green.pipeline.data.tags[f"{TAG}fingerprint"]
    attempts = [
        int(run.data.tags[f"{TAG}attempt"])
        for run in (green.pipeline, constant_tower.pipeline, nan_weight.pipeline, mended.pipeline)
    ]
    assert attempts == [2, 3, 4, 5]
    # A report of a failure goes away when the stage passes.
    assert list((project.root / "reports").glob("*-failure.md")) == []
