"""The learning rate as a function of the number of steps seen, skipped ones included.

There is no scheduler object: nothing can be called out of order, and nothing has to be saved.
"""

from __future__ import annotations

import math
from typing import Literal


def lr_share(
    step: int, *, warmup: int, total: int, schedule: Literal["cosine", "constant"]
) -> float:
    """The share of the full learning rate at a step, counted from 0.

    It rises linearly over ``warmup`` steps, then stays, or falls to zero along half a cosine.
    """
    if step < warmup:
        return (step + 1) / warmup
    if schedule == "constant":
        return 1.0
    done = (step - warmup) / max(1, total - warmup)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
