"""Files that have crashed, hung or fooled readers; what must become of each stands beside them."""

from pathlib import Path

import numpy as np
import pytest

from brepfind.cad.extract import ExtractConfig
from brepfind.cad.pool import Outcome, extract_many

ZOO = Path(__file__).parents[1] / "fixtures" / "cad" / "zoo"
CONFIG = ExtractConfig(
    grid=10,
    max_faces=1000,
    multi_solid="merge",
    timeout_s=20.0,
    memory_gb=4.0,
    max_reject_rate=1.0,
    shards=1,
)
EXPECTED = [
    line.split("\t") for line in (ZOO / "EXPECTED.tsv").read_text(encoding="utf-8").splitlines()[1:]
]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    files = [(name, ZOO / name) for name, _, _ in EXPECTED]
    found = list(extract_many(files, CONFIG, workers=2))
    assert len(found) == len(EXPECTED)
    return {outcome.key: outcome for outcome in found}


@pytest.mark.parametrize(("name", "expected", "what"), EXPECTED)
def test_every_line_is_met(
    outcomes: dict[str, Outcome], name: str, expected: str, what: str
) -> None:
    outcome = outcomes[name]
    verdict, _, detail = expected.partition(" ")
    if verdict == "reject" or (verdict == "either" and outcome.reject):
        assert outcome.reject is not None
        assert outcome.parts == []
        assert detail in ("", outcome.reject.reason)
        assert outcome.reject.message
    else:
        assert outcome.reject is None
        assert len(outcome.parts) == 1
        if detail:
            assert outcome.parts[0].n_faces == int(detail)


def test_nothing_in_the_zoo_is_left_out() -> None:
    there = {path.name for path in ZOO.iterdir()} - {"EXPECTED.tsv"}
    assert there == {name for name, _, _ in EXPECTED}


def test_a_pointer_says_what_to_do(outcomes: dict[str, Outcome]) -> None:
    assert "git lfs pull" in str(outcomes["lfs_pointer.step"].reject)


@pytest.mark.parametrize("name", ["unit_inch.step", "unit_metre.step"])
def test_units_make_no_difference(outcomes: dict[str, Outcome], name: str) -> None:
    control, other = outcomes["ok_box.step"].parts[0], outcomes[name].parts[0]
    assert other.facts.unit == name[5:-5].replace("metre", "m")
    np.testing.assert_allclose(other.face_grid, control.face_grid, atol=1e-6)
    np.testing.assert_allclose(other.edge_grid, control.edge_grid, atol=1e-6)
    np.testing.assert_allclose(other.facts.box_max, [10, 20, 30], atol=1e-6)
    assert other.facts.volume == pytest.approx(6000, rel=1e-9)
