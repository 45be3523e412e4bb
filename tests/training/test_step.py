import copy
import math

import pytest
import torch

from brepfind.distributed.group import open_group
from brepfind.errors import CheckFailed
from brepfind.training.faults import Fault
from brepfind.training.statistics import LiveStatistics
from tests.ranks import run_ranks, values
from tests.training.toys import Toy, batch_of, guard, guarded_toy

SIZE = 8


def _state(toy):
    return {name: value.clone() for name, value in toy.state_dict().items()}


def _equal(one, other) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_a_skipped_step_leaves_no_trace_in_weights_moments_or_statistics() -> None:
    toy = Toy(norm=True)
    faults = (Fault("nan_loss", 1), Fault("inf_gradient", 2))
    settings = {"nonfinite": "skip", "max_skip_rate": 1.0, "freeze_batch_norm": False}
    with guarded_toy(toy, faults, **settings) as guarded:
        guarded.run(0, batch_of(0, SIZE, guarded.group))
        before = _state(toy)
        moments = copy.deepcopy(guarded.optimizer.state_dict()["state"])
        for step, cause in ((1, "loss"), (2, "gradient")):
            report = guarded.run(step, batch_of(step, SIZE, guarded.group))
            assert (report.verdict.action, report.verdict.cause) == ("skip", cause)
            assert _equal(_state(toy), before)
            after = guarded.optimizer.state_dict()["state"]
            assert all(_equal(after[n], moments[n]) for n in moments)
        assert guarded.run(3, batch_of(3, SIZE, guarded.group)).verdict.action == "step"
        assert not _equal(_state(toy), before)
        assert (guarded.tally.skips, guarded.tally.skips_in_a_row) == (2, 0)


def test_halt_happens_before_backward() -> None:
    with guarded_toy(faults=(Fault("nan_loss", 0),)) as guarded:
        before = _state(guarded.module)
        report = guarded.run(0, batch_of(0, SIZE, guarded.group))
        assert report.verdict.action == "halt"
        assert math.isnan(report.loss) and report.bad_ranks == (0,)
        assert all(p.grad is None for p in guarded.module.parameters())
        assert _equal(_state(guarded.module), before)


def test_a_nan_weight_is_seen_in_the_forward_pass() -> None:
    with guarded_toy(faults=(Fault("nan_weight", 0),)) as guarded:
        assert guarded.run(0, batch_of(0, SIZE, guarded.group)).verdict.cause == "loss"


def test_a_zero_embedding_is_a_bad_step() -> None:
    with guarded_toy(Toy(blow_up=0.0)) as guarded:
        assert guarded.run(0, batch_of(0, SIZE, guarded.group)).verdict.cause == "loss"


def test_fp16_overflow_settles_and_a_nan_does_not_touch_the_scale() -> None:
    settings = {"precision": "fp16", "initial_loss_scale": 2.0**40, "max_overflows_in_a_row": 60}
    faults = (Fault("nan_loss", 40),)
    with guarded_toy(faults=faults, nonfinite="skip", **settings) as guarded:
        causes = []
        for step in range(40):
            causes.append(guarded.run(step, batch_of(step, SIZE, guarded.group)).verdict.cause)
        assert causes[0] == "overflow" and causes[-1] is None
        assert guarded.tally.skips == 0 and guarded.tally.overflows == causes.count("overflow")
        scale = guarded.scale
        assert 1.0 <= scale < 2.0**40
        # A skip before backward: there is nothing to update the scaler on, and it must not raise.
        report = guarded.run(40, batch_of(40, SIZE, guarded.group))
        assert report.verdict.cause == "loss" and guarded.scale == scale
        assert guarded.run(41, batch_of(41, SIZE, guarded.group)).verdict.action == "step"


def test_endless_overflow_ends_at_the_floor_of_the_scale_and_never_writes_nan() -> None:
    faults = tuple(Fault("inf_gradient", step) for step in range(400))
    settings = {"precision": "fp16", "max_overflows_in_a_row": 1000, "min_loss_scale": 2.0**-14}
    with guarded_toy(faults=faults, **settings) as guarded:
        before = _state(guarded.module)
        for step in range(400):
            verdict = guarded.run(step, batch_of(step, SIZE, guarded.group)).verdict
            if verdict.action == "halt":
                break
        assert step == 30  # from 2^16 to under 2^-14
        assert "loss scale fell to" in verdict.reason
        assert _equal(_state(guarded.module), before)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("local", [True, False])
def test_micro_batches_give_the_gradient_of_the_whole(precision, local) -> None:
    def gradient(micro):
        settings = {"precision": precision, "micro_batch": micro, "loss": {"local": local}}
        with guarded_toy(Toy(dropout=0.0), grad_clip=1e9, **settings) as guarded:
            report = guarded.run(0, batch_of(0, SIZE, guarded.group, micro))
            return report.gradient_norm, _state(guarded.module)

    whole, weights = gradient(None)
    for micro in (1, 2, 4):
        norm, found = gradient(micro)
        assert norm == pytest.approx(whole, rel=1e-5 if precision == "fp32" else 2e-2)
        for name in weights:
            torch.testing.assert_close(found[name], weights[name], atol=1e-2, rtol=0)


def test_micro_batches_pass_twice_with_the_same_dropout() -> None:
    toy = Toy(dropout=0.5)
    with guarded_toy(toy, micro_batch=4) as guarded:
        micro = batch_of(0, SIZE, guarded.group, 4).micros[1]
        first = guarded.embed(toy, 3, 1, micro)[0]
        guarded.embed(toy, 3, 0, micro)
        again = guarded.embed(toy, 3, 1, micro)[0]
        other = guarded.embed(toy, 4, 1, micro)[0]
    assert torch.equal(first, again) and not torch.equal(first, other)


def _two_ranks(cases: list) -> list:
    """Three steps of each case: its faults, its micro-batch, and other settings."""
    found = []
    with open_group(20.0, device="cpu") as group:
        for faults, micro, settings in cases:
            guarded = guard(group, None, faults, micro_batch=micro, **settings)
            reports = [guarded.run(step, batch_of(step, SIZE, group, micro)) for step in range(3)]
            facts = [(r.verdict.action, r.bad_ranks) for r in reports]
            found.append((facts, _state(guarded.module)))
    return found


def test_two_ranks_skip_together_and_train_as_one_process_does() -> None:
    with guarded_toy() as guarded:
        for step in range(3):
            guarded.run(step, batch_of(step, SIZE, guarded.group))
        alone = _state(guarded.module)
    skip = {"nonfinite": "skip", "max_skip_rate": 1.0}
    cases = [
        ((), None, {}),
        ((), 2, {}),
        ((), None, {"gradient_checkpointing": True}),
        ((Fault("nan_loss", 1, 1),), None, skip),
        ((Fault("inf_gradient", 1, 1),), None, skip),
    ]
    one, other = values(run_ranks(_two_ranks, 2, cases))
    for (facts, weights), (_, others) in zip(one, other, strict=True):
        assert _equal(weights, others)
        if facts[1][0] == "step":
            for name in alone:
                torch.testing.assert_close(weights[name], alone[name], atol=2e-5, rtol=0)
    assert [facts for facts, _ in one[3:]] == [
        [("step", ()), ("skip", (1,)), ("step", ())],
        [("step", ()), ("skip", ()), ("step", ())],
    ]


def test_a_rank_that_leaves_a_step_out_is_an_error_on_all_and_no_mixture() -> None:
    for ended in run_ranks(_two_ranks, 2, [((Fault("skip", 1, 1),), None, {})], limit_s=30):
        assert ended.code == 1
        assert "the ranks are out of step: rank 0 is at step 1, rank 1 is at step 2" in ended.error


def test_complex_tensors_are_refused_before_ddp() -> None:
    toy = Toy()
    toy.register_buffer("freqs_cis", torch.ones(2, dtype=torch.complex64))
    with pytest.raises(CheckFailed, match="freqs_cis"), guarded_toy(toy):
        pass


def test_frozen_statistics_cost_no_copy() -> None:
    toy = Toy(norm=True)
    assert len(LiveStatistics(toy).live()) == 3
    toy.norm.eval()
    assert LiveStatistics(toy).live() == []
