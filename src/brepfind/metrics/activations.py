"""Units that no longer say anything: dead and saturated, on a probe batch.

A unit is *dead* if its output is constant while the module's input varies; a module whose input is
constant is not judged (a graph token, the embedding of a flag that no part sets: constant by
design). A unit before a GELU or ReLU is *shut* if it is far below zero for every row: what follows
is zero, and so is its gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brepfind.findings import Finding

# Outputs that differ by less than this, relative to the module's largest, are constant.
_STILL = 1e-6
# GELU is within 2e-4 of zero below this.
_SHUT = -4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitVitals:
    """Of one module on a probe batch.

    Attributes:
        name: of the module. units: its outputs per row.
        judged: whether its input varied, so that constancy means something.
        nonfinite: share of units with a value that is not finite.
        dead, shut: share of units; ``shut`` is 0 where no such activation follows.
    """

    name: str
    units: int
    judged: bool
    nonfinite: float
    dead: float
    shut: float


def unit_vitals(
    name: str,
    inputs: NDArray[np.floating[Any]],
    outputs: NDArray[np.floating[Any]],
    *,
    gated: bool = False,
) -> UnitVitals:
    """The state of a module's units.

    Args:
        inputs: (R, I), what went in, a row per token, face or part. outputs: (R, U), what came out.
        gated: whether a GELU or ReLU follows.
    """
    finite = np.isfinite(outputs).all(axis=0)
    varied = len(inputs) > 1 and bool((np.ptp(inputs, axis=0) > 0).any())
    size = float(np.abs(outputs[:, finite]).max(initial=0.0))
    still = np.zeros(outputs.shape[1], bool)
    still[finite] = np.ptp(outputs[:, finite], axis=0) <= _STILL * size if len(outputs) else False
    shut = finite & (outputs.max(axis=0, initial=-np.inf) < _SHUT) if gated else ~finite & finite
    return UnitVitals(
        name=name,
        units=outputs.shape[1],
        judged=varied,
        nonfinite=float((~finite).mean()),
        dead=float(still.mean()) if varied else 0.0,
        shut=float(shut.mean()),
    )


def unit_findings(modules: Sequence[UnitVitals], prefix: str = "health") -> list[Finding]:
    """One finding per module: not finite or wholly dead fails, half dead or shut is a warning."""
    findings = []
    for module in modules:
        dead = module.dead + module.shut
        value, verdict, advice = dead, "ok", ""
        if module.nonfinite > 0:
            value, verdict = float("nan"), "failed"
            advice = f"{module.nonfinite:.0%} of its units give NaN or infinity on sound input"
        elif module.judged and not dead < 1.0:
            verdict, advice = "failed", "every unit is constant while the input varies"
        elif not dead <= 0.5:
            verdict, advice = "warning", "most units say nothing; lower the learning rate"
        findings.append(
            Finding(
                name=f"{prefix}.units.{module.name}",
                value=value,
                limit="<= 0.5",
                verdict=verdict,  # type: ignore[arg-type]
                advice=advice,
            )
        )
    return findings
