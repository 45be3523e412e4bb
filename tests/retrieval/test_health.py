import json

import numpy as np
import pandas as pd
import pytest

from brepfind.errors import CheckFailed
from brepfind.findings import require
from brepfind.metrics.gate import STANDARD_LIMITS
from brepfind.retrieval.health import (
    check_embeddings,
    distinct_inputs,
    probe_ids,
    tower_vitals,
)


@pytest.fixture
def some(embeddings_of):
    """A function: cad rows and text rows of 100 parts to embeddings."""
    rows = [(f"p{i}", f"caption {i}", 0) for i in range(100)]
    return lambda cad, text, **changes: embeddings_of(cad, rows, text, **changes)


def normal(seed):
    return np.random.default_rng(seed).standard_normal((100, 32))


def test_health_of_sound_towers(some):
    report = check_embeddings(some(normal(0), normal(1)), STANDARD_LIMITS)
    require("health", report.findings)
    assert report.self_retrieval == 1.0
    assert report.text.splitlines()[0] == "[Diagnostic] embeddings (n=100)"
    assert [judged.state for judged in report.towers] == ["ok", "ok"]
    plain = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert plain["verdict"] == {"cad": "ok", "text": "ok"}
    assert set(plain["vitals"]) == {"cad", "text"}  # nothing was kept from before projection


def test_one_constant_tower_is_named(some):
    report = check_embeddings(some(np.ones((100, 32)), normal(1)), STANDARD_LIMITS)
    assert [judged.state for judged in report.towers] == ["collapsed", "ok"]
    assert report.self_retrieval == 1 / 100
    with pytest.raises(CheckFailed, match=r"health: health\.cad\.column_std is .*constant"):
        require("health", report.findings)


@pytest.mark.parametrize("bad", [np.nan, 0.0])
def test_a_broken_row_fails_self_retrieval_too(some, bad):
    cad = normal(0)
    cad[7] = bad
    report = check_embeddings(some(cad, normal(1)), STANDARD_LIMITS)
    verdicts = {finding.name: finding.verdict for finding in report.findings}
    assert verdicts["health.self_retrieval"] == "failed"
    assert report.as_json()["self_retrieval"] is None
    assert json.dumps(report.as_json(), allow_nan=False)


def test_step_0_is_told(some):
    before = tower_vitals(some(normal(0) + 3.0, normal(1) + 3.0))
    after = some(normal(0), normal(1) + 3.0)
    report = check_embeddings(after, STANDARD_LIMITS, step0=before)
    assert "one way (0.90 at step 0)" in report.text
    assert set(report.as_json()["step0"]) == {"cad", "text"}


def test_rows_before_projection_are_measured_when_kept(some):
    with_before = some(normal(0), normal(1), cad_before=normal(2).astype(np.float32))
    assert set(check_embeddings(with_before, STANDARD_LIMITS).as_json()["vitals"]) == {
        "cad",
        "text",
        "cad_before",
    }


def test_probe_is_validation_topped_up_from_train_and_never_test():
    split = pd.DataFrame({"model_id": list("fedcba"), "split": ["test", "train", "validation"] * 2})
    assert probe_ids(split, 2) == ["a", "d"]
    assert probe_ids(split, 3) == ["a", "d", "b"]
    assert probe_ids(split, 60) == ["a", "d", "b", "e"]


def test_distinct_inputs_are_the_fewer_of_parts_and_captions(embeddings_of):
    rows = [("p0", "one", 0), ("p1", "One", 0), ("p2", "two", 0)]
    assert distinct_inputs(embeddings_of(np.eye(3), rows, np.eye(3))) == 2
    assert distinct_inputs(embeddings_of(np.eye(3), rows, np.eye(3), twin=[5, 5, 5])) == 1
    assert distinct_inputs(embeddings_of(np.eye(3), [], np.zeros((0, 3)))) == 0
