import math

import pytest

from brepfind.metrics.gate import STANDARD_LIMITS
from brepfind.metrics.history import complaints, tell

SOUND = {
    "cad_std": 0.9, "cad_mean_cosine": 0.1, "cad_effective_rank": 20.0, "cad_distinct": 1.0,
    "text_std": 0.9, "text_mean_cosine": 0.1, "text_effective_rank": 20.0, "text_distinct": 1.0,
    "loss": 2.0,
}  # fmt: skip


def rows(*changes):
    return [SOUND | {"epoch": epoch} | change for epoch, change in enumerate(changes)]


SICK = {"cad_std": 0.02}


def test_a_sound_run():
    story = tell(rows({"loss": math.nan}, {}, {}), STANDARD_LIMITS)
    assert (story.broken_since, story.last_sound) == (None, 2)
    assert story.sentence() == "sound to its last epoch, 2"


def test_broken_since_and_last_sound():
    story = tell(rows({}, SICK, {}, SICK, SICK | {"loss": math.nan}), STANDARD_LIMITS)
    assert (story.broken_since, story.last_sound) == (3, 2)
    assert story.sentence() == (
        "broken since epoch 3 (cad_std is 0.02, asked is >= 0.1); the last sound epoch is 2"
    )


def test_never_sound_and_nothing_to_judge():
    story = tell(rows(SICK, SICK), STANDARD_LIMITS)
    assert (story.broken_since, story.last_sound) == (0, None)
    assert "no epoch before it was sound" in story.sentence()
    assert tell([], STANDARD_LIMITS).sentence() == "without an epoch to judge"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cad_std", 0.09), ("text_mean_cosine", 0.96), ("cad_effective_rank", 4.0),
        ("text_distinct", 0.4), ("loss", math.inf), ("cad_distinct", math.nan),
    ],
)  # fmt: skip
def test_each_limit_and_nan(name, value):
    (found,) = complaints(SOUND | {"epoch": 1, name: value}, STANDARD_LIMITS)
    assert found.startswith(f"{name} is ")


def test_numbers_that_were_not_kept_are_not_asked_for():
    assert complaints({"epoch": 1}, STANDARD_LIMITS) == []


def test_few_parts_cannot_have_a_high_rank():
    few = rows({"cad_effective_rank": 2.1, "text_effective_rank": 2.1})
    assert tell(few, STANDARD_LIMITS).broken_since == 0
    assert tell(few, STANDARD_LIMITS, attainable=4).broken_since is None
    assert tell(few, STANDARD_LIMITS, attainable=5).broken_since == 0
