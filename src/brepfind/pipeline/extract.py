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
from brepfind.graphs.extraction import Tally, extract_store
from brepfind.graphs.extraction_cache import ExtractionCache
from brepfind.graphs.store import GraphStore
from brepfind.log import get_logger, printable
from brepfind.pipeline import paths
from brepfind.pipeline.context import StageContext

log = get_logger(__name__)

# Columns of the manifest that count what a graph leaves out of its file, by a stated policy.
_LEFT_OUT = ("free_faces", "loose_edges", "free_edges", "seams", "degenerate")

_SHOWN = 3  # rejected files that the summary names for each reason
_LENGTH = 70  # characters of a name that it shows


def extract(context: StageContext) -> Mapping[str, Any]:
    """Write ``data/graphs``; halts when more files are rejected than the rate allows, and when
    nothing is left.
    """
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
    cache = ExtractionCache(context.home / "extracted", config)
    tally = extract_store(files, folder, config, context.runtime.workers_here(), cache)
    log.info("%d files extracted, %d known from before", tally.extracted, tally.cached)
    context.cost.update(
        extracted=tally.extracted,
        cached=tally.cached,
        damaged_in_cache=tally.damaged,
        worker_seconds=round(tally.seconds, 3),
    )
    store = GraphStore(folder)
    rejects = store.rejects
    _say(rejects)
    write_text(context.evidence / "rejects.csv", rejects.to_csv(index=False))
    reasons = Counter(rejects["reason"])
    findings.require("extract", _judge(tally, reasons, config.max_reject_rate))
    manifest = store.manifest
    return {
        "files": tally.files,
        "graphs": tally.graphs,
        "rejected": tally.rejected,
        "reject_rate": tally.rejected / tally.files,
        "rejected_by_reason": dict(sorted(reasons.items())),
        "faces_mean": float(manifest["faces"].mean()),
        "faces_max": int(manifest["faces"].max()),
        "edges_mean": float(manifest["edges"].mean()),
        "left_out": {name: int(manifest[name].sum()) for name in _LEFT_OUT},
    }


def _judge(
    tally: Tally, reasons: Mapping[str, int], max_reject_rate: float
) -> list[findings.Finding]:
    worst = ", ".join(f"{count} {reason}" for reason, count in Counter(reasons).most_common(3))
    said = (
        f"{tally.rejected} of {tally.files} STEP files were rejected ({worst}); rejects.csv in the "
        "evidence names each; "
        if tally.rejected
        else ""
    )
    return [
        findings.at_least(
            "extract.graphs",
            tally.graphs,
            1,
            advice=f"{said}mend them"
            if tally.files
            else "the corpus holds no STEP file; see prepare.source",
        ),
        findings.at_most(
            "extract.reject_rate",
            tally.rejected / tally.files if tally.files else 0.0,
            max_reject_rate,
            advice=f"{said}mend or remove them, or raise extract.max_reject_rate",
        ),
    ]


def _say(rejects: Any) -> None:
    for reason, rows in rejects.groupby("reason"):
        names = ", ".join(repr(printable(path, _LENGTH)) for path in rows["path"][:_SHOWN])
        more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        log.warning("%d rejected, %s: %s%s", len(rows), reason, names, more)
