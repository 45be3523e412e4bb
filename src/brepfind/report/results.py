"""The page's sections on retrieval: R@K, ranks, and the space that both towers share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from brepfind.report import charts, words
from brepfind.report.queries import BAND_NAMES, Ranked
from brepfind.report.run import Run
from brepfind.report.section import (
    Content,
    Missing,
    embeddings_of,
    findings_rows,
    metrics_of,
    worth_a_look,
)
from brepfind.report.space import likeness, plane

_MOST_FAMILIES = 60

_DIRECTIONS = {
    "text_to_cad": "a caption looks for its part",
    "cad_to_text": "a part looks for its captions",
    "cad_to_cad": "a part looks for itself",
}


def retrieval(run: Run) -> Content:
    """R@K in three directions, beside chance, ridge regression and the run before."""
    result = metrics_of(run, "evaluate")
    before = (run.previous or {}).get("retrieval", {})
    rows = []
    for direction, name in _DIRECTIONS.items():
        rows.append(_recall_row(name, result[direction]))
        for baseline, said in (
            ("ridge", "ridge regression from descriptors"),
            ("chance", "chance"),
        ):
            table = result["baselines"].get(baseline, {}).get(direction)
            if table:
                rows.append(_recall_row(said, table, aside=True))
        if direction in before:
            rows.append(_recall_row("the run before", before[direction], aside=True))
    to_cad = result["text_to_cad"]
    said = (
        f"{words.many(round(to_cad['n_queries']), 'caption')} of the test split, among "
        f"{words.many(round(to_cad['n_items']), 'part')} that the model has never seen."
    )
    if to_cad.get("n_truncated"):
        said += (
            f" {words.many(round(to_cad['n_truncated']), 'caption')} were cut at the tower's limit."
        )
    return {
        "said": said,
        "rows": rows,
        "worth": worth_a_look(findings_rows(run.findings.get("evaluate", []))),
        "charts": [
            _at_k(direction, result, before) for direction in ("text_to_cad", "cad_to_text")
        ],
        "previous": _previous(run),
        "face_order": _face_order(result.get("face_order")),
    }


def ranks(run: Run) -> Content:
    """How a caption's rank depends on how exact it is, and on the family of its part."""
    result = metrics_of(run, "evaluate")["text_to_cad"]
    ranked = Ranked(run.embeddings) if run.embeddings is not None else None
    levels = ranked.captions["level"].astype(str).to_numpy(object) if ranked else None
    by_level = result.get("by_level") or {}
    by_family = result.get("by_family") or {}
    worst_first = sorted(by_family, key=lambda name: (by_family[name]["R_at_1"] or 0, name))
    shown = worst_first[:_MOST_FAMILIES]
    left = f"; {len(worst_first) - len(shown)} better ones are left out" * (
        len(worst_first) > len(shown)
    )
    return {
        "names": BAND_NAMES,
        "levels": [
            _rank_row(words.LEVELS.get(level, level), table, ranked, levels, level)
            for level, table in by_level.items()
        ],
        "families": [
            # A family has a few parts; an interval of so few says nothing.
            _rank_row(
                name,
                {**by_family[name], "interval_95": None},
                ranked,
                ranked and ranked.families,
                name,
            )
            for name in shown
        ],
        "families_said": f"A caption looks for its part, by family, the worst first{left}",
    }


def space(run: Run) -> Content:
    """The matrix of similarity and the map of both towers."""
    embeddings = embeddings_of(run)
    if not len(embeddings.captions):
        raise Missing("no test part has a caption.")
    like, flat = likeness(embeddings), plane(embeddings)
    ids = embeddings.parts["model_id"].to_numpy(object)
    families = embeddings.parts["family"].to_numpy(object)
    dots = [
        charts.Dot(x=x, y=y, look=look, said=f"{what}{ids[part]} ({families[part] or 'no family'})")
        for look, what, rows in (("cad", "", flat.cad), ("text", "captions of ", flat.text))
        for part, (x, y) in zip(flat.parts, rows, strict=True)
    ]
    averaged = (
        f" Each cell is the mean of up to {like.per_cell} parts." if like.per_cell > 1 else ""
    )
    matrix_said = (
        "Rows are the captions of a part, columns parts, both ordered by family: a bright diagonal "
        "is what was trained for, a bright square a family told apart from the others. "
        f"Mean cosine of captions to their own part {like.own:.3f}, to others {like.other:.3f}."
        + averaged
    )
    map_said = (
        "The first two principal components of both towers' unit vectors together, which keep "
        f"{100 * flat.share:.0f} % of their variance: {words.many(len(flat.parts), 'part')}, each "
        "joined to the mean of its captions. Point at a mark for its name."
    )
    pairs = [(row, row + len(flat.parts)) for row in range(len(flat.parts))]
    return {
        "matrix": charts.matrix(
            "Similarity of captions and parts",
            like.values,
            like.groups,
            rows="captions",
            columns="parts, in the same order",
            said=matrix_said,
        ),
        "matrix_said": matrix_said,
        "map": charts.scatter("Map of both towers", dots, pairs=pairs, said=map_said),
        "map_said": map_said,
    }


def _recall_row(name: str, table: Mapping[str, Any], aside: bool = False) -> Content:
    return {
        "name": name,
        "aside": aside,
        "recalls": words.recalls(table),
        "median": words.rank(table.get("median_rank")),
        "queries": words.count(table.get("n_queries")),
        "among": words.count(table.get("n_items")),
    }


def _rank_row(
    name: str, table: Mapping[str, Any], ranked: Ranked | None, labels: Any, label: str
) -> Content:
    chosen = None if ranked is None else labels == label
    bar = (
        charts.share_bar(ranked.bands(chosen))
        if ranked is not None and chosen is not None and chosen.any()
        else Markup("")
    )
    return _recall_row(name, table) | {"bar": bar}


def _at_k(direction: str, result: Mapping[str, Any], before: Mapping[str, Any]) -> Markup:
    """R@K over K, beside what it is compared with."""
    ks = ("R_at_1", "R_at_5", "R_at_10", "R_at_50")
    tables = {
        "this run": result[direction],
        "ridge": result["baselines"].get("ridge", {}).get(direction),
        "chance": result["baselines"]["chance"].get(direction),
        "run before": before.get(direction),
    }
    name = {"text_to_cad": "Caption to part", "cad_to_text": "Part to captions"}[direction]
    return charts.lines(
        f"{name}: found among the first K, %",
        [
            charts.Series(
                name=who,
                x=range(len(ks)),
                y=[math.nan if table.get(k) is None else 100 * table[k] for k in ks],
                tone=tone,
                dashed=tone > 1,
            )
            for tone, (who, table) in enumerate(tables.items(), 1)
            if table
        ],
        x_label="K",
        names=[k.rpartition("_")[2] for k in ks],
        from_zero=True,
    )


def _previous(run: Run) -> str:
    before = run.previous
    if before is None:
        return (
            "No run before this one is known: none has been published in this checkout's .brepfind."
        )
    said = f"The run before is state {before['state'][:12]}, published {before['when']}"
    now = run.metrics["evaluate"]["text_to_cad"]["R_at_1"]
    then = before["retrieval"]["text_to_cad"]["R_at_1"]
    if before["test"] != run.facts.get("test split"):
        return f"{said}, on another test split: the two cannot be compared number by number."
    if now is None or then is None:
        return f"{said}, on the same test split."
    return f"{said}, on the same test split: R@1 is {100 * (now - then):+.1f} points off it."


def _face_order(moves: Mapping[str, Any] | None) -> str:
    if not moves:
        return ""
    return (
        "The encoder sees the order in which a file lists a part's faces, which means nothing. In "
        f"{moves['orders']} random orders each, {moves['parts']} test parts are nearest to "
        f"themselves in {100 * moves['finds_itself']:.1f} % of tries (median cosine "
        f"{moves['median']:.3f}, worst {moves['worst']:.3f}; to the nearest other part "
        f"{moves['neighbour']:.3f})."
    )
