"""health: is the trained checkpoint sound, and do its embeddings still tell parts apart?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from brepfind import findings
from brepfind.checkpoints.read import read_checkpoint
from brepfind.checkpoints.scan import TensorVitals, scan
from brepfind.checkpoints.verdicts import findings as checkpoint_findings
from brepfind.corpus.manifest import read_corpus
from brepfind.errors import CheckFailed
from brepfind.files import write_json, write_text
from brepfind.findings import Finding
from brepfind.graphs.dataset import PartReader
from brepfind.log import console, get_logger
from brepfind.metrics.gate import HealthConfig
from brepfind.models.dual import DualEncoder
from brepfind.pipeline import paths
from brepfind.pipeline.context import StageContext
from brepfind.retrieval.embed import embed
from brepfind.retrieval.health import TowerVitals, check_embeddings, probe_ids, tower_vitals
from brepfind.retrieval.model import load_trained
from brepfind.training.build import build_dual
from brepfind.training.config import TrainConfig

log = get_logger(__name__)

CHECKED = ("best.safetensors", "last.safetensors", "optimizer.pt")


def health(context: StageContext) -> Mapping[str, Any]:
    """Write ``reports/health.json``; halts on anything not finite and on any collapse.

    Weights, buffers and optimizer state come first; embeddings of validation parts (topped up
    from train, never from test) only if those are sound, since one NaN weight makes all of them
    NaN and hides where it came from.
    """
    limits = context.section("health", HealthConfig)
    folder = context.path(paths.MODEL)
    weights = _weights(context, [folder / name for name in CHECKED])
    _stop_on("the checkpoint", weights)

    split = pd.read_parquet(context.path(paths.SPLIT))
    twins = dict(zip(split["model_id"], split["twin"], strict=True))
    ids = probe_ids(split, limits.min_rows)
    corpus = read_corpus(context.path(paths.CORPUS))
    reader = PartReader(context.path(paths.GRAPHS), context.home / "pairs")

    def embedded(model: DualEncoder, digest: str) -> Any:
        return embed(model, reader, corpus, ids, twins=twins, digest=digest)

    trained = load_trained(folder / "best.safetensors")
    report = check_embeddings(
        embedded(trained.model, trained.digest),
        limits,
        step0=_step0(context, trained.model, embedded),
    )
    console.print(report.text, markup=False, highlight=False, soft_wrap=True)
    for at in (context.evidence / "health.json", context.path(paths.REPORTS) / "health.json"):
        write_json(at, report.as_json())
    write_text(context.evidence / "health.txt", report.text + "\n")
    context.tracker.artifact(context.path(paths.REPORTS) / "health.json", "health")
    _stop_on("the embeddings", report.findings)
    return {
        "self_retrieval": report.self_retrieval,
        "embedded_parts": len(ids),
        "warnings": sum(finding.verdict == "warning" for finding in report.findings),
        # Constant and zero tensors are many in a young model and no reason to worry by themselves.
        "tensors_worth_a_look": sum(finding.verdict == "warning" for finding in weights),
        **_numbers(report.vitals),
    }


def _weights(context: StageContext, files: Sequence[Path]) -> list[Finding]:
    """Every tensor of every file: NaN and Inf with their share, complex, constant, out of range."""
    found: list[Finding] = []
    rows: list[dict[str, Any]] = []
    for file in files:
        entries = read_checkpoint(file).entries
        vitals = scan(entries)
        symptoms = checkpoint_findings(vitals, allow_complex=False)
        found.append(
            findings.at_least(
                f"health.{file.name}.tensors",
                len(vitals),
                1,
                advice="a file without tensors is no checkpoint; train again",
            )
        )
        found += symptoms
        rows += [_row(file.name, one) for one in vitals]
    write_json(context.evidence / "tensors.json", rows)
    return found


def _row(file: str, one: TensorVitals) -> dict[str, Any]:
    return {
        "file": file,
        "name": one.name,
        "shape": list(one.shape),
        "nan_share": one.nan_share,
        "inf_share": one.inf_share,
    }


def _stop_on(what: str, checks: Sequence[Finding]) -> None:
    bad = findings.failed(checks)
    if not bad:
        return
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    value = f"{bad[0].value:.6g}" if isinstance(bad[0].value, float) else bad[0].value
    raise CheckFailed(
        f"health: {what}: {bad[0].name} is {value}, asked is {bad[0].limit}{more}. {bad[0].advice}",
        checks,
    )


def _step0(context: StageContext, trained: DualEncoder, embedded: Any) -> TowerVitals:
    """The vital signs of the same model before its first step."""
    weights = context.path(paths.WEIGHTS)
    config = context.section("train", TrainConfig)
    fresh = build_dual(config, weights if weights.is_file() else None)
    with torch.no_grad():
        fresh.size_mean.copy_(trained.size_mean)
        fresh.size_std.copy_(trained.size_std)
    return tower_vitals(embedded(fresh, ""))


def _numbers(vitals: TowerVitals) -> dict[str, Any]:
    """The signs of both towers after projection, as numbers."""
    return {
        name: {key: value for key, value in signs.as_json().items() if _is_number(value)}
        for name, signs in (("cad", vitals.cad), ("text", vitals.text))
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
