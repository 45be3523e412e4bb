"""publish: the search index, the report, the registered model, the end of the MLflow run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from brepfind.corpus.manifest import read_corpus
from brepfind.errors import InputError
from brepfind.files import read_json, sha256
from brepfind.graphs.dataset import PartReader
from brepfind.graphs.store import GraphStore
from brepfind.pipeline import page, paths
from brepfind.pipeline.config import PublishConfig
from brepfind.pipeline.context import StageContext
from brepfind.pipeline.publish_model import log_diagnosis, log_no_model, publish_model
from brepfind.pipeline.runner import prefix
from brepfind.report.markdown import write_report
from brepfind.retrieval.embed import embed_parts
from brepfind.retrieval.index import make_index, write_index
from brepfind.retrieval.model import Trained, load_trained
from brepfind.retrieval.parts import part_table, root_from
from brepfind.tracking.tracker import flat


def publish(context: StageContext) -> Mapping[str, Any]:
    """Write ``data/index`` and the reports, and copy every stage's numbers up."""
    config = context.section("publish", PublishConfig)
    metrics = {
        stage: read_json(context.path(paths.metrics_file(stage)))
        for stage in paths.STAGES
        if stage != "publish"
    }
    _require_one_model(context, metrics)
    indexed = _index(context) if config.index else None
    report = context.path(paths.REPORT)
    write_report(
        report,
        figures=context.path(paths.FIGURES),
        metrics=metrics,
        costs={
            stage: read_json(context.path(paths.cost_file(stage)))
            for stage in paths.STAGES
            if stage != "publish"
        },
        history=pd.read_csv(context.path(paths.MODEL) / "history.csv"),
        params=context.params,
        fingerprint=context.fingerprint,
    )
    # MLflow sorts by name, capitals first: these head the comparison, above forty others.
    best = {f"R_at_{k}": metrics["evaluate"]["text_to_cad"][f"R_at_{k}"] for k in (1, 5, 10)}
    context.tracker.numbers(best, "", pipeline=True)
    for stage in _HEADLINES:
        context.tracker.numbers(_headline(stage, metrics[stage]), prefix(stage), pipeline=True)
    shown = page.passed(context)
    for file in (report, shown, context.path(paths.FIGURES), context.path(paths.PARAMS)):
        context.tracker.artifact(
            file, "report/figures" if file.is_dir() else "report", pipeline=True
        )
    lock = context.path(paths.DVC_LOCK)
    if lock.is_file():
        context.tracker.artifact(lock, "report", pipeline=True)
    log_diagnosis(context)
    if indexed is None:
        log_no_model(context, metrics, "publish.index is false")
        return {"indexed_parts": 0}
    publish_model(context, *indexed, metrics)
    return {"indexed_parts": len(indexed[1])}


def _require_one_model(context: StageContext, metrics: Mapping[str, Any]) -> None:
    """DVC sees to it; stages run by hand may leave a verdict on other weights behind.

    Raises:
        InputError: naming the stage that judged another model.
    """
    digest = sha256(context.path(paths.MODEL) / "best.safetensors")
    for stage in ("health", "evaluate"):
        if metrics[stage]["model"] != digest:
            raise InputError(
                f"{stage} judged a model that is no longer there; run `dvc repro {stage}`"
            )


def _index(context: StageContext) -> tuple[Trained, list[str], NDArray[np.float32]]:
    """All parts of the corpus, embedded by the best weights: those, the ids, the vectors (P, E)."""
    trained = load_trained(context.path(paths.MODEL) / "best.safetensors")
    store = GraphStore(context.path(paths.GRAPHS))
    reader = PartReader(context.path(paths.GRAPHS), context.home / "pairs")
    ids = sorted(store.ids)
    _, vectors = embed_parts(trained.model, reader, ids)
    folder = context.path(paths.INDEX)
    root = root_from(read_corpus(context.path(paths.CORPUS)).root, folder, context.project)
    facts = part_table(store, ids, root)
    assert store.grid is not None  # a store without parts has not come so far
    write_index(folder, make_index(vectors, facts, trained.digest, grid=store.grid))
    return trained, ids, vectors


# What is worth a column on MLflow's comparison page, by stage, what matters most first: the names
# that end a flat metric's. The rest is on the stage's own run.
_HEADLINES: dict[str, tuple[str, ...]] = {
    "evaluate": (
        *(
            f"{direction}/{number}"
            for direction in ("text_to_cad", "cad_to_text")
            for number in ("R_at_1", "R_at_5", "R_at_10", "median_rank")
        ),
        "cad_to_cad/R_at_1",
        "warnings",
        *(f"baselines/ridge/text_to_cad/R_at_{k}" for k in (1, 5, 10)),
        "baselines/chance/text_to_cad/R_at_1",
    ),
    "train": ("best/recall", "best/epoch", "last/loss", "skipped_steps"),
    "health": (
        "self_retrieval",
        "warnings",
        *(f"{tower}/{sign}" for tower in ("cad", "text") for sign in ("mean_cosine", "rank_share")),
    ),
    "prepare": ("parts", "captions"),
    "extract": ("graphs", "reject_rate"),
    "split": ("parts/train", "parts/validation", "parts/test", "parts_with_twins"),
    "sanitize": ("coverage", "from_scratch"),
}


def _headline(stage: str, numbers: Mapping[str, Any]) -> dict[str, Any]:
    every = flat(numbers, dot="/")
    return {name: every[name] for name in _HEADLINES[stage] if name in every}
