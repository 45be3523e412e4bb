"""Test parts whose shape was seen before: in training, or in pretraining."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from brepfind.findings import Finding, at_most
from brepfind.graphs.twins import twin_groups


def leaked(
    ids: Sequence[str], signatures: NDArray[np.float64], seen: NDArray[np.float64]
) -> list[str]:
    """The parts that have a twin among others, by the one notion of twin.

    Args:
        ids: of P parts. signatures: float64 (P, k). seen: float64 (M, k), of the others.
    """
    if not len(signatures) or not len(seen):
        return []
    groups = twin_groups(np.concatenate([signatures, seen]))
    known = set(groups[len(signatures) :].tolist())
    return [one for one, group in zip(ids, groups.tolist(), strict=False) if group in known]


def leak_findings(
    ids: Sequence[str],
    signatures: NDArray[np.float64],
    seen: Mapping[str, NDArray[np.float64]],
    prefix: str = "evaluate",
) -> list[Finding]:
    """One finding per place where test parts may have been seen; each asks for none.

    Args:
        seen: signatures by place, such as ``train`` and ``pretraining``.
    """
    findings = []
    for place, others in seen.items():
        found = leaked(ids, signatures, others)
        named = ", ".join(found[:3]) + (" and more" if len(found) > 3 else "")
        findings.append(
            at_most(
                f"{prefix}.twins_in_{place}",
                len(found),
                0,
                advice=f"test parts have a twin in {place} ({named}): R@K would measure memory; "
                "split again, by twins, over all that was seen",
            )
        )
    return findings
