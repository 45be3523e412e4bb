"""Since which epoch a run is broken, and the last epoch that was sound, from its history."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from brepfind.metrics.gate import HealthConfig

_TOWERS = ("cad", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What a history says.

    Attributes:
        broken_since: the epoch from which on every epoch is broken; None if the last one is sound.
        last_sound: the last sound epoch before that (or the last one); None if there is none.
        reasons: what failed at ``broken_since``, such as ``cad_std is 0.02, asked is >= 0.1``.
    """

    broken_since: int | None
    last_sound: int | None
    reasons: tuple[str, ...]

    def sentence(self) -> str:
        """The story in one sentence."""
        if self.broken_since is None:
            if self.last_sound is None:
                return "without an epoch to judge"
            return f"sound to its last epoch, {self.last_sound}"
        sound = (
            "no epoch before it was sound"
            if self.last_sound is None
            else f"the last sound epoch is {self.last_sound}"
        )
        return f"broken since epoch {self.broken_since} ({'; '.join(self.reasons)}); {sound}"


def tell(
    history: Sequence[Mapping[str, float]], limits: HealthConfig, *, attainable: int | None = None
) -> Story:
    """Read a history, a row per validation in order of epochs.

    Args:
        history: rows with ``epoch`` and, per tower, ``{tower}_std``, ``{tower}_mean_cosine``,
            ``{tower}_effective_rank`` and ``{tower}_distinct``. A number that is missing from a
            row is not asked for; one that is NaN fails.
        attainable: the highest effective rank that so few parts can have; as in the gate, half of
            it is asked where that is less than the limit.
    """
    rank = limits.min_effective_rank
    if attainable is not None:
        rank = min(rank, attainable / 2)
    limits = limits.model_copy(update={"min_effective_rank": rank})
    broken = [complaints(row, limits) for row in history]
    epochs = [int(row["epoch"]) for row in history]
    sound = [index for index, reasons in enumerate(broken) if not reasons]
    last = sound[-1] if sound else -1
    if last == len(history) - 1:
        return Story(broken_since=None, last_sound=epochs[last] if history else None, reasons=())
    return Story(
        broken_since=epochs[last + 1],
        last_sound=epochs[last] if sound else None,
        reasons=tuple(broken[last + 1]),
    )


def complaints(row: Mapping[str, float], limits: HealthConfig) -> list[str]:
    """The limits that one row of a history fails, in words."""
    asked = {
        "std": (">=", limits.min_column_std),
        "mean_cosine": ("<=", limits.max_mean_cosine),
        "effective_rank": (">=", limits.min_effective_rank),
        "distinct": (">=", limits.min_distinct),
    }
    found = []
    for tower in _TOWERS:
        for name, (sign, limit) in asked.items():
            value = row.get(f"{tower}_{name}")
            if value is None:
                continue
            fine = value >= limit if sign == ">=" else value <= limit  # NaN is not
            if not fine:
                found.append(f"{tower}_{name} is {value:.3g}, asked is {sign} {limit:g}")
    loss = row.get("loss")
    # Before the first step there is no loss; after it, a loss that is no number is the end.
    if loss is not None and not math.isfinite(loss) and int(row["epoch"]) > 0:
        found.append(f"loss is {loss}")
    return found
