"""Each likely cause is told apart from the others."""

import math
from dataclasses import replace

import numpy as np
import pytest

from brepfind.metrics.causes import Circumstances, likely_causes
from brepfind.metrics.gate import STANDARD_LIMITS, judge
from brepfind.metrics.vitals import vitals

RNG = np.random.default_rng(0)
SOUND = RNG.standard_normal((100, 64))
ONE_WAY = SOUND + 3.0
CONSTANT = np.ones((100, 64))
BROKEN = np.where(np.arange(100)[:, None] == 7, np.nan, SOUND)
FLAT = RNG.standard_normal((100, 3)) @ RNG.standard_normal((3, 64))


def names(cad, text, step0=None, **known):
    towers = [
        judge("CAD", vitals(cad), STANDARD_LIMITS),
        judge(
            "Text", vitals(text), STANDARD_LIMITS, step0=None if step0 is None else vitals(step0)
        ),
    ]
    return [cause.name for cause in likely_causes(towers, Circumstances(**known))]


def test_what_is_well_has_no_cause():
    assert names(SOUND, SOUND, scale=100.0, batch=4, dead_weights=["a"]) == []


def test_dead_weights():
    assert names(BROKEN, SOUND)[0] == "dead_weights"
    assert names(CONSTANT, SOUND, dead_weights=["part_projection.out.weight"])[0] == "dead_weights"


def test_a_frozen_tower_that_never_saw_such_text():
    assert names(SOUND, ONE_WAY, step0=ONE_WAY, text_frozen=True) == ["frozen_text"]
    assert names(SOUND, ONE_WAY, step0=ONE_WAY) == ["frozen_text"]
    # it went there while learning, or it was told to learn: another thing
    assert names(SOUND, ONE_WAY, step0=SOUND, text_frozen=True) == []
    assert names(SOUND, ONE_WAY, step0=ONE_WAY, text_frozen=False) == []
    assert names(SOUND, ONE_WAY) == []


def test_temperature_at_its_clamp():
    assert names(SOUND, ONE_WAY, scale=99.9) == ["temperature_at_clamp"]
    assert names(SOUND, ONE_WAY, scale=14.3) == []
    assert names(SOUND, ONE_WAY, scale=math.nan) == []


def test_one_tower_constant():
    assert names(CONSTANT, SOUND) == ["one_tower_constant"]
    assert names(SOUND, CONSTANT) == ["one_tower_constant"]
    assert "one_tower_constant" not in names(CONSTANT, CONSTANT)
    assert names(BROKEN, SOUND) == ["dead_weights"]


def test_too_few_negatives():
    assert names(FLAT, FLAT, batch=4) == ["few_negatives"]
    assert names(FLAT, FLAT, batch=512) == ["unknown"]
    assert names(CONSTANT, CONSTANT, batch=512, loss=math.log(512)) == ["stuck_at_chance"]
    assert names(FLAT, SOUND, batch=512, loss=math.log(512)) == ["unknown"]


@pytest.mark.parametrize("cad", [CONSTANT, BROKEN, FLAT])
def test_every_collapse_says_what_to_try(cad):
    towers = [judge("CAD", vitals(cad), STANDARD_LIMITS)]
    (cause, *_) = likely_causes(towers)
    assert cause.line().startswith("Likely cause: ")
    assert cause.sentence.endswith(".")


def test_too_few_rows_prove_nothing():
    few = judge("CAD", replace(vitals(CONSTANT), inputs=5), STANDARD_LIMITS)
    assert few.state == "too few"
    assert likely_causes([few]) == []
