"""evaluate: R@K on the test split, beside chance and ridge regression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.table import Table

from brepfind import findings
from brepfind.corpus.manifest import read_corpus
from brepfind.errors import InputError
from brepfind.graphs.dataset import PartReader
from brepfind.graphs.store import GraphStore
from brepfind.log import console
from brepfind.metrics.gate import HealthConfig
from brepfind.models.text import TextTower
from brepfind.pipeline import paths
from brepfind.pipeline.context import StageContext
from brepfind.retrieval.embed import embed
from brepfind.retrieval.embeddings import write_embeddings
from brepfind.retrieval.evaluate import EvaluateConfig
from brepfind.retrieval.evaluate import evaluate as tables_of
from brepfind.retrieval.health import check_embeddings
from brepfind.retrieval.model import load_trained
from brepfind.retrieval.ridge import ridge_baseline, ridge_data

DIRECTIONS = ("text_to_cad", "cad_to_text", "cad_to_cad")


def evaluate(context: StageContext) -> Mapping[str, Any]:
    """Write ``data/embeddings`` of the test split; halts on vital signs and on self-retrieval."""
    config = context.section("evaluate", EvaluateConfig)
    split = pd.read_parquet(context.path(paths.SPLIT))
    twins = dict(zip(split["model_id"], split["twin"], strict=True))
    corpus = read_corpus(context.path(paths.CORPUS))
    reader = PartReader(context.path(paths.GRAPHS), context.home / "pairs")
    trained = load_trained(context.path(paths.MODEL) / "best.safetensors")
    ids = split["model_id"][split["split"] == "test"].tolist()
    if not ids:
        raise InputError("the test split is empty; raise split.test")
    embeddings = embed(trained.model, reader, corpus, ids, twins=twins, digest=trained.digest)
    write_embeddings(context.path(paths.EMBEDDINGS), embeddings)

    limits = context.section("health", HealthConfig)
    signs = check_embeddings(
        # A test split is as large as it is: fewer rows than health asks for are no failure here.
        embeddings,
        limits.model_copy(update={"min_rows": min(limits.min_rows, len(ids))}),
        prefix="evaluate",
    )
    console.print(signs.text, markup=False, highlight=False, soft_wrap=True)
    findings.require("evaluate", signs.findings)

    result = tables_of(embeddings, config)
    own = result["cad_to_cad"]["R_at_1"]
    findings.require(
        "evaluate",
        [
            findings.at_least(
                "evaluate.self_retrieval",
                own,
                config.min_self_retrieval,
                advice="different parts have the same embedding; the CAD tower has collapsed",
            )
        ],
    )
    tower = TextTower.load(trained.metadata["text_tower"], "frozen", 1)
    data = ridge_data(GraphStore(context.path(paths.GRAPHS)), corpus, split, twins, tower)
    result["baselines"]["ridge"] = {"text_to_cad": ridge_baseline(data)}
    _print(result)
    return result


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
