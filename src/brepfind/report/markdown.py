"""The report of a run in Markdown: the numbers first, then the curves, then how it was made."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from brepfind.files import write_text
from brepfind.report.figures import draw_curves
from brepfind.report.words import passed

_DIRECTIONS = ("text_to_cad", "cad_to_text", "cad_to_cad")
_KS = ("R_at_1", "R_at_5", "R_at_10")


def write_report(
    path: Path,
    *,
    figures: Path,
    metrics: Mapping[str, Any],
    costs: Mapping[str, Mapping[str, float]],
    history: pd.DataFrame,
    params: Mapping[str, Any],
    fingerprint: str,
) -> None:
    """Write the report and its figures.

    Args:
        path: the Markdown file.
        figures: the folder for the curves.
        metrics, costs: of each stage, as in ``metrics/``.
        history: of training, a row per validation.
        params: all sections, as read.
        fingerprint: of the state that the run stands for.
    """
    drawn = draw_curves(figures, history)
    lines = ["# Report", "", _verdict(metrics), ""]
    lines += ["## Retrieval on the test split", "", *_retrieval(metrics["evaluate"]), ""]
    lines += ["## By caption level", "", *_by_level(metrics["evaluate"]["text_to_cad"]), ""]
    lines += ["## Curves", ""]
    for file in drawn:
        lines += [f"![{file.stem}]({Path(os.path.relpath(file, path.parent)).as_posix()})", ""]
    lines += ["## Vital signs (validation)", "", *_vitals(metrics["health"]), ""]
    if moves := metrics["evaluate"].get("face_order"):
        lines += ["## Order of faces", "", _face_order(moves), ""]
    lines += ["## Corpus", "", *_corpus(metrics), ""]
    lines += ["## Time and memory", "", *_costs(costs), ""]
    lines += ["## To run it again", "", f"State `{fingerprint[:12]}`, with these parameters:", ""]
    lines += ["```yaml", yaml.safe_dump(dict(params), sort_keys=False).rstrip(), "```", ""]
    write_text(path, "\n".join(lines))


def _verdict(metrics: Mapping[str, Any]) -> str:
    to_cad = metrics["evaluate"]["text_to_cad"]
    chance = metrics["evaluate"]["baselines"]["chance"]["text_to_cad"]
    return (
        f"{passed(metrics)}. A caption finds its part first in "
        f"{100 * to_cad['R_at_1']:.1f} % of {to_cad['n_queries']:.0f} queries over "
        f"{to_cad['n_items']:.0f} parts; chance would be {100 * chance['R_at_1']:.1f} %."
    )


def _retrieval(result: Mapping[str, Any]) -> list[str]:
    rows = [(name.replace("_", " "), result[name]) for name in _DIRECTIONS]
    for name, tables in result["baselines"].items():
        rows.append((f"{name}, text to cad", tables["text_to_cad"]))
    return _table(
        ["", "queries", "items", "R@1", "R@5", "R@10", "median rank"],
        (
            [
                name,
                f"{row['n_queries']:.0f}",
                f"{row['n_items']:.0f}",
                *(_with_interval(row, key) for key in _KS),
                f"{row['median_rank']:.1f}",
            ]
            for name, row in rows
        ),
    )


def _with_interval(row: Mapping[str, Any], key: str) -> str:
    text = f"{100 * row[key]:.1f} %"
    ends = row.get("interval_95", {}).get(key)
    return f"{text} ({100 * ends[0]:.1f} to {100 * ends[1]:.1f})" if ends else text


def _by_level(to_cad: Mapping[str, Any]) -> list[str]:
    return _table(
        ["level (0 vague, 3 exact)", "queries", "R@1", "R@5", "R@10"],
        (
            [level, f"{row['n_queries']:.0f}", *(_with_interval(row, key) for key in _KS)]
            for level, row in to_cad["by_level"].items()
        ),
    )


def _vitals(health: Mapping[str, Any]) -> list[str]:
    names = [name for name in health["cad"] if name in health["text"]]
    return _table(
        ["", "CAD", "text"],
        ([name, f"{health['cad'][name]:.4g}", f"{health['text'][name]:.4g}"] for name in names),
    )


def _face_order(moves: Mapping[str, Any]) -> str:
    return (
        "The encoder sees the order in which a file lists a part's faces, which means nothing. In "
        f"{moves['orders']} random orders each, {moves['parts']} test parts are nearest to "
        f"themselves in {100 * moves['finds_itself']:.1f} % of tries (median cosine "
        f"{moves['median']:.3f}, worst {moves['worst']:.3f}; to the nearest other part "
        f"{moves['neighbour']:.3f})."
    )


def _corpus(metrics: Mapping[str, Any]) -> list[str]:
    extract, split = metrics["extract"], metrics["split"]
    sides = ", ".join(f"{count} {side}" for side, count in split["parts"].items())
    lines = [
        f"- {metrics['prepare']['captions']} captions of {metrics['prepare']['parts']} parts",
        f"- {extract['graphs']} graphs from {extract['files']} STEP files, "
        f"{extract['faces_mean']:.1f} faces on average, at most {extract['faces_max']}",
        f"- {sides}; {split['parts_with_twins']} parts have a twin, none across a border"
        if not split["leaking_parts"]
        else f"- {sides}; **{split['leaking_parts']} parts leak**: a twin is on another side",
        f"- {split['captions_orphaned_by_rejects']} captions belong to rejected parts",
    ]
    lines += [
        f"- {count} files rejected: {reason}"
        for reason, count in extract["rejected_by_reason"].items()
    ]
    return lines


def _costs(costs: Mapping[str, Mapping[str, float]]) -> list[str]:
    return _table(
        ["stage", "seconds", "peak memory, MB"],
        (
            [stage, f"{cost['seconds']:.1f}", f"{cost['peak_memory_mb']:.0f}"]
            for stage, cost in costs.items()
        ),
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]
