"""The health gate of embeddings: a conjunction of limits, each of which NaN fails.

Three verdicts: *ok*, *warning*, *collapsed*; only the last stops a run. With fewer rows than
``min_rows`` the verdict is *too few*: nothing can be said, so nothing passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from brepfind.findings import Finding, Verdict, at_least, at_most
from brepfind.metrics.vitals import Vitals
from brepfind.params import Section

State = Literal["ok", "warning", "collapsed", "too few"]


class HealthConfig(Section):
    """Limits of the vital signs. A tower is collapsed if any ``min_`` or ``max_`` limit fails."""

    min_rows: int = Field(
        ge=2, description="embeddings needed to judge a tower; with fewer, nothing passes"
    )
    min_column_std: float = Field(
        ge=0, le=1, description="std of a column of unit rows, times sqrt(dim); even spread gives 1"
    )
    max_mean_cosine: float = Field(
        ge=-1, le=1, description="mean cosine of two different embeddings; 1 when all are equal"
    )
    min_effective_rank: float = Field(
        ge=0, description="directions in use (RankMe), raw and centred; half of what is attainable "
        "is asked where that is less"
    )  # fmt: skip
    min_effective_rank_share: float = Field(
        ge=0, le=1, description="the same as a share of what rows and dimensions can reach"
    )
    min_participation: float = Field(
        ge=0, description="directions that hold the variance (participation ratio, centred)"
    )
    min_distinct: float = Field(
        ge=0, le=1, description="distinct embeddings among distinct inputs, as a share"
    )
    max_near_copies: float = Field(
        ge=0, le=1, description="share of embeddings that another input copies but for rounding"
    )
    min_self_retrieval: float = Field(
        ge=0, le=1, description="R@1 of CAD to CAD, each part looking for itself or a twin (fp64)"
    )
    warn_mean_cosine: float = Field(
        ge=-1, le=1, description="a mean cosine above this is worth a warning, not a stop"
    )
    warn_effective_rank_share: float = Field(
        ge=0, le=1, description="an effective rank share below this is worth a warning"
    )


# What `brepfind vitals` and `brepfind evaluate` ask of anyone's embeddings, with no params.yaml.
STANDARD_LIMITS = HealthConfig(
    min_rows=64,
    min_column_std=0.1,
    max_mean_cosine=0.95,
    min_effective_rank=5.0,
    min_effective_rank_share=0.02,
    min_participation=2.0,
    min_distinct=0.5,
    max_near_copies=0.5,
    min_self_retrieval=0.99,
    warn_mean_cosine=0.7,
    warn_effective_rank_share=0.1,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the gate says of one tower.

    Attributes:
        tower: such as ``CAD`` or ``Text``.
        state: the verdict.
        vitals: the numbers it rests on. step0: the same before training, if known.
        findings: every limit asked, the passed ones too.
    """

    tower: str
    state: State
    vitals: Vitals
    findings: tuple[Finding, ...]
    step0: Vitals | None = None


def judge(
    tower: str,
    vitals: Vitals,
    limits: HealthConfig,
    *,
    step0: Vitals | None = None,
    prefix: str = "health",
) -> Judgement:
    """The gate's verdict on one tower's embeddings after projection.

    Args:
        tower: named in findings in lower case, such as ``health.cad.mean_cosine``.
        step0: the same inputs embedded before training; a tower that pointed one way from the
            start is told apart from one that collapsed.
    """
    name = f"{prefix}.{tower.lower()}"
    if not vitals.inputs >= limits.min_rows:
        few = at_least(
            f"{name}.rows",
            vitals.inputs,
            limits.min_rows,
            advice=f"too few {tower} embeddings of distinct inputs to tell health from collapse; "
            "embed more, or lower health.min_rows and trust the verdict less",
        )
        return Judgement(tower=tower, state="too few", vitals=vitals, findings=(few,), step0=step0)
    findings = (
        at_least(f"{name}.rows", vitals.inputs, limits.min_rows),
        *_soundness(name, tower, vitals),
        *_spread(name, tower, vitals, limits, step0),
        *_rank(name, tower, vitals, limits, centred=False),
        *_rank(name, tower, vitals, limits, centred=True),
        at_least(
            f"{name}.participation",
            vitals.participation,
            limits.min_participation,
            advice=f"{tower} embeddings lie along a line or in two heaps",
        ),
        *_copies(name, tower, vitals, limits),
    )
    verdicts = {finding.verdict for finding in findings}
    state: State = (
        "collapsed" if "failed" in verdicts else "warning" if "warning" in verdicts else "ok"
    )
    return Judgement(tower=tower, state=state, vitals=vitals, findings=findings, step0=step0)


def self_retrieval_finding(value: float, limits: HealthConfig, prefix: str = "health") -> Finding:
    """Whether parts find themselves among all parts."""
    return at_least(
        f"{prefix}.self_retrieval",
        value,
        limits.min_self_retrieval,
        advice="different parts have the same embedding: the CAD tower cannot tell them apart",
    )


def _soundness(name: str, tower: str, v: Vitals) -> list[Finding]:
    return [
        at_most(
            f"{name}.nonfinite_rows",
            v.nonfinite_rows,
            0,
            advice=f"{v.nonfinite_rows} of {v.n} {tower} embeddings hold NaN or infinity: a weight "
            "or a buffer of the tower does; `brepfind doctor` names it",
        ),
        at_most(
            f"{name}.zero_rows",
            v.zero_rows,
            0,
            advice=f"{v.zero_rows} of {v.n} {tower} embeddings are all zero: dead units before the "
            "projection, or inputs that reached the model empty",
        ),
    ]


def _spread(
    name: str, tower: str, v: Vitals, limits: HealthConfig, step0: Vitals | None
) -> list[Finding]:
    before = f" ({step0.mean_cosine:.2f} at step 0)" if step0 is not None else ""
    one_way = f"nearly all {tower.lower()} embeddings point one way{before}"
    return [
        at_least(
            f"{name}.column_std",
            v.column_std,
            limits.min_column_std,
            advice=f"{tower} embeddings hardly differ from part to part: the tower is constant",
        ),
        _two_step(
            at_most(f"{name}.mean_cosine", v.mean_cosine, limits.max_mean_cosine, advice=one_way),
            v.mean_cosine <= limits.warn_mean_cosine,
            f"<= {limits.warn_mean_cosine:g}",
            one_way,
        ),
    ]


def _rank(
    name: str, tower: str, v: Vitals, limits: HealthConfig, *, centred: bool
) -> list[Finding]:
    suffix = "_centred" if centred else ""
    rank = v.rank_centred if centred else v.rank
    share = v.rank_share_centred if centred else v.rank_share
    attainable = max(1, min(v.inputs - centred, v.dim))
    few = f"{tower} embeddings use few directions of the {attainable} they could"
    return [
        at_least(
            f"{name}.effective_rank{suffix}",
            rank,
            min(limits.min_effective_rank, attainable / 2),
            advice=few,
        ),
        _two_step(
            at_least(
                f"{name}.effective_rank_share{suffix}",
                share,
                limits.min_effective_rank_share,
                advice=few,
            ),
            share >= limits.warn_effective_rank_share,
            f">= {limits.warn_effective_rank_share:g}",
            few,
        ),
    ]


def _copies(name: str, tower: str, v: Vitals, limits: HealthConfig) -> list[Finding]:
    same = f"different inputs get the same {tower} embedding"
    return [
        at_least(f"{name}.distinct", v.distinct, limits.min_distinct, advice=same),
        at_most(f"{name}.near_copies", v.near_copies, limits.max_near_copies, advice=same),
        at_most(
            f"{name}.dead_columns",
            v.dead_columns,
            0.25,
            advice=f"columns of the {tower} embedding never move: dead outputs of its projection",
            otherwise="warning",
        ),
    ]


def _two_step(hard: Finding, fine: bool, soft_limit: str, advice: str) -> Finding:
    """A finding with a softer limit inside the hard one, beyond which it warns."""
    if hard.verdict != "ok" or fine:
        return hard
    verdict: Verdict = "warning"
    return Finding(
        name=hard.name, value=hard.value, limit=soft_limit, verdict=verdict, advice=advice
    )
