"""evaluate: R@K on the test split, beside chance and ridge regression.

Nothing is chosen here: the weights, the ridge's penalty and every limit are settled on validation
before this stage reads the test split, once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table

from brepfind import findings
from brepfind.checkpoints.sanitize import SanitizeConfig
from brepfind.corpus.manifest import read_corpus
from brepfind.corpus.splits import SplitConfig
from brepfind.errors import InputError
from brepfind.files import read_json, write_json
from brepfind.findings import Finding
from brepfind.graphs.dataset import PartReader
from brepfind.graphs.store import GraphStore
from brepfind.log import console, get_logger
from brepfind.metrics.gate import HealthConfig
from brepfind.metrics.vitals import Vitals
from brepfind.models.text import TextTower
from brepfind.pipeline import paths
from brepfind.pipeline.context import StageContext
from brepfind.retrieval.embed import embed
from brepfind.retrieval.embeddings import Embeddings, write_embeddings
from brepfind.retrieval.evaluate import DIRECTIONS, EvaluateConfig, table_findings
from brepfind.retrieval.evaluate import evaluate as tables_of
from brepfind.retrieval.face_order import order_moves
from brepfind.retrieval.health import (
    EmbeddingHealth,
    TowerVitals,
    check_embeddings,
    distinct_inputs,
)
from brepfind.retrieval.leaks import leak_findings, read_signatures, unknown_pretraining
from brepfind.retrieval.model import load_trained
from brepfind.retrieval.ridge import ridge_baseline, ridge_data

log = get_logger(__name__)

# At most so many test parts are embedded in several orders of their faces.
_ORDERED_PARTS = 200


def evaluate(context: StageContext) -> Mapping[str, Any]:
    """Write ``data/embeddings`` of the test split and ``reports/evaluate.json``; halts on leaks, on
    vital signs, on self-retrieval, and where there is nothing to measure.
    """
    config = context.section("evaluate", EvaluateConfig)
    split = pd.read_parquet(context.path(paths.SPLIT))
    ids = split["model_id"][split["split"] == "test"].tolist()
    if not ids:
        raise InputError("the test split is empty; raise split.test")
    store = GraphStore(context.path(paths.GRAPHS))
    leaks = _leaks(context, store, split)
    findings.require("evaluate", leaks)

    twins = dict(zip(split["model_id"], split["twin"], strict=True))
    corpus = read_corpus(context.path(paths.CORPUS))
    trained = load_trained(context.path(paths.MODEL) / "best.safetensors")
    reader = PartReader(store, context.home / "pairs")
    embeddings = embed(trained.model, reader, corpus, ids, twins=twins, digest=trained.digest)
    write_embeddings(context.path(paths.EMBEDDINGS), embeddings)
    signs = _signs(context, embeddings)
    console.print(signs.text, markup=False, highlight=False, soft_wrap=True)
    findings.require("evaluate", signs.findings)

    result = tables_of(embeddings, config)
    found = [*leaks, *signs.findings, *table_findings(result, config)]
    findings.require("evaluate", found)
    for warning in (finding for finding in found if finding.verdict == "warning"):
        log.warning("%s", warning.line().removeprefix("WARNING "))
    report = context.path(paths.REPORTS) / "evaluate.json"
    write_json(report, {"findings": [finding.as_json() for finding in found]})
    context.tracker.artifact(report, "evaluate")
    tower = TextTower.load(trained.metadata["text_tower"], "frozen", 1)
    data = ridge_data(store, corpus, split, twins, tower)
    result["baselines"]["ridge"] = {"text_to_cad": ridge_baseline(data)}
    _print(result)
    some = ids[:: math.ceil(len(ids) / _ORDERED_PARTS)]
    moves = order_moves(trained.model, reader, some) if len(some) > 1 else None
    return result | {
        "model": trained.digest,
        "face_order": None if moves is None else asdict(moves),
        "leaks": {finding.name.rpartition(".")[2]: finding.value for finding in leaks},
        "vitals": {"cad": signs.vitals.cad.numbers(), "text": signs.vitals.text.numbers()},
        "pair": signs.pair.as_json(),
        "warnings": sum(finding.verdict == "warning" for finding in found),
    }


def _signs(context: StageContext, embeddings: Embeddings) -> EmbeddingHealth:
    """The vital signs of the test split, beside those of validation before the first step.

    A test split is as large as it is: fewer rows than health asks for are judged all the same, and
    a warning says that they alone could not tell health from a collapse.
    """
    limits = context.section("health", HealthConfig)
    inputs = distinct_inputs(embeddings)
    few = findings.at_least(
        "evaluate.distinct_inputs",
        inputs,
        limits.min_rows,
        advice="the test split is too small to vouch for itself; health has judged the same model "
        "on more parts. Give more parts, or raise split.test",
        otherwise="warning",
    )
    before = read_json(context.project / paths.metrics_file("health"))["step0"]
    cad, text = (Vitals.from_numbers(before[name]) for name in ("cad", "text"))
    signs = check_embeddings(
        embeddings,
        limits.model_copy(update={"min_rows": min(limits.min_rows, inputs)}),
        step0=TowerVitals(cad=cad, text=text, cad_before=None, text_before=None),
        prefix="evaluate",
    )
    return replace(signs, findings=(*signs.findings, few))


def _leaks(context: StageContext, store: GraphStore, split: pd.DataFrame) -> list[Finding]:
    """Whether a test part has a twin where the model, or its encoder, has learned."""
    of = dict(zip(store.ids, store.signatures, strict=True))
    sides = {side: sorted(rows["model_id"]) for side, rows in split.groupby("split")}
    rows = {side: np.stack([of[model_id] for model_id in ids]) for side, ids in sides.items()}
    seen = {side: rows[side] for side in ("train", "validation") if side in rows}
    # A split of the user's own may leak if they say so: it is counted, and stays a warning.
    allowed = context.section("split", SplitConfig).allow_leaks
    found = leak_findings(
        sides["test"], rows["test"], seen, otherwise="warning" if allowed else "failed"
    )
    checkpoint = context.section("sanitize", SanitizeConfig).checkpoint
    if checkpoint is None:
        return found
    pretraining = read_signatures(context.path(Path(checkpoint)))
    if pretraining is None:
        return [*found, unknown_pretraining(checkpoint)]
    return found + leak_findings(sides["test"], rows["test"], {"pretraining": pretraining})


def rows_of(result: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The tables a person reads first, with their names."""
    rows = [(name, result[name]) for name in DIRECTIONS]
    baselines = result["baselines"]
    rows += [(f"{name} (text_to_cad)", baselines[name]["text_to_cad"]) for name in baselines]
    return rows


def _print(result: Mapping[str, Any]) -> None:
    table = Table("test split", "queries", "items", "R@1", "R@5", "R@10", "median rank")
    for name, row in rows_of(result):
        table.add_row(
            name,
            *(_cell(row[key], "{:.0f}") for key in ("n_queries", "n_items")),
            *(_cell(row[key], "{:.1%}") for key in ("R_at_1", "R_at_5", "R_at_10")),
            _cell(row["median_rank"], "{:.1f}"),
        )
    console.print(table)


def _cell(value: float | None, form: str) -> str:
    # A direction without a query has no numbers.
    return "-" if value is None else form.format(value)
