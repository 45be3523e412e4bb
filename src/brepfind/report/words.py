"""Numbers as the report writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

LEVELS = {
    "-1": "unknown",
    "0": "0, vague",
    "1": "1",
    "2": "2",
    "3": "3, exact",
}
KS = ("R_at_1", "R_at_5", "R_at_10")


def passed(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """``Every gate passed``, and how many warnings the gates of the model gave, if any."""
    warnings = sum(int(metrics[stage]["warnings"]) for stage in ("health", "evaluate"))
    return "Every gate passed" + (f", with {many(warnings, 'warning')}" if warnings else "")


def percent(value: float | None) -> str:
    """A share in percent; a dash for none."""
    return "–" if value is None else f"{100 * value:.1f} %"


def interval(row: Mapping[str, Any], key: str) -> str:
    """The 95 % interval of a recall, if it is known."""
    ends = (row.get("interval_95") or {}).get(key)
    return f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}" if ends else ""


def recalls(row: Mapping[str, Any]) -> list[dict[str, str]]:
    """R@1, 5 and 10 of a table with their intervals."""
    return [{"value": percent(row.get(key)), "interval": interval(row, key)} for key in KS]


def rank(value: float | None) -> str:
    """A rank, whole where it is whole."""
    if value is None:
        return "–"
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.1f}"


def count(value: float | int | None) -> str:
    """A whole number with its thousands apart."""
    return "–" if value is None else f"{round(value):,}".replace(",", "\u202f")


def number(value: Any) -> str:
    """A number of any size in few digits; words stay words."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if not math.isfinite(value):
        return str(value)
    return count(value) if isinstance(value, int) else f"{value:.3g}"


def many(number: int, one: str, more: str = "") -> str:
    """``1 part``, ``2 parts``."""
    return f"{count(number)} {one if number == 1 else more or one + 's'}"
