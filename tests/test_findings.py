import math

import pytest

from brepfind.errors import CheckFailed
from brepfind.files import digest
from brepfind.findings import Finding, at_least, at_most, failed, require


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.5, "ok"), (0.4, "failed"), (math.nan, "failed"), (math.inf, "ok")]
)
def test_at_least(value: float, verdict: str) -> None:
    assert at_least("rank", value, 0.5).verdict == verdict


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.5, "ok"), (0.6, "failed"), (math.nan, "failed"), (-math.inf, "ok")]
)
def test_at_most(value: float, verdict: str) -> None:
    assert at_most("cosine", value, 0.5).verdict == verdict


def test_a_softer_verdict_can_be_asked_for() -> None:
    assert at_most("gap", math.nan, 1, otherwise="warning").verdict == "warning"


def test_advice_is_kept_for_what_is_not_ok() -> None:
    assert at_least("a", 1, 0, advice="try b").advice == ""
    assert at_least("a", -1, 0, advice="try b").line() == "FAILED  a = -1 (asked: >= 0). try b"


def test_a_nan_can_be_written_as_strict_json() -> None:
    finding = at_least("a", math.nan, 0)
    assert finding.as_json()["value"] == "nan"
    assert digest(finding.as_json())


def test_require_names_the_first_failure_and_counts_the_rest() -> None:
    findings = [
        at_least("fine", 1, 0),
        at_least("health.cad.effective_rank", 0.01, 0.1, advice="the tower collapsed"),
        at_most("other", 2, 1),
    ]
    assert [finding.name for finding in failed(findings)] == ["health.cad.effective_rank", "other"]
    with pytest.raises(
        CheckFailed,
        match=r"health: health\.cad\.effective_rank is 0\.01, asked is >= 0\.1 \(and 1 more\): the",
    ) as caught:
        require("health", findings)
    assert caught.value.findings == tuple(findings)
    assert caught.value.exit_code == 1
    with pytest.raises(CheckFailed, match=r"collapsed; broken since epoch 3$"):
        require("health", findings, then="broken since epoch 3")


def test_require_is_silent_when_nothing_failed() -> None:
    require("x", [at_least("a", 1, 0), Finding(name="b", value="?", limit="", verdict="warning")])
