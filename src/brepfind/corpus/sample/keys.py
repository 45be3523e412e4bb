"""Parallel keys and keyways (DIN 6885 sheet 1)."""

from __future__ import annotations

from typing import Any

from build123d import Box, Pos

# Up to this shaft diameter: key width b, key height h, depth in the shaft t1, in the hub t2; mm.
KEYWAYS: tuple[tuple[float, tuple[float, float, float, float]], ...] = (
    (8, (2, 2, 1.2, 1.0)),
    (10, (3, 3, 1.8, 1.4)),
    (12, (4, 4, 2.5, 1.8)),
    (17, (5, 5, 3.0, 2.3)),
    (22, (6, 6, 3.5, 2.8)),
    (30, (8, 7, 4.0, 3.3)),
    (38, (10, 8, 5.0, 3.3)),
    (44, (12, 8, 5.0, 3.3)),
    (50, (14, 9, 5.5, 3.8)),
    (58, (16, 10, 6.0, 4.3)),
    (65, (18, 11, 7.0, 4.4)),
    (75, (20, 12, 7.5, 4.9)),
)


def keyway_of(diameter: float) -> tuple[float, float, float, float] | None:
    """``b, h, t1, t2`` for a shaft diameter, mm; None below 6 mm, where there is no key."""
    if diameter <= 6:
        return None
    return next((key for limit, key in KEYWAYS if diameter <= limit), None)


def keyway_cutter(bore: float, height: float) -> Any:
    """What a keyway in a hub takes away: along the bore from z = 0 to ``height``, at +Y."""
    key = keyway_of(bore)
    assert key is not None
    top = bore / 2 + key[3]
    return Pos(0, top / 2, height / 2) * Box(key[0], top, height)
