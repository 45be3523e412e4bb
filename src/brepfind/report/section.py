"""What the sections of the run's page share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from brepfind.report import words
from brepfind.report.run import Run
from brepfind.retrieval.embeddings import Embeddings

Content = dict[str, Any]

_ORDER = ("failed", "warning", "ok")


class Missing(Exception):
    """A section has nothing to show; the text says why."""


def findings_rows(findings: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Findings as rows of a table, the worst first."""
    rows = sorted(findings, key=lambda one: _ORDER.index(one["verdict"]))
    return [{**one, "value": words.number(one["value"])} for one in rows]


def worth_a_look(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Those of :func:`findings_rows` that did not pass without a word."""
    return [row for row in rows if row["verdict"] != "ok"]


def metrics_of(run: Run, stage: str) -> Mapping[str, Any]:
    """What a stage measured, or :class:`Missing`."""
    if stage not in run.metrics:
        raise Missing(f"{stage} has not passed in this run.")
    return run.metrics[stage]


def history_of(run: Run) -> pd.DataFrame:
    """The history of training, or :class:`Missing`."""
    if run.history is None or not len(run.history):
        raise Missing("training left no history.")
    return run.history


def embeddings_of(run: Run) -> Embeddings:
    """The embeddings of the test split, or :class:`Missing`."""
    if run.embeddings is None:
        raise Missing("there are no embeddings of the test split.")
    return run.embeddings
