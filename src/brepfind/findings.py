"""The one form of every check's result, and how it is written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from brepfind.errors import CheckFailed

Verdict = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found.

    Attributes:
        name: dotted and stable, such as ``health.cad.effective_rank``.
        value: what was measured; a number, or a word where there is none.
        limit: what was asked of it, in words that a person reads: ``>= 0.1``.
        verdict: ``ok``, ``warning`` or ``failed``; only ``failed`` stops a run.
        advice: what it usually means and what to try; empty when all is well.
    """

    name: str
    value: float | int | str
    limit: str
    verdict: Verdict
    advice: str = ""

    def line(self) -> str:
        """The finding in one line of plain text."""
        value = f"{self.value:.6g}" if isinstance(self.value, float) else str(self.value)
        line = f"{self.verdict.upper():7} {self.name} = {value} (asked: {self.limit})"
        return f"{line}. {self.advice}" if self.advice else line

    def as_json(self) -> dict[str, Any]:
        """A mapping for strict JSON: a number that is not finite becomes its name as text."""
        value = self.value
        if isinstance(value, float) and not math.isfinite(value):
            value = str(value)
        return {
            "name": self.name,
            "value": value,
            "limit": self.limit,
            "verdict": self.verdict,
            "advice": self.advice,
        }


def at_least(
    name: str, value: float, limit: float, *, advice: str = "", otherwise: Verdict = "failed"
) -> Finding:
    """A finding that is ok only if ``value >= limit``; NaN is not."""
    ok = value >= limit  # written this way round, so that NaN fails
    return Finding(
        name=name,
        value=value,
        limit=f">= {limit:g}",
        verdict="ok" if ok else otherwise,
        advice="" if ok else advice,
    )


def at_most(
    name: str, value: float, limit: float, *, advice: str = "", otherwise: Verdict = "failed"
) -> Finding:
    """A finding that is ok only if ``value <= limit``; NaN is not."""
    ok = value <= limit
    return Finding(
        name=name,
        value=value,
        limit=f"<= {limit:g}",
        verdict="ok" if ok else otherwise,
        advice="" if ok else advice,
    )


def failed(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that stop a run."""
    return [finding for finding in findings if finding.verdict == "failed"]


def require(check: str, findings: Sequence[Finding], *, then: str = "") -> None:
    """Raise if any finding failed.

    Args:
        then: what else the one sentence of the failure has to say, such as since when.

    Raises:
        CheckFailed: its summary names the check, the first failure, and how many more there are.
    """
    bad = failed(findings)
    if not bad:
        return
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    first = bad[0]
    value = f"{first.value:.6g}" if isinstance(first.value, float) else first.value
    advice = f": {first.advice}" if first.advice else ""
    rest = f"; {then}" if then else ""
    raise CheckFailed(
        f"{check}: {first.name} is {value}, asked is {first.limit}{more}{advice}{rest}", findings
    )
