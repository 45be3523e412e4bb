"""The end of publish: the model in MLflow, logged, registered, compared with the champion."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console

from brepfind.checkpoints.doctor import diagnose
from brepfind.checkpoints.render import render
from brepfind.corpus.manifest import read_corpus
from brepfind.files import write_text
from brepfind.graphs.store import GraphStore
from brepfind.log import get_logger
from brepfind.pipeline import paths
from brepfind.pipeline.context import StageContext
from brepfind.pipeline.fingerprint import git_tags
from brepfind.report.words import passed
from brepfind.retrieval.model import Trained
from brepfind.retrieval.standing import standing
from brepfind.tracking.package import write_model

log = get_logger(__name__)

_LOCK = Path("requirements.lock")
_DOCTOR = "doctor.txt"
_TABLE_COLUMNS = 120
_DIGEST = 12  # characters of a digest that a person compares


def publish_model(
    context: StageContext,
    trained: Trained,
    ids: Sequence[str],
    vectors: NDArray[np.float32],
    metrics: Mapping[str, Any],
) -> None:
    """Log and register the model; every gate has passed, or this stage would not run.

    Args:
        trained: the best weights. ids, vectors: the parts of the index, (P, E).
        metrics: of every stage before this one.
    """
    split = pd.read_parquet(context.path(paths.SPLIT))
    captions = read_corpus(context.path(paths.CORPUS)).captions
    parts = GraphStore(context.path(paths.GRAPHS)).manifest
    sides = dict(zip(split["model_id"], split["split"], strict=True))
    chosen = [n for n, part in enumerate(ids) if sides.get(part) == "validation"]
    mine = standing(
        trained.model,
        [ids[n] for n in chosen],
        vectors[chosen],
        captions,
        dict(zip(split["model_id"], split["twin"], strict=True)),
        dict(zip(parts["model_id"], parts["sha256"], strict=True)),
    )
    recalls = {name: f"{value:.4f}" for name, value in _test_recalls(metrics).items()}
    commit = git_tags(context.project).get("mlflow.source.git.commit", "")
    facts = {"weights": trained.digest, "state": context.fingerprint, "git_commit": commit}
    folder = context.evidence / "model"
    write_model(
        folder,
        trained,
        context.path(paths.INDEX),
        lock=context.path(_LOCK),
        example=str(captions["caption"].iloc[0]),
        standing=mine,
        notes={**facts, "text_tower": trained.metadata["text_tower"], **recalls},
    )
    short = {name: value[:_DIGEST] for name, value in facts.items()}
    name = re.sub("[/:]", "-", context.runtime.experiment)  # MLflow takes neither in a model's name
    context.tracker.model(folder, name, verdict(metrics), {**recalls, **short})


def log_no_model(context: StageContext, metrics: Mapping[str, Any], why: str) -> None:
    """Say that no model is registered, and why."""
    log.info("no model is registered in MLflow: %s", why)
    context.tracker.describe(f"{verdict(metrics)}\n\nNo model is registered: {why}.")


def verdict(metrics: Mapping[str, Any]) -> str:
    """What the description of a run that ended well begins with."""
    row = metrics["evaluate"]["text_to_cad"]
    recalls = ", ".join(f"R@{k} {row[f'R_at_{k}']:.1%}" for k in (1, 5, 10))
    return (
        f"**{passed(metrics)}.** A caption finds its part among {row['n_items']:.0f} test parts: "
        f"{recalls}, median rank {row['median_rank']:.4g}."
    )


def log_diagnosis(context: StageContext) -> None:
    """The doctor's table of the published weights, as an artifact of the pipeline run."""
    said = io.StringIO()
    weights = context.path(paths.MODEL) / "best.safetensors"
    console = Console(file=said, width=_TABLE_COLUMNS, force_terminal=False)
    render(diagnose(weights), console, everything=True)
    file = context.evidence / _DOCTOR
    write_text(file, said.getvalue())
    context.tracker.artifact(file, "report", pipeline=True)


def _test_recalls(metrics: Mapping[str, Any]) -> dict[str, float]:
    row = metrics["evaluate"]["text_to_cad"]
    return {f"test_R_at_{k}": float(row[f"R_at_{k}"]) for k in (1, 5, 10)}
