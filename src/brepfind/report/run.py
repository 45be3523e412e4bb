"""What the run's page is made of: plain data, each piece missing where there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from brepfind.findings import Finding
from brepfind.retrieval.embeddings import Embeddings


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Why a run did not end well.

    Attributes:
        stage: where.
        reason: one plain sentence.
        from_outside: stopped by a person or the machine, not by a check.
        findings: of the check that failed.
        evidence: where the details are.
    """

    stage: str
    reason: str
    from_outside: bool = False
    findings: Sequence[Finding] = ()
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run, as far as it came.

    Attributes:
        state: digest of the parameters and data that it stands for; empty if it is not known.
        written: when, in words.
        stages: all of them, in order.
        stop: None if every gate passed.
        metrics, costs: by stage, of those that passed alone.
        params: all sections, as read.
        history: of training, a row per validation.
        findings: every check of ``health`` and ``evaluate``, as in ``reports/STAGE.json``.
        embeddings: of the test split.
        graphs: the graph store's manifest. parts: the corpus' parts.
        rejects: files that did not make it: path, reason, message.
        steps: the folder that the paths of parts are relative to.
        previous: what the run published before this one reached, as :mod:`published` keeps it.
        pictures: the folder that pictures of parts are kept in; None for a page without.
        workers: processes that draw them.
        facts: what is needed to run it again, by name.
    """

    state: str
    written: str
    stages: Sequence[str]
    stop: Stop | None = None
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    costs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    history: pd.DataFrame | None = None
    findings: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    embeddings: Embeddings | None = None
    graphs: pd.DataFrame | None = None
    parts: pd.DataFrame | None = None
    rejects: pd.DataFrame | None = None
    steps: Path | None = None
    previous: Mapping[str, Any] | None = None
    pictures: Path | None = None
    workers: int = 1
    facts: Mapping[str, str] = field(default_factory=dict)
