"""extract: STEP files to the graph store, each file apart from the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from brepfind import findings
from brepfind.cad.extract import ExtractConfig
from brepfind.corpus.manifest import read_corpus
from brepfind.errors import ParamsError
from brepfind.files import write_text
from brepfind.graphs.extraction import extract_store
from brepfind.graphs.store import GraphStore
from brepfind.log import get_logger
from brepfind.pipeline import paths
from brepfind.pipeline.context import StageContext

log = get_logger(__name__)

# Columns of the manifest that count what a graph leaves out of its file, by a stated policy.
_LEFT_OUT = ("free_faces", "loose_edges", "free_edges", "seams", "degenerate")

_SHOWN = 3  # rejected files that the summary names for each reason


def extract(context: StageContext) -> Mapping[str, Any]:
    """Write ``data/graphs``; halts when more files are rejected than the rate allows."""
    config = context.section("extract", ExtractConfig)
    if config.multi_solid == "split":
        raise ParamsError(
            "extract.multi_solid is 'split', but a caption speaks of a whole file; use 'merge' or "
            "'reject' here (brepfind extract splits, without captions)"
        )
    corpus = read_corpus(context.path(paths.CORPUS))
    folder = context.path(paths.GRAPHS)
    files = [
        (str(part.model_id), str(part.path), corpus.step_path(str(part.path)))
        for part in corpus.parts.itertuples()
    ]
    extract_store(files, folder, config, context.runtime.workers_here())
    store = GraphStore(folder)
    rejects = store.rejects
    rate = len(rejects) / len(corpus.parts)
    _say(rejects)
    write_text(context.evidence / "rejects.csv", rejects.to_csv(index=False))
    reasons = Counter(rejects["reason"])
    worst = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(3))
    check = findings.at_most(
        "extract.reject_rate",
        rate,
        config.max_reject_rate,
        advice=f"{len(rejects)} of {len(corpus.parts)} STEP files were rejected ({worst}); "
        "rejects.csv in the evidence names each; mend or remove them, or raise "
        "extract.max_reject_rate",
    )
    findings.require("extract", [check])
    manifest = store.manifest
    return {
        "files": len(corpus.parts),
        "graphs": len(manifest),
        "rejected": len(rejects),
        "reject_rate": rate,
        "rejected_by_reason": dict(sorted(reasons.items())),
        "faces_mean": float(manifest["faces"].mean()),
        "faces_max": int(manifest["faces"].max()),
        "edges_mean": float(manifest["edges"].mean()),
        "left_out": {name: int(manifest[name].sum()) for name in _LEFT_OUT},
    }


def _say(rejects: Any) -> None:
    for reason, rows in rejects.groupby("reason"):
        names = ", ".join(repr(path) for path in rows["path"][:_SHOWN])
        more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        log.warning("%d rejected, %s: %s%s", len(rows), reason, names, more)
