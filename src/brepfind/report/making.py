"""The page's sections on how a run was made: its corpus, its cost, how to run it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from brepfind.report import charts, words
from brepfind.report.run import Run
from brepfind.report.section import Content, Missing, findings_rows, worth_a_look

_MOST_REJECTS = 100


def stopped(run: Run) -> Content:
    """Where and why it stopped."""
    assert run.stop is not None
    rows = findings_rows([finding.as_json() for finding in run.stop.findings])
    return {
        "evidence": run.stop.evidence,
        "findings": worth_a_look(rows),
        "fine": [row for row in rows if row["verdict"] == "ok"],
    }


def corpus(run: Run) -> Content:
    """What it was trained and measured on."""
    lines = _corpus_lines(run)
    graphs, drawn = run.graphs, []
    if graphs is not None and len(graphs):
        drawn = [
            charts.histogram("Parts by number of faces", graphs["faces"], x_label="faces"),
            charts.histogram(
                "Parts by longest side", _longest(graphs), x_label="mm (powers of ten)", log=True
            ),
            charts.histogram("Parts by number of edges", graphs["edges"], x_label="edges"),
        ]
    if not lines and not drawn and run.rejects is None:
        raise Missing("nothing was prepared or extracted.")
    return {"lines": lines, "charts": drawn, "families": _families(run), **_rejects(run)}


def cost(run: Run) -> Content:
    """Time and memory per stage."""
    if not run.costs:
        raise Missing("no stage has passed.")
    total = sum(float(cost["seconds"]) for cost in run.costs.values())
    rows = [
        {
            "stage": stage,
            "seconds": f"{taken['seconds']:.1f}",
            "bar": charts.share_bar([float(taken["seconds"]) / total if total else 0.0]),
            "memory": words.count(taken["peak_memory_mb"]),
            "also": _also(stage, taken),
        }
        for stage, taken in run.costs.items()
    ]
    return {"said": f"{total:.0f} seconds in all.", "rows": rows}


def again(run: Run) -> Content:
    """Everything needed to run it again."""
    commit = run.facts.get("git commit", "")
    commands = [
        *([f"git checkout {commit.split()[0]}"] if commit and commit != "none" else []),
        "make setup            # exact versions, from requirements.lock",
        "dvc repro             # with the params.yaml below",
    ]
    return {
        "commands": "\n".join(commands),
        "facts": list(run.facts.items()),
        "params": yaml.safe_dump(dict(run.params), sort_keys=False, allow_unicode=True).rstrip()
        if run.params
        else "",
    }


def _longest(graphs: pd.DataFrame) -> NDArray[np.float64]:
    sides = [graphs[f"box_max_{axis}"] - graphs[f"box_min_{axis}"] for axis in "xyz"]
    return np.max(np.stack([side.to_numpy(float) for side in sides]), axis=0)


def _corpus_lines(run: Run) -> list[str]:
    lines = []
    if prepare := run.metrics.get("prepare"):
        lines.append(
            f"{words.many(prepare['captions'], 'caption')} of "
            f"{words.many(prepare['parts'], 'part')}"
        )
    if extract := run.metrics.get("extract"):
        lines.append(
            f"{words.many(extract['graphs'], 'graph')} from "
            f"{words.many(extract['files'], 'STEP file')}, {extract['faces_mean']:.1f} faces on "
            f"average, at most {words.count(extract['faces_max'])}"
        )
    if split := run.metrics.get("split"):
        sides = ", ".join(f"{words.count(count)} {side}" for side, count in split["parts"].items())
        twins = words.many(split["parts_with_twins"], "part has a twin", "parts have a twin")
        leak = (
            f"; {words.count(split['leaking_parts'])} LEAK: their twin is on another side"
            if split["leaking_parts"]
            else ", none of them across a border"
        )
        lines.append(f"{sides} parts; {twins}{leak}")
        orphans = split["captions_orphaned_by_rejects"]
        lines.append(f"{words.many(orphans, 'caption')} left without a part by rejected files")
    return lines


def _families(run: Run) -> list[list[Any]]:
    if run.parts is None or run.graphs is None or not (run.parts["family"] != "").any():
        return []
    table = run.graphs.assign(side=_longest(run.graphs)).merge(
        run.parts[["model_id", "family"]], on="model_id"
    )
    grouped = table[table["family"] != ""].groupby("family")
    rows = grouped.agg(
        parts=("model_id", "size"), faces=("faces", "median"), side=("side", "median")
    )
    rows = rows.reset_index().sort_values(["parts", "family"], ascending=[False, True])
    most = int(rows["parts"].max())
    return [
        [
            row["family"],
            words.count(row["parts"]),
            charts.share_bar([row["parts"] / most]),
            words.rank(row["faces"]),
            words.number(float(row["side"])),
        ]
        for row in rows.to_dict("records")
    ]


def _rejects(run: Run) -> Content:
    if run.rejects is None:
        return {"rejects": None}
    rows = run.rejects.astype(str)
    reasons = rows["reason"].value_counts().sort_index()
    shown = rows.head(_MOST_REJECTS)
    left = f"; the first {_MOST_REJECTS} of {len(rows)}" if len(rows) > len(shown) else ""
    return {
        "rejects": shown[["path", "reason", "message"]].to_numpy().tolist(),
        "reasons": [[reason, words.count(count)] for reason, count in reasons.items()],
        "rejects_said": f"Every rejected file{left}",
    }


def _also(stage: str, cost: Mapping[str, Any]) -> str:
    if stage == "train" and "pairs_per_second" in cost:
        return f"{cost['pairs_per_second']:.0f} pairs a second"
    if stage == "extract" and "cached" in cost:
        return f"{cost['extracted']} files extracted, {cost['cached']} from the cache"
    return ""
