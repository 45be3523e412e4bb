"""What a sick pattern of vital signs usually comes from, and what to try.

Several causes may fit; those that the circumstances prove stand first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from brepfind.metrics.gate import Judgement

# exp(logit_scale) this close to its clamp of 100 is at it.
_CLAMP = 99.0
# A tower whose mean cosine moved less than this since step 0 points where it always pointed.
_AS_BEFORE = 0.05
# With fewer negatives a pair, the loss can be low although towers hardly tell parts apart.
_FEW_NEGATIVES = 15
# A loss within this of ln(batch) is that of a model that knows nothing.
_AT_CHANCE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What is known beside the embeddings; None or empty where it is not.

    Attributes:
        dead_weights: tensors that the doctor found not finite, constant or dead.
        text_frozen: whether the text tower did not learn.
        scale: exp(logit_scale), the factor of the logits.
        batch: pairs a step, over all ranks.
        loss: of the last validation or epoch.
    """

    dead_weights: Sequence[str] = field(default_factory=tuple)
    text_frozen: bool | None = None
    scale: float | None = None
    batch: int | None = None
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """One likely cause: a name to count by, what it is, and what to try."""

    name: str
    sentence: str

    def line(self) -> str:
        """For a person."""
        return f"Likely cause: {self.sentence}"


def likely_causes(towers: Sequence[Judgement], known: Circumstances | None = None) -> list[Cause]:
    """The causes that fit, the proven ones first; empty if no tower is worse than ok."""
    known = known or Circumstances()
    sick = [judged for judged in towers if judged.state in ("collapsed", "warning")]
    if not sick:
        return []
    collapsed = [judged for judged in sick if judged.state == "collapsed"]
    found = [
        *_weights(collapsed, known),
        *_temperature(sick, known),
        *_never_saw(sick, known),
        *_one_tower(towers, collapsed),
        *_negatives(towers, collapsed, known),
    ]
    if not found and collapsed:
        found.append(
            Cause(
                "unknown",
                "no known pattern fits; compare the vital signs over the epochs in the history, "
                "and look at the first one at which a limit fails.",
            )
        )
    return found


def _weights(collapsed: Sequence[Judgement], known: Circumstances) -> list[Cause]:
    broken = [judged.tower for judged in collapsed if judged.vitals.nonfinite_rows > 0]
    if not known.dead_weights and not broken:
        return []
    named = ", ".join(known.dead_weights[:3])
    where = f" ({named})" if named else ""
    if broken:
        what = f"a weight or a buffer of the {' and the '.join(broken)} tower is not finite{where}"
    elif collapsed:
        what = f"dead weights{where}"
    else:
        return []
    return [
        Cause(
            "dead_weights",
            f"{what}. Run `brepfind doctor` on the checkpoint, go back to the last sound epoch, "
            "and train on with a lower learning rate or in bf16.",
        )
    ]


def _temperature(sick: Sequence[Judgement], known: Circumstances) -> list[Cause]:
    if known.scale is None or not known.scale >= _CLAMP:
        return []
    return [
        Cause(
            "temperature_at_clamp",
            f"the temperature is at its clamp (factor {known.scale:.0f} of 100): scaling up "
            "replaces spreading out. Lower the learning rate, or warm it up longer; look for "
            "captions that are said of many parts.",
        )
    ]


def _never_saw(sick: Sequence[Judgement], known: Circumstances) -> list[Cause]:
    for judged in sick:
        before = judged.step0
        if judged.tower.lower() != "text" or before is None:
            continue
        one_way = judged.vitals.mean_cosine > 0.5
        as_before = abs(judged.vitals.mean_cosine - before.mean_cosine) <= _AS_BEFORE
        if one_way and as_before and known.text_frozen is not False:
            frozen = "is frozen and" if known.text_frozen else "hardly learned and"
            return [
                Cause(
                    "frozen_text",
                    f"the text tower {frozen} already pointed one way at step 0 "
                    f"({before.mean_cosine:.2f}): it never saw such words. Train its last layers "
                    "(train.text_train: last), or take another tower; this is no collapse of "
                    "training.",
                )
            ]
    return []


def _one_tower(towers: Sequence[Judgement], collapsed: Sequence[Judgement]) -> list[Cause]:
    if len(collapsed) != 1 or len(towers) < 2:
        return []
    (one,) = collapsed
    flat = not (one.vitals.column_std >= 0.1) or not (one.vitals.mean_cosine <= 0.95)
    if one.vitals.nonfinite_rows or not flat:
        return []
    inputs = "its graphs (are all parts the same?)" if one.tower == "CAD" else "its captions"
    return [
        Cause(
            "one_tower_constant",
            f"the {one.tower} tower alone is constant. Look at {inputs}, at what is frozen, and "
            "at the learning rate of its projection; a tower with no gradient stays where it was "
            "while the other one moves.",
        )
    ]


def _negatives(
    towers: Sequence[Judgement], collapsed: Sequence[Judgement], known: Circumstances
) -> list[Cause]:
    if known.batch is None or not collapsed:
        return []
    at_chance = known.loss is not None and abs(known.loss - math.log(known.batch)) <= _AT_CHANCE
    few = known.batch - 1 < _FEW_NEGATIVES
    both = len(collapsed) == len(towers) and not any(j.vitals.nonfinite_rows for j in collapsed)
    if not few and not (at_chance and both):
        return []
    stuck = f"; the loss stands at ln({known.batch}), that of guessing" if at_chance else ""
    return [
        Cause(
            "few_negatives" if few else "stuck_at_chance",
            f"{known.batch - 1} negatives a pair{stuck}. Use a larger batch (more processes count, "
            "accumulation does not), and a lower learning rate to begin with.",
        )
    ]
