"""R@K in three directions, beside what chance and simple descriptors reach.

    text_to_cad  a caption looks for its part
    cad_to_text  a part looks for any of its captions
    cad_to_cad   a part looks for itself or a twin (float64): 1, or different parts look alike

What answers what stands in ``relevant.py``; what a rank is, in ``metrics/ranks.py``.

Left out, and counted: captions that say nothing (``n_empty``: nothing could be found by them), and
parts without a caption as queries of cad_to_text (``n_unanswerable``); such parts stay in the
gallery of text_to_cad. Captions cut at the text tower's limit stay queries, and are counted
(``n_truncated``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from brepfind.findings import Finding, at_least, at_most
from brepfind.metrics.counting import count_both, count_ranks
from brepfind.metrics.intervals import bootstrap_mean
from brepfind.metrics.neighbours import nearest_other_agrees
from brepfind.metrics.ranks import KS, RankCounts, chance_counts, exact_mean, summarise
from brepfind.metrics.relevance import Relevance
from brepfind.metrics.rows import unit_rows
from brepfind.params import Section
from brepfind.retrieval.embeddings import Embeddings
from brepfind.retrieval.relevant import (
    caption_ids,
    own_part_relevance,
    plain_caption,
    text_to_cad_relevance,
)

DIRECTIONS = ("text_to_cad", "cad_to_text", "cad_to_cad")

# Share of queries that ties may decide before it is worth a warning.
MAX_TIE_GAP = 0.01


class EvaluateConfig(Section):
    """How the test split is evaluated."""

    bootstrap: int = Field(
        ge=0, le=100_000, description="draws for the 95 % intervals, by part; 0 for none"
    )
    seed: int = Field(ge=0, description="of the bootstrap")
    min_self_retrieval: float = Field(
        ge=0, le=1, description="R@1 of CAD to CAD below this stops the run"
    )


Table = dict[str, Any]


def evaluate(embeddings: Embeddings, config: EvaluateConfig) -> Table:
    """The tables of one set of parts and captions.

    Returns:
        Plain data for strict JSON: ``text_to_cad``, ``cad_to_text`` and ``cad_to_cad`` (each as
        :func:`~brepfind.metrics.ranks.summarise` gives it, with ``interval_95``, ``by_family``,
        ``own_part_only``: the same ranks when twins and equal captions count as wrong, and, for
        the first two, ``by_level``), and ``baselines.chance``.

    Raises:
        CheckFailed: if an embedding is not finite or is zero; its id is named.
        InputError: if there is no part.
    """
    data = _Data(embeddings)
    forward, backward = count_both(data.text, data.cad, data.relevance)
    strict, strict_back = count_both(data.text, data.cad, data.own_only)
    to_cad = _table(forward, data.caption_part, config)
    to_cad |= {
        "n_empty": float(data.n_empty),
        "n_truncated": float(data.n_truncated),
        "by_level": _by(data.levels, forward, data.caption_part, config),
        "by_family": _by(data.families[data.caption_part], forward, data.caption_part, config),
        "own_part_only": summarise(strict),
    }
    parts = np.arange(len(data.cad))
    to_text = _table(backward, parts, config)
    to_text |= {
        "by_level": _to_text_by_level(data, config),
        "by_family": _by(data.families, backward, parts, config),
        "own_part_only": summarise(strict_back),
    }
    return {
        "text_to_cad": to_cad,
        "cad_to_text": to_text,
        "cad_to_cad": _cad_to_cad(embeddings, data.families, config),
        "baselines": {
            "chance": {
                "text_to_cad": summarise(chance_counts(data.relevance)),
                "cad_to_text": summarise(chance_counts(data.relevance.transpose())),
            }
        },
    }


def table_findings(
    tables: Mapping[str, Any], config: EvaluateConfig, prefix: str = "evaluate"
) -> list[Finding]:
    """What is asked of the tables themselves: something was measured, self-retrieval holds, and
    ties decide little (else a warning: the expected ranks rest on chance).

    Args:
        tables: as :func:`evaluate` gives them.
    """
    found = []
    for name in DIRECTIONS:
        for what in ("queries", "items"):
            found.append(
                at_least(
                    f"{prefix}.{name}.{what}",
                    tables[name][f"n_{what}"],
                    1,
                    advice="nothing was measured; the test split needs parts with captions",
                )
            )
        found.append(
            at_most(
                f"{prefix}.{name}.tie_gap",
                _number(tables[name]["tie_gap"]),
                MAX_TIE_GAP,
                advice="R@K depends on how ties fall: different inputs have equal scores. Compare "
                "optimistic and pessimistic R@K, and look for equal embeddings",
                otherwise="warning",
            )
        )
    found.append(
        at_least(
            f"{prefix}.self_retrieval",
            _number(tables["cad_to_cad"]["R_at_1"]),
            config.min_self_retrieval,
            advice="different parts have the same embedding; the CAD tower has collapsed",
        )
    )
    return found


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def self_retrieval(embeddings: Embeddings) -> float:
    """R@1 of each part looking for itself or a twin among all parts, in float64."""
    return float(summarise(_self_counts(embeddings, embeddings.twins))["R_at_1"])


class _Data:
    """Unit rows and who answers whom; captions that say nothing are out."""

    def __init__(self, embeddings: Embeddings) -> None:
        captions = embeddings.captions
        told = np.array([bool(plain_caption(text)) for text in captions["caption"]], bool)
        kept = captions[told]
        # Embedding leaves such captions out already; files from elsewhere may hold them.
        self.n_empty = int((~told).sum()) + int(embeddings.notes.get("captions_empty", 0))
        self.n_truncated = int(kept["truncated"].sum())
        self.levels = kept["level"].to_numpy(np.int64)
        self.caption_part = embeddings.caption_part[told]
        self.families = embeddings.parts["family"].to_numpy(object)
        ids = embeddings.parts["model_id"].tolist()
        names = [f"{m} caption {i}" for m, i in zip(kept["model_id"], kept["index"], strict=True)]
        self.cad = unit_rows("CAD", embeddings.cad, ids)
        self.text = unit_rows("text", embeddings.text[told], names)
        self.relevance = text_to_cad_relevance(
            caption_ids(kept["caption"]), self.caption_part, embeddings.twins
        )
        self.own_only = own_part_relevance(self.caption_part, len(self.cad))


def _table(counts: RankCounts, parts: NDArray[np.int64], config: EvaluateConfig) -> Table:
    """One direction with its intervals; ``parts`` is the part each query hangs on."""
    table = summarise(counts)
    kept = counts.answerable
    if config.bootstrap == 0 or not kept.any():
        return table
    answered, units = counts.select(kept), parts[kept]
    table["interval_95"] = {
        name: _interval(values, units, config)
        for name, values in [
            *((f"R_at_{k}", answered.hits(k)) for k in KS),
            ("MRR", answered.reciprocal()),
        ]
    }
    return table


def _interval(
    values: NDArray[np.float64], units: NDArray[np.int64], config: EvaluateConfig
) -> list[float] | None:
    ends = bootstrap_mean(values, units, draws=config.bootstrap, seed=config.seed)
    return None if ends is None else list(ends)


def _by(
    labels: Sequence[Any] | NDArray[Any],
    counts: RankCounts,
    parts: NDArray[np.int64],
    config: EvaluateConfig,
) -> dict[str, Table]:
    """One table per label of the queries; the gallery stays whole. Unlabelled ones have none."""
    labels = np.asarray(labels)
    return {
        str(label): _table(counts.select(labels == label), parts[labels == label], config)
        for label in sorted(set(labels.tolist()))
        if label != ""
    }


def _to_text_by_level(data: _Data, config: EvaluateConfig) -> dict[str, Table]:
    """One table per caption level, among the captions of that level alone."""
    tables = {}
    queries, items = data.relevance.transpose().pairs()
    for level in sorted(set(data.levels.tolist())):
        chosen = data.levels == level
        place = np.cumsum(chosen) - 1
        kept = chosen[items]
        relevance = Relevance.from_pairs(
            queries[kept], place[items[kept]], len(data.cad), int(chosen.sum())
        )
        counts = count_ranks(data.cad, data.text[chosen], relevance)
        tables[str(level)] = _table(counts, np.arange(len(data.cad)), config)
    return tables


def _self_counts(embeddings: Embeddings, groups: NDArray[np.int64]) -> RankCounts:
    """A part finds itself, or one of its group, among all."""
    # Float64 throughout: rows of healthy near-twins, 1e-7 apart, tie in float32.
    ids = embeddings.parts["model_id"].tolist()
    unit = unit_rows("CAD", embeddings.cad, ids, np.float64)
    return count_ranks(unit, unit, Relevance.from_groups(groups, groups))


def _cad_to_cad(embeddings: Embeddings, families: NDArray[Any], config: EvaluateConfig) -> Table:
    counts = _self_counts(embeddings, embeddings.twins)
    parts = np.arange(len(counts.better))
    table = _table(counts, parts, config)
    table["own_part_only"] = summarise(_self_counts(embeddings, parts))
    table["by_family"] = _by(families, counts, parts, config)
    table["nearest_other"] = _nearest_other(embeddings, families)
    return table


def _nearest_other(embeddings: Embeddings, families: NDArray[Any]) -> Mapping[str, Any]:
    """How often the nearest other part, twins apart, is of the same family."""
    known = np.flatnonzero(families != "")
    if not len(known):
        return {"n_queries": 0.0, "same_family": None}
    names = sorted(set(families[known].tolist()))
    labels = np.array([names.index(family) for family in families[known]], np.int64)
    unit = unit_rows("CAD", embeddings.cad[known], None, np.float64).astype(np.float64)
    agrees = nearest_other_agrees(unit, labels, embeddings.twins[known])
    asked = ~np.isnan(agrees)
    return {
        "n_queries": float(asked.sum()),
        "same_family": exact_mean(agrees[asked]) if asked.any() else None,
        "by_family": {
            name: exact_mean(agrees[asked & (labels == i)])
            for i, name in enumerate(names)
            if (asked & (labels == i)).any()
        },
    }
