"""The right verdict for every generator, and NaN fails every limit."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from brepfind.metrics.gate import STANDARD_LIMITS, HealthConfig, judge, self_retrieval_finding
from brepfind.metrics.vitals import vitals

_spec = importlib.util.spec_from_file_location(
    "generators", Path(__file__).parent / "generators.py"
)
generators = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generators)

SIZES = [64, 65, 300, 2000, pytest.param(20_000, marks=pytest.mark.slow)]


def state(rows, **kwargs):
    return judge("CAD", vitals(rows.astype(np.float32)), STANDARD_LIMITS, **kwargs).state


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", generators.COLLAPSED)
def test_a_collapse_is_called_one(name, n):
    assert state(generators.rows_of(generators.COLLAPSED[name], n)) == "collapsed"


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", generators.SOUND)
def test_what_is_sound_goes_on(name, n):
    make, verdict = generators.SOUND[name]
    assert state(generators.rows_of(make, n)) == verdict


@pytest.mark.parametrize("n", [0, 1, 2, 63])
def test_below_64_rows_nothing_passes(n):
    judged = judge("Text", vitals(np.ones((n, 8), np.float32)), STANDARD_LIMITS)
    assert judged.state == "too few"
    assert [finding.verdict for finding in judged.findings] == ["failed"]
    assert "too few Text embeddings" in judged.findings[0].advice


def test_copies_of_few_inputs_are_too_few_however_many_rows():
    signs = vitals(np.random.default_rng(0).standard_normal((640, 8)), np.arange(640) // 64)
    assert judge("CAD", signs, STANDARD_LIMITS).state == "too few"


NUMBERS = [
    "column_std", "mean_cosine", "rank", "rank_centred", "rank_share", "rank_share_centred",
    "participation", "distinct", "near_copies", "dead_columns",
]  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_nan_fails_each_limit(name):
    signs = vitals(np.random.default_rng(0).standard_normal((64, 256)))
    judged = judge("CAD", replace(signs, **{name: float("nan")}), STANDARD_LIMITS)
    # A dead column is worth a warning at most; all the others stop the run.
    assert judged.state == ("warning" if name == "dead_columns" else "collapsed")


BEYOND = {
    "nonfinite_rows": 1,
    "zero_rows": 1,
    "column_std": 0.09,
    "mean_cosine": 0.96,
    "rank": 4.9,
    "rank_centred": 4.9,
    "rank_share": 0.01,
    "rank_share_centred": 0.01,
    "participation": 1.9,
    "distinct": 0.4,
    "near_copies": 0.6,
}


@pytest.mark.parametrize("name", BEYOND)
def test_each_limit_alone_stops_the_run(name):
    signs = vitals(np.random.default_rng(0).standard_normal((64, 256)))
    assert judge("CAD", signs, STANDARD_LIMITS).state == "ok"
    judged = judge("CAD", replace(signs, **{name: BEYOND[name]}), STANDARD_LIMITS)
    assert judged.state == "collapsed"
    assert sum(finding.verdict == "failed" for finding in judged.findings) == 1


@pytest.mark.parametrize(
    ("name", "value"), [("mean_cosine", 0.8), ("rank_share", 0.05), ("rank_share_centred", 0.05)]
)
def test_between_the_limits_it_warns(name, value):
    signs = vitals(np.random.default_rng(0).standard_normal((64, 256)))
    judged = judge("CAD", replace(signs, **{name: value}), STANDARD_LIMITS)
    assert judged.state == "warning"


def test_a_warning_names_step_0():
    rows = generators.rows_of(generators.SOUND["healthy_but_off_centre"][0], 64)
    judged = judge("Text", vitals(rows), STANDARD_LIMITS, step0=vitals(rows + 1.0))
    (finding,) = [finding for finding in judged.findings if finding.verdict == "warning"]
    assert finding.advice == "nearly all text embeddings point one way (0.94 at step 0)"


def test_in_few_dimensions_half_of_them_is_enough():
    rows = np.random.default_rng(0).standard_normal((200, 4)).astype(np.float32)
    assert state(rows) == "ok"


def test_self_retrieval():
    assert self_retrieval_finding(1.0, STANDARD_LIMITS).verdict == "ok"
    assert self_retrieval_finding(0.98, STANDARD_LIMITS).verdict == "failed"
    assert self_retrieval_finding(float("nan"), STANDARD_LIMITS).verdict == "failed"


def test_limits_are_checked():
    fields = STANDARD_LIMITS.model_dump()
    assert HealthConfig(**fields) == STANDARD_LIMITS
    with pytest.raises(ValidationError, match="min_distinct"):
        HealthConfig(**fields | {"min_distinct": 1.5})
    with pytest.raises(ValidationError, match="max_mean_cosine"):
        HealthConfig(**fields | {"max_mean_cosine": float("nan")})
