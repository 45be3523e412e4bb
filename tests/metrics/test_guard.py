import math

import pytest

from brepfind.metrics.guard import (
    GuardLimits,
    Tally,
    cause_of,
    judge,
    judge_plan,
    out_of_step,
    stuck_at_chance,
    tower_findings,
)

HALT = GuardLimits(
    nonfinite="halt",
    max_skips_in_a_row=3,
    max_skip_rate=0.2,
    skip_window=10,
    min_loss_scale=1.0,
    max_overflows_in_a_row=4,
)
SKIP = GuardLimits(
    nonfinite="skip",
    max_skips_in_a_row=3,
    max_skip_rate=0.2,
    skip_window=10,
    min_loss_scale=1.0,
    max_overflows_in_a_row=4,
)


def run(causes, limits, scale=65536.0):
    tally, actions = Tally(), []
    for step, cause in enumerate(causes):
        tally, verdict = judge(tally, cause, step=step, scale=scale, limits=limits)
        actions.append(verdict.action)
    return tally, actions, verdict


@pytest.mark.parametrize(
    ("loss", "gradient", "scaled", "cause"),
    [
        (False, None, False, "loss"),
        (False, None, True, "loss"),
        (True, None, False, None),
        (True, True, True, None),
        (True, False, False, "gradient"),
        (True, False, True, "overflow"),
    ],
)
def test_what_went_wrong(loss, gradient, scaled, cause) -> None:
    assert cause_of(loss_finite=loss, gradient_finite=gradient, scaled=scaled) == cause


def test_halt_stops_at_the_first_bad_loss() -> None:
    _, actions, verdict = run([None, "loss"], HALT)
    assert actions == ["step", "halt"]
    assert verdict.reason == "the loss is not finite"


def test_the_third_skip_in_a_row_halts_and_a_good_step_starts_afresh() -> None:
    _, actions, _ = run(["loss", "loss", None], SKIP)
    assert actions == ["skip", "skip", "step"]
    tally, actions, verdict = run([None, "loss", "gradient", "loss"], SKIP)
    assert actions[-2:] == ["skip", "halt"]
    assert "3. step in a row" in verdict.reason
    assert tally.skips == 3


def test_more_skips_than_the_share_of_the_window_halt() -> None:
    bad = ["loss", None, None, "loss", None, None, "loss"]
    tally, actions, verdict = run(bad, SKIP)
    assert actions[-1] == "halt"
    assert "3 of the last 10 steps" in verdict.reason
    # The same three, spread over more than the window, do not.
    spread = ["loss", *[None] * 5, "loss", *[None] * 5, "loss"]
    tally, actions, _ = run(spread, SKIP)
    assert actions[-1] == "skip"
    assert tally.recent == (6, 12)


def test_overflow_is_counted_apart_and_has_its_own_limit() -> None:
    tally, actions, _ = run(["overflow", "overflow", None], HALT)
    assert actions == ["skip", "skip", "step"]
    assert (tally.skips, tally.overflows) == (0, 2)
    _, actions, verdict = run(["overflow"] * 4, HALT)
    assert actions[-1] == "halt"
    assert "4. time" in verdict.reason


@pytest.mark.parametrize("scale", [0.5, 0.0, math.nan])
def test_a_loss_scale_below_its_floor_halts_even_after_a_good_step(scale) -> None:
    for cause in ("overflow", None):
        _, actions, verdict = run([cause], HALT, scale)
        assert actions == ["halt"]
        assert "loss scale" in verdict.reason


def test_the_tally_survives_as_plain_data() -> None:
    tally, _, _ = run(["loss", "overflow"], SKIP)
    assert Tally.from_plain(tally.as_plain()) == tally


def test_ranks_out_of_step() -> None:
    assert out_of_step([[4, 9], [4, 9]]) is None
    assert "rank 0 is at step 4, rank 1 is at step 5" in out_of_step([[4, 9], [5, 9]])
    assert "another order of batches" in out_of_step([[4, 9], [4, 8]])


def test_plans_that_cannot_work() -> None:
    assert judge_plan([3, 3]) is None
    assert "unequal numbers of steps: [3, 4]" in judge_plan([3, 4])
    assert "no batch at all" in judge_plan([0, 0])


@pytest.mark.parametrize(("std", "distinct"), [(0.0, 1.0), (math.nan, 1.0), (1.0, 0.1)])
def test_a_dead_tower_fails_and_nan_is_dead(std, distinct) -> None:
    found = tower_findings("cad", std=std, distinct=distinct, min_std=0.01, min_distinct=0.5)
    assert "failed" in {finding.verdict for finding in found}


def test_a_loss_at_chance_is_a_warning() -> None:
    assert stuck_at_chance(1.386, math.log(4), 0.02).verdict == "warning"
    assert stuck_at_chance(1.0, math.log(4), 0.02).verdict == "ok"
    assert stuck_at_chance(math.nan, math.log(4), 0.02).verdict == "warning"
