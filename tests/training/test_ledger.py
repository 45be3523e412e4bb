"""What a run counts, by hand-worked numbers."""

import math

import pytest
import torch

from brepfind.errors import CheckFailed
from brepfind.metrics.guard import Tally, Verdict
from brepfind.training.batches import Order, StepBatch
from brepfind.training.ledger import Ledger, draw
from brepfind.training.loss import guessing, same_pairs
from brepfind.training.step import StepReport

LN4 = math.log(4)


class Heard:
    def __init__(self):
        self.points, self.facts = [], []

    def point(self, name, value, step):
        self.points.append((name, value, step))

    def happened(self, what, facts):
        self.facts.append((what, dict(facts)))


def batch(chance=LN4, alone=0):
    return StepBatch(
        micros=(), same=torch.eye(4), ids=tuple("abcd"), captions=(), digest=0, chance=chance,
        alone=alone,
    )  # fmt: skip


def report(step, loss=1.0, action="step", norm=2.0):
    return StepReport(
        step=step, loss=loss, gradient_norm=norm, lr=0.1 / (step + 1), loss_scale=1.0,
        verdict=Verdict(action=action), bad_ranks=(), stop=False, seconds={},
    )  # fmt: skip


def test_guessing_counts_only_what_is_a_negative() -> None:
    # Part groups 0 1 0 2, captions 5 6 6 7: pair 2 is a twin of 0 and shares 1's caption.
    same = same_pairs(torch.tensor([0, 1, 0, 2]), torch.tensor([5, 6, 6, 7]))
    chance, alone = guessing(same)
    assert chance == pytest.approx((math.log(3) + math.log(3) + math.log(2) + math.log(4)) / 4)
    assert alone == 0
    assert guessing(torch.ones(3, 3, dtype=torch.bool)) == (0.0, 3)


def test_skipped_steps_have_no_part_in_the_means_and_the_largest_norm_is_kept() -> None:
    ledger = Ledger()
    ledger.count(report(0, loss=1.0, norm=5.0), batch(alone=1))
    ledger.count(report(1, loss=math.nan, action="skip", norm=math.nan), batch(alone=1))
    ledger.count(report(2, loss=2.0, norm=3.0), batch())
    row = ledger.means(Tally(skips=1), 1.0)
    assert (row["loss"], row["gradient_norm"], row["taken"], row["skipped"]) == (1.5, 5.0, 2, 1)
    assert row["lr"] == pytest.approx(0.1 / 3)
    assert (ledger.pairs, ledger.alone) == (8, 1)
    assert all(math.isfinite(value) for value in row.values())


def test_before_the_first_step_there_is_no_loss_rather_than_nan() -> None:
    assert not {"loss", "gradient_norm", "chance_loss"} & Ledger().means(Tally(), 1.0).keys()


def test_a_loss_of_guessing_is_said_counted_and_ends_the_run_if_asked() -> None:
    ledger, heard = Ledger(), Heard()
    for epoch in (1, 2):
        ledger.sums = {}
        ledger.count(report(epoch, loss=math.log(4)), batch())
        ledger.close_epoch(epoch, heard, most_at_chance=3)
    assert [facts["epoch"] for what, facts in heard.facts if what == "finding"] == [1, 2]
    assert heard.facts[0][1]["name"] == "train.loss_below_chance"
    assert (ledger.at_chance, ledger.at_chance_in_a_row) == (2, 2)
    with pytest.raises(CheckFailed, match=r"train\.epochs_at_chance is 3, asked is <= 2"):
        ledger.close_epoch(3, heard, most_at_chance=3)


def test_an_epoch_that_learns_ends_the_row_of_those_at_chance() -> None:
    ledger = Ledger(at_chance=2, at_chance_in_a_row=2)
    ledger.count(report(0, loss=1.0), batch())
    ledger.close_epoch(3, Heard(), most_at_chance=3)
    assert (ledger.at_chance, ledger.at_chance_in_a_row) == (2, 0)


def test_pairs_without_a_negative_are_said_and_an_epoch_of_nothing_else_stops_the_run() -> None:
    ledger, heard = Ledger(), Heard()
    ledger.count(report(0, loss=0.5), batch(alone=1))
    ledger.close_epoch(1, heard, most_at_chance=None)
    assert heard.facts[0][1]["name"] == "train.pairs_without_negative"
    assert heard.facts[0][1]["value"] == 0.25
    ledger = Ledger()
    ledger.count(report(0, loss=0.0), batch(chance=0.0, alone=4))
    with pytest.raises(CheckFailed, match=r"pairs_with_negatives .*all parts are twins"):
        ledger.close_epoch(1, heard, most_at_chance=None)


def test_an_epoch_without_a_step_is_counted() -> None:
    ledger = Ledger()
    ledger.count(report(0, action="skip"), batch())
    ledger.close_epoch(1, Heard(), most_at_chance=None)
    assert ledger.without_step == 1


def test_it_comes_back_from_plain_data() -> None:
    ledger = Ledger(pairs=8, alone=1, history=[{"epoch": 0.0}], sums={"loss": 2.0})
    assert Ledger(**ledger.as_plain()) == ledger


def test_curves_are_dense_at_first_then_every_tenth_and_always_at_a_skip() -> None:
    heard = Heard()
    for step, action in ((0, "step"), (201, "step"), (203, "skip"), (210, "step")):
        draw(heard, report(step, action=action, loss=math.nan), Tally(), scaled=False)
    assert {step for _, _, step in heard.points} == {0, 203, 210}
    assert "train/loss" not in {name for name, _, _ in heard.points}


def test_items_that_sit_out_are_counted() -> None:
    order = Order(items=10, batch_size=4, seed=0)
    assert (order.steps, order.sitting_out) == (2, 2)
    # Two of ten sit out an epoch, drawn anew each time.
    assert order.never_seen(1) == 2
    assert order.never_seen(50) == 0
    assert Order(items=8, batch_size=4, seed=0).never_seen(1) == 0
