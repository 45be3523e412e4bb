"""reports/index.html: the page of the run that the files in the checkout are of.

It is never left to be that of another run: a stage that begins replaces it by a notice, a stage
that stops by its reason and what is known so far, and publish by the whole of it.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import brepfind
from brepfind.errors import BrepfindError, Interrupted
from brepfind.files import digest, locked, read_json, sha256, write_json
from brepfind.log import get_logger
from brepfind.params import read_params
from brepfind.pipeline import paths
from brepfind.pipeline.context import StageContext
from brepfind.pipeline.failure import Failure
from brepfind.pipeline.fingerprint import git_tags
from brepfind.processes import cores
from brepfind.report.notice import write_notice

T = TypeVar("T")

log = get_logger(__name__)

# What earlier runs reached, in .brepfind: a page says what the one before it did.
_PUBLISHED = "published.json"
_MOST_PUBLISHED = 100
_PACKAGES = (
    "torch",
    "dgl",
    "cadquery-ocp-novtk",
    "transformers",
    "numpy",
    "pandas",
    "dvc",
    "mlflow",
    "pyvista",
    "build123d",
)


def began(project: Path, stage: str) -> None:
    """Take an older run's page away: from now on the files are of another run."""
    path = project / paths.PAGE
    if path.is_file():
        write_notice(
            path,
            "No run to show",
            f"{stage} began on {_now()}, after the run whose page this was.",
            "When the run ends, well or not, its page stands here: look again then. If nothing is "
            "running any more, run dvc repro, which goes on from where it was.",
        )


def passed(context: StageContext) -> Path:
    """Write the page of a run in which every gate passed, and return its path."""
    from brepfind.report.page import write_page

    run = _run(context.project, context.params, context.fingerprint, paths.STAGES[:-1])
    path = context.project / paths.PAGE
    previous = _remember(context, run.metrics, run.facts.get("test split", ""))
    write_page(
        path,
        replace(
            run,
            previous=previous,
            pictures=context.home / "pictures",
            workers=context.runtime.workers_here(),
        ),
    )
    return path


def stopped(project: Path, fingerprint: str, failure: Failure, evidence: Path) -> Path:
    """Write the page of a run that stopped, and return its path.

    It must not hide the reason, whatever is wrong with the files: where the page cannot be made,
    a notice with the reason stands in its place.
    """
    path = project / paths.PAGE
    try:
        _write_stopped(path, project, fingerprint, failure, evidence)
    except Exception as error:
        log.warning("the run's page could not be made: %s", error)
        reasons = [failure.reason, f"The page itself could not be made: {error}"]
        write_notice(path, f"Stopped at {failure.stage}", *reasons, f"Evidence: {evidence}")
    return path


def _write_stopped(
    path: Path, project: Path, fingerprint: str, failure: Failure, evidence: Path
) -> None:
    from brepfind.report.page import write_page
    from brepfind.report.run import Stop

    params = _there(lambda: read_params(project / paths.PARAMS)) or {}
    before = paths.STAGES[: paths.STAGES.index(failure.stage)]
    run = _run(project, params, fingerprint, before)
    if failure.stage == "train":
        run = replace(run, history=_there(lambda: _told_history(evidence / "events.jsonl")))
    if failure.stage == "health":
        run = replace(run, findings=_findings(evidence, ["health"]))
    stop = Stop(
        stage=failure.stage,
        reason=failure.reason,
        from_outside=failure.exit_code == Interrupted.exit_code,
        findings=failure.findings,
        evidence=os.path.relpath(evidence, project),
    )
    write_page(path, replace(run, stop=stop))


def _run(project: Path, params: Mapping[str, Any], fingerprint: str, done: Sequence[str]) -> Any:
    """What the stages that are done have left; later ones' files are of another run."""
    import pandas as pd

    from brepfind.corpus.manifest import read_corpus
    from brepfind.report.run import Run
    from brepfind.retrieval.embeddings import read_embeddings

    def of(stage: str, read: Callable[[], T]) -> T | None:
        return _there(read) if stage in done else None

    metrics = _numbers(project, done, paths.metrics_file)
    costs = _numbers(project, done, paths.cost_file)
    corpus = of("prepare", lambda: read_corpus(project / paths.CORPUS))
    embeddings = of("evaluate", lambda: read_embeddings(project / paths.EMBEDDINGS))
    facts = _facts(project, params, fingerprint, done)
    if embeddings is not None:
        facts["test split"] = digest(embeddings.captions[["model_id", "caption"]].to_dict("list"))
    return Run(
        state=fingerprint,
        written=_now(),
        stages=paths.STAGES,
        metrics=metrics,
        costs=costs,
        params=params,
        history=of("train", lambda: pd.read_csv(project / paths.MODEL / "history.csv")),
        findings=_findings(
            project / paths.REPORTS, [gate for gate in ("health", "evaluate") if gate in done]
        ),
        embeddings=embeddings,
        graphs=of("extract", lambda: pd.read_parquet(project / paths.GRAPHS / "manifest.parquet")),
        parts=None if corpus is None else corpus.parts,
        rejects=of(
            "extract", lambda: pd.read_csv(project / paths.GRAPHS / "rejects.csv", dtype=str)
        ),
        steps=None if corpus is None else corpus.root,
        facts=facts,
    )


def _numbers(
    project: Path, done: Sequence[str], where: Callable[[str], Path]
) -> dict[str, Mapping[str, Any]]:
    found = {stage: _there(partial(read_json, project / where(stage))) for stage in done}
    return {stage: numbers for stage, numbers in found.items() if numbers is not None}


def _findings(folder: Path, gates: Sequence[str]) -> dict[str, list[Mapping[str, Any]]]:
    """The checks of gates, by stage, of those whose report is in the folder."""
    reports = _numbers(folder, gates, lambda stage: Path(f"{stage}.json"))
    return {stage: report["findings"] for stage, report in reports.items()}


def _there(read: Callable[[], T]) -> T | None:
    """What is read, or None where it is missing or damaged; the page says that it is."""
    try:
        return read()
    except (BrepfindError, OSError, ValueError) as error:
        log.debug("not on the run's page: %s", error)
        return None


def _told_history(events: Path) -> Any:
    """The history as training told it before it stopped."""
    import pandas as pd

    from brepfind.events import read_events

    rows = [event["facts"] for event, _ in read_events(events) if event.get("happened") == "epoch"]
    return pd.DataFrame(rows).apply(pd.to_numeric, errors="coerce")


def _facts(
    project: Path, params: Mapping[str, Any], fingerprint: str, done: Sequence[str]
) -> dict[str, str]:
    tags = git_tags(project)
    dirty = " with changes since" if tags.get("brepfind.git_dirty") == "true" else ""
    facts = {
        "state (parameters and data)": fingerprint or "not known",
        "git commit": tags.get("mlflow.source.git.commit", "none") + dirty,
    }
    checkpoint = (params.get("sanitize") or {}).get("checkpoint")
    files = {
        "prepare": {
            "captions": paths.CORPUS / "captions.parquet",
            "parts": paths.CORPUS / "parts.parquet",
        },
        "extract": {"graph store": paths.GRAPHS / "manifest.parquet"},
        "split": {"split": paths.SPLIT},
        "sanitize": {f"pretrained checkpoint {checkpoint}": Path(str(checkpoint))}
        if checkpoint
        else {},
        "train": {"trained model": paths.MODEL / "best.safetensors"},
    }
    for stage in done:
        for name, file in files.get(stage, {}).items():
            with suppress(OSError):
                facts[name] = f"sha256 {sha256(project / file)}"
    facts["brepfind"] = brepfind.__version__
    facts["Python"] = platform.python_version()
    packages = []
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            packages.append(f"{package} {version(package)}")
    facts["packages (all in requirements.lock)"] = ", ".join(packages)
    facts["machine"] = f"{platform.system()} {platform.machine()}, {cores()} cores"
    return facts


def _remember(context: StageContext, metrics: Mapping[str, Any], test: str) -> Any:
    """Add this run to the published ones; returns the last of another state or model, or None."""
    result = metrics["evaluate"]
    directions = ("text_to_cad", "cad_to_text", "cad_to_cad")
    keys = ("R_at_1", "R_at_5", "R_at_10", "median_rank", "n_queries", "n_items", "interval_95")
    own = {
        "state": context.fingerprint,
        "model": result["model"],
        "when": _now(),
        "test": test,
        "retrieval": {
            name: {key: result[name][key] for key in keys if key in result[name]}
            for name in directions
        },
    }
    file = context.home / _PUBLISHED
    with locked(context.home / "locks" / "published.lock"):
        others = [
            one
            for one in _there(lambda: read_json(file)) or []
            if (one["state"], one["model"]) != (own["state"], own["model"])
        ]
        write_json(file, [*others, own][-_MOST_PUBLISHED:])
    return others[-1] if others else None


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
