"""The run's page: one HTML file that says how the run went, needs no network and runs no script."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

import brepfind
from brepfind.files import write_text
from brepfind.report import learning, making, results, words
from brepfind.report.run import Run
from brepfind.report.section import Content, Missing, embeddings_of

# By the name of their template, in the order in which they are read.
_SECTIONS: dict[str, tuple[str, Callable[[Run], Content]]] = {
    "retrieval": ("Does it find parts?", results.retrieval),
    "training": ("Training", learning.training),
    "vitals": ("Vital signs", learning.vitals),
    "space": ("Who is like whom", results.space),
    "ranks": ("Ranks by caption level and family", results.ranks),
    "worst": ("The worst queries", lambda run: _worst(run)),
    "corpus": ("The corpus", making.corpus),
    "cost": ("Time and memory", making.cost),
    "again": ("To run it again", making.again),
}


def write_page(path: Path, run: Run) -> None:
    """Write the page of a run, whole or not at all.

    The same run gives the same bytes, but for when it was written and what stages took. Whatever
    comes from outside (names, captions, messages) is escaped.
    """
    write_text(path, page(run))


def page(run: Run) -> str:
    """The page's HTML."""
    chosen = dict(_SECTIONS)
    if run.stop is not None:
        chosen = {"stopped": (f"Why {run.stop.stage} stopped", making.stopped), **chosen}
    return _templates().get_template("page.html").render(
        version=brepfind.__version__,
        state=run.state[:12],
        written=run.written,
        verdict=_verdict(run),
        steps=_steps(run),
        tiles=_tiles(run),
        sections=[_section(name, title, make, run) for name, (title, make) in chosen.items()],
    )  # fmt: skip


@functools.cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("brepfind.report", "templates"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _section(name: str, title: str, make: Callable[[Run], Content], run: Run) -> dict[str, Any]:
    try:
        return {"id": name, "title": title, "missing": "", "content": make(run)}
    except Missing as why:
        return {"id": name, "title": title, "missing": str(why), "content": {}}


def _worst(run: Run) -> Content:
    embeddings_of(run)  # or Missing, before Open CASCADE is loaded for nothing
    from brepfind.report.worst import worst

    return worst(run)


def _verdict(run: Run) -> dict[str, Any]:
    if run.stop is not None:
        how = "was stopped from outside" if run.stop.from_outside else "stopped"
        return {
            "kind": "stopped",
            "said": f"It {how} at {run.stop.stage}",
            "lines": [run.stop.reason],
        }
    health, evaluate = (int(run.metrics[stage]["warnings"]) for stage in ("health", "evaluate"))
    to_cad = run.metrics["evaluate"]["text_to_cad"]
    chance = run.metrics["evaluate"]["baselines"]["chance"]["text_to_cad"]
    line = (
        f"A caption finds its part first in {words.percent(to_cad['R_at_1'])} of "
        f"{words.count(to_cad['n_queries'])} queries over {words.count(to_cad['n_items'])} unseen "
        f"parts; chance would be {words.percent(chance['R_at_1'])}."
    )
    lines = [line]
    if health:
        lines.append(f"{words.many(health, 'warning')} of health: see the vital signs below.")
    if evaluate:
        lines.append(f"{words.many(evaluate, 'warning')} of evaluate: see the next section.")
    kind = "warned" if health or evaluate else "passed"
    return {"kind": kind, "said": words.passed(run.metrics), "lines": lines}


def _steps(run: Run) -> list[dict[str, str]]:
    """Each stage: passed, stopped, or not run."""
    steps = []
    for stage in run.stages:
        if run.stop is not None and stage == run.stop.stage:
            steps.append({"name": stage, "kind": "bad", "said": " stopped"})
        elif stage in run.metrics:
            seconds = run.costs.get(stage, {}).get("seconds")
            said = f" {seconds:.0f} s" if seconds is not None else ""
            steps.append({"name": stage, "kind": "ok", "said": said})
        elif run.stop is None:  # the last, which makes this page
            steps.append({"name": stage, "kind": "ok", "said": ""})
        else:
            steps.append({"name": stage, "kind": "not", "said": " not run"})
    return steps


def _tiles(run: Run) -> list[dict[str, str]]:
    result = run.metrics.get("evaluate")
    if result is None:
        return []
    to_cad, chance = result["text_to_cad"], result["baselines"]["chance"]["text_to_cad"]
    ridge = result["baselines"].get("ridge", {}).get("text_to_cad", {})
    tiles = [
        {
            "name": f"R@{key.rpartition('_')[2]}, caption to part",
            "value": words.percent(to_cad[key]),
            "more": f"chance {words.percent(chance[key])}, ridge {words.percent(ridge.get(key))}",
        }
        for key in words.KS
    ]
    tiles.append(
        {
            "name": "median rank",
            "value": words.rank(to_cad["median_rank"]),
            "more": f"of {words.count(to_cad['n_items'])}; "
            f"chance {words.rank(chance['median_rank'])}",
        }
    )
    tiles.append(
        {
            "name": "a part finds itself",
            "value": words.percent(result["cad_to_cad"]["R_at_1"]),
            "more": "or different parts look alike",
        }
    )
    return tiles
