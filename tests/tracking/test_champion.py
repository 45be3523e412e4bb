"""When the alias moves: the decision and its words, from plain numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from brepfind.tracking.champion import decide, difference_interval, recall
from tests.tracking.standings import standing


def test_recall_is_the_mean_of_both_directions() -> None:
    told = standing([1.0, 0.5])
    assert recall(told) == pytest.approx(0.75)
    told["queries"], told["caption_hits"] = [1, 3], [1.0, 0.0]
    assert recall(told) == pytest.approx((1 / 4 + 0.75) / 2)


def test_the_first_is_champion() -> None:
    decision = decide(standing([0.5, 0.25]), None, "")
    assert decision.moves
    assert decision.sentence == "is the champion, the first: validation recall 37.5% over 2 parts"


@pytest.mark.parametrize(
    ("gain", "moves"),
    [
        ([0.2] * 40, True),  # every part is found better
        ([0.4, -0.4] * 20, False),  # as many are lost as won
        ([0.0] * 40, False),  # the same model once more
        ([1.0] + [0.0] * 39, False),  # one part alone proves nothing
        ([-0.2] * 40, False),
    ],
)
def test_it_moves_only_beyond_the_paired_interval(gain: list[float], moves: bool) -> None:
    before = [0.5] * len(gain)
    after = [b + g for b, g in zip(before, gain, strict=True)]
    decision = decide(standing(after), standing(before), "3")
    assert decision.moves is moves
    said = f"{100 * np.mean(gain):+.1f} points against version 3 (95 % interval"
    assert said.replace("-0.0", "+0.0") in decision.sentence.replace("-0.0", "+0.0")
    assert ("champion stays version 3" in decision.sentence) is not moves


def test_the_pairing_counts() -> None:
    """Parts differ far more among themselves than the two models do on any of them."""
    rng = np.random.default_rng(0)
    before = rng.choice([0.1, 0.8], 60).tolist()
    after = [hit + 0.05 for hit in before]
    low, high = difference_interval(standing(after), standing(before))
    assert (low, high) == (pytest.approx(0.05), pytest.approx(0.05))


def test_another_split_or_a_lost_champion_keeps_it_and_says_so() -> None:
    new = standing([1.0] * 9)
    other = decide(new, standing([0.0] * 9, split="t" * 64), "2")
    assert not other.moves and "validated on other parts or captions (tttttttt" in other.sentence
    lost = decide(new, None, "2")
    assert not lost.moves and "no longer there" in lost.sentence
    assert all("champion stays version 2" in one.sentence for one in (other, lost))


def test_one_part_or_a_number_that_is_none_never_moves_it() -> None:
    assert difference_interval(standing([1.0]), standing([0.0])) == (-math.inf, math.inf)
    assert not decide(standing([1.0]), standing([0.0]), "1").moves
    assert not decide(standing([math.nan] * 5), standing([0.1] * 5), "1").moves
