import math

import numpy as np
import pytest

from brepfind.metrics.activations import unit_findings, unit_vitals

RNG = np.random.default_rng(0)
VARIED = RNG.standard_normal((50, 3))


def test_units_by_hand():
    out = RNG.standard_normal((50, 4))
    out[:, 1] = 0.7
    found = unit_vitals("layer", VARIED, out)
    assert (found.units, found.judged, found.dead, found.shut, found.nonfinite) == (
        4, True, 0.25, 0.0, 0.0,
    )  # fmt: skip


def test_constant_by_design_is_not_dead():
    """A graph token, or the embedding of a flag that no part sets: the input does not vary."""
    found = unit_vitals("token", np.ones((50, 3)), np.ones((50, 4)))
    assert (found.judged, found.dead) == (False, 0.0)
    assert unit_findings([found])[0].verdict == "ok"


def test_shut_before_an_activation():
    out = RNG.standard_normal((50, 4))
    out[:, :3] -= 20.0
    assert unit_vitals("hidden", VARIED, out, gated=True).shut == 0.75
    assert unit_vitals("hidden", VARIED, out).shut == 0.0
    assert unit_findings([unit_vitals("hidden", VARIED, out, gated=True)])[0].verdict == "warning"


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_not_finite_fails(bad):
    out = RNG.standard_normal((50, 4))
    out[3, 2] = bad
    found = unit_vitals("layer", VARIED, out, gated=True)
    assert found.nonfinite == 0.25
    (finding,) = unit_findings([found])
    assert (finding.name, finding.verdict) == ("health.units.layer", "failed")


def test_a_wholly_dead_module_fails():
    (finding,) = unit_findings([unit_vitals("layer", VARIED, np.ones((50, 4)))])
    assert finding.verdict == "failed"
    assert "constant while the input varies" in finding.advice


def test_one_row_says_nothing():
    assert unit_vitals("layer", VARIED[:1], np.ones((1, 4))).judged is False
