"""Which registered model is the champion: a plain decision from two models' validation recall.

A *standing* says how a model did on each validation part, as plain data:

    split         digest of the validation parts and of what is said of them
    parts         their ids, in order
    queries       captions of each part, equal ones counted once, for the first of their parts
    caption_hits  sum over a part's captions of their mean hit at 1, 5 and 10
    part_hits     a part's own mean hit at 1, 5 and 10 when it looks for its captions

Validation recall is the mean of both directions' means, the number by which training chose the
weights. The two models answered the same queries, so their difference is paired: parts are drawn
with replacement, and each draw takes both models' answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DRAWS, _LEVEL = 10_000, 0.95

Standing = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether the alias moves, and why.

    Attributes:
        moves: to the new model. sentence: for people.
    """

    moves: bool
    sentence: str


def decide(new: Standing, champion: Standing | None, version: str) -> Decision:
    """Whether a new model becomes the champion.

    Args:
        new: its standing. champion: that of the one there is; None if it cannot be had.
        version: of the one there is, empty if there is none.
    """
    score = f"validation recall {recall(new):.1%} over {len(new['parts'])} parts"
    if not version:
        return Decision(moves=True, sentence=f"is the champion, the first: {score}")
    stays = f"champion stays version {version}"
    if champion is None:
        return Decision(
            moves=False,
            sentence=f"{score}; {stays}: its own answers are no longer there, so nothing can be "
            "compared. Set the alias by hand if this one is better",
        )
    if new["split"] != champion["split"]:
        return Decision(
            moves=False,
            sentence=f"{score}; {stays}: it was validated on other parts or captions "
            f"({champion['split'][:8]}, these are {new['split'][:8]}), which do not compare. Set "
            "the alias by hand if this one is better",
        )
    low, high = difference_interval(new, champion)
    gap = f"{100 * (recall(new) - recall(champion)):+.1f} points"
    interval = f"95 % interval of the paired difference {100 * low:+.1f} to {100 * high:+.1f}"
    against = f"{score}, {gap} against version {version} ({interval})"
    if low > 0:  # NaN stays
        return Decision(moves=True, sentence=f"is the champion: {against}")
    return Decision(moves=False, sentence=f"{against}; {stays}: not better by more than chance")


def recall(standing: Standing) -> float:
    """The validation recall of a standing, 0 to 1."""
    return float(_recalls(_columns(standing).sum(axis=0)[None])[0])


def difference_interval(new: Standing, old: Standing) -> tuple[float, float]:
    """The paired bootstrap's interval of ``recall(new) - recall(old)``; same parts in both.

    With one part there is no spread to see: the interval is then without bounds.
    """
    n = len(new["parts"])
    if n < 2:
        return -np.inf, np.inf
    both = np.concatenate([_columns(new), _columns(old)], axis=1)
    rng = np.random.default_rng(0)
    gaps = []
    for _ in range(_DRAWS):
        total = both[rng.integers(0, n, n)].sum(axis=0)
        gaps.append(_recalls(total[None, :4]) - _recalls(total[None, 4:]))
    tail = (1 - _LEVEL) / 2
    low, high = np.quantile(np.concatenate(gaps), [tail, 1 - tail])
    return float(low), float(high)


def _columns(standing: Standing) -> NDArray[np.float64]:
    """float64 (P, 4): captions, their hits, 1, its own hit."""
    queries = np.array(standing["queries"], float)
    ones = np.ones_like(queries)
    return np.stack([queries, standing["caption_hits"], ones, standing["part_hits"]], axis=1)


def _recalls(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N,) from (N, 4) sums of columns; NaN where nothing was asked."""
    asked, hits, parts, part_hits = totals.T
    with np.errstate(invalid="ignore", divide="ignore"):
        return (hits / asked + part_hits / parts) / 2
