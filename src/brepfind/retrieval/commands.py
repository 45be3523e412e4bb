"""What ``brepfind embed``, ``evaluate`` and ``vitals`` do, with no pipeline around them.

Each returns what to print and the exit code: 0 healthy (a warning is that too), 1 sick, 2 too few
rows to say. What cannot be read raises an error of the tree, whose exit code is 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from brepfind.corpus.manifest import Corpus, read_corpus
from brepfind.errors import InputError
from brepfind.findings import Finding, at_least, failed
from brepfind.graphs.dataset import PartReader
from brepfind.graphs.store import GraphStore
from brepfind.graphs.twins import twin_groups
from brepfind.log import printable
from brepfind.metrics.diagnostic import diagnostic
from brepfind.metrics.gate import STANDARD_LIMITS, HealthConfig, Judgement, judge
from brepfind.metrics.vitals import Vitals, vitals
from brepfind.retrieval.embed import embed
from brepfind.retrieval.embeddings import Embeddings
from brepfind.retrieval.evaluate import EvaluateConfig, evaluate, table_findings
from brepfind.retrieval.foreign import read_matrices
from brepfind.retrieval.foreign_pairs import check_target, read_pair, write_pair
from brepfind.retrieval.health import check_embeddings
from brepfind.retrieval.model import load_trained

STANDARD_EVALUATION = EvaluateConfig(bootstrap=1000, seed=0, min_self_retrieval=0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command found.

    Attributes:
        code: the exit code. text: for a person. data: the same for strict JSON.
    """

    code: int
    text: str
    data: Mapping[str, Any]


def vitals_of(path: Path, limits: HealthConfig = STANDARD_LIMITS) -> Outcome:
    """The vital signs and the verdict on every matrix of a file.

    Raises:
        InputError: if the file cannot be read or holds no matrix.
    """
    matrices = read_matrices(path)
    signs = {printable(name, 40): vitals(rows) for name, rows in matrices.items()}
    judged = [judge(name, one, limits, prefix="vitals") for name, one in signs.items()]
    shapes = [shape_finding(name, one) for name, one in signs.items()]
    lines = [diagnostic(judged, max(one.n for one in signs.values()))]
    return Outcome(
        code=exit_code(judged),
        text="\n".join([*lines, *(f"  {one.line()}" for one in shapes if one.verdict != "ok")]),
        data={
            "verdict": {one.tower: one.state for one in judged},
            "vitals": {name: one.as_json() for name, one in signs.items()},
            "findings": [
                finding.as_json()
                for finding in [*(f for one in judged for f in one.findings), *shapes]
            ],
        },
    )


def shape_finding(name: str, signs: Vitals) -> Finding:
    """A matrix with more columns than rows may stand on its side; its vital signs are then those
    of its columns, and look healthy.
    """
    return at_least(
        f"vitals.{name}.rows_per_column",
        signs.n / signs.dim,
        1.0,
        advice=f"{signs.n} rows of {signs.dim} columns: embeddings are rows; is it transposed?",
        otherwise="warning",
    )


def evaluate_of(
    path: Path,
    limits: HealthConfig = STANDARD_LIMITS,
    config: EvaluateConfig = STANDARD_EVALUATION,
) -> Outcome:
    """The verdict on a pair of towers, then R@K in three directions.

    Ranks of a collapsed tower mean nothing, so none are given then. Too few rows to judge leave
    the ranks true: they are given, and the exit code says that nothing vouches for them.

    Raises:
        InputError: if the embeddings cannot be read or do not fit each other.
    """
    embeddings = read_pair(path)
    if len(embeddings.cad) == 0:
        raise InputError(f"{path}: holds no part")
    health = check_embeddings(embeddings, limits, prefix="evaluate")
    of_towers = {finding.name for judged in health.towers for finding in judged.findings}
    beside = [f for f in failed(health.findings) if f.name not in of_towers]
    code = 1 if beside else exit_code(health.towers)
    data: dict[str, Any] = {"health": health.as_json()}
    if code == 1:
        lines = [health.text, *(finding.line() for finding in beside)]
        lines.append("No ranks: those of a sick tower mean nothing.")
        return Outcome(code=1, text="\n".join(lines), data=data)
    tables = evaluate(embeddings, config)
    found = table_findings(tables, config)
    odd = [finding for finding in found if finding.verdict != "ok"]
    data |= {**tables, "findings": [finding.as_json() for finding in found]}
    if any(finding.name == "evaluate.self_retrieval" for finding in odd):
        code = 1
    lines = [health.text, as_text(tables), *(finding.line() for finding in odd)]
    return Outcome(code=code, text="\n".join(lines), data=data)


def embed_store(
    weights: Path,
    graphs: Path,
    out: Path,
    *,
    cache: Path,
    corpus: Path | None = None,
    ids: Sequence[str] = (),
) -> Embeddings:
    """Embed parts of a graph store with a trained model, and write them down.

    Args:
        weights: what the train stage wrote.
        out: a folder, or a file that ends in .npy, .parquet or .safetensors; see
            :func:`~brepfind.retrieval.foreign_pairs.write_pair`.
        cache: folder for pairwise matrices.
        corpus: what is said of the parts; without it only parts are embedded.
        ids: which parts; all of the store if empty.

    Raises:
        InputError: if an id is not in the store, or ``out`` has another ending.
    """
    check_target(out)
    trained = load_trained(weights)
    store = GraphStore(graphs)
    unknown = [model_id for model_id in ids if model_id not in store]
    if unknown:
        raise InputError(f"{graphs}: holds no part {unknown[0]!r}")
    if not len(store):
        raise InputError(f"{graphs}: holds no part; see rejects.csv for those that were refused")
    groups = twin_groups(store.signatures)
    found = embed(
        trained.model,
        PartReader(store, cache),
        read_corpus(corpus) if corpus is not None else _untold(store),
        ids or store.ids,
        twins=dict(zip(store.ids, groups.tolist(), strict=True)),
        digest=trained.digest,
    )
    write_pair(out, found)
    return found


def _untold(store: GraphStore) -> Corpus:
    """The parts of a store of which nothing is said."""
    parts = store.manifest[["model_id", "path"]].assign(family="", split="")
    columns = ["model_id", "caption", "level", "index", "phrasing"]
    captions = pd.DataFrame({name: pd.Series([], dtype=object) for name in columns})
    return Corpus(parts=parts, captions=captions, root=Path(), source="folder", notes={})


def exit_code(towers: Sequence[Judgement]) -> int:
    """Of the worst verdict: 1 for a collapse, 2 for too few rows, else 0."""
    states = {judged.state for judged in towers}
    return 1 if "collapsed" in states else 2 if "too few" in states else 0


def as_text(tables: Mapping[str, Any]) -> str:
    """The tables a person reads first, in columns."""
    keys = ("n_queries", "n_items", "R_at_1", "R_at_5", "R_at_10", "median_rank")
    rows = {
        **{name: tables[name] for name in ("text_to_cad", "cad_to_text", "cad_to_cad")},
        **{
            f"{name}, text_to_cad": baseline["text_to_cad"]
            for name, baseline in tables["baselines"].items()
        },
    }
    lines = [f"{'':20}" + "".join(f"{key:>13}" for key in keys)]
    lines += [f"{name:20}" + "".join(f"{_cell(row[key]):>13}" for key in keys)
              for name, row in rows.items()]  # fmt: skip
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value > 1 and value == int(value) else f"{value:.4g}"
