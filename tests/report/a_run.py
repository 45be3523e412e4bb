"""A run as its stages leave it, small, with real embeddings, ranks, findings and STEP files; some
of its names and captions mean harm.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from brepfind.files import sha256
from brepfind.findings import Finding
from brepfind.metrics.gate import STANDARD_LIMITS, judge
from brepfind.metrics.vitals import vitals
from brepfind.pipeline.paths import STAGES
from brepfind.report.run import Run
from brepfind.retrieval.embeddings import Embeddings
from brepfind.retrieval.evaluate import EvaluateConfig, evaluate

ZOO = Path(__file__).parents[1] / "fixtures" / "cad" / "zoo"
STEPS = ("ok_box", "full_cylinder", "spline_face", "cone_apex")
BROKEN = "html_404"

FAMILIES = ("<b onclick=alert(1)>nut</b>", "a & b", 'screw "M8"', "")
EVIL = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></svg></title><script>alert(2)</script>",
    "{{ 7 * 7 }} {% raw %} ${7*7}",
    "שלום \u202e backwards \u2066",
    "long" * 90,
    "two\nlines &amp; an entity",
    "Ø 8 × 40 µm 🔩",
]
PARTS, DIM = 24, 16


def make_run(folder: Path, **changes: Any) -> Run:
    """The run; its STEP files and pictures are below ``folder``."""
    embeddings = make_embeddings()
    config = EvaluateConfig(bootstrap=50, seed=0, min_self_retrieval=0.9)
    result = evaluate(embeddings, config)
    worse = evaluate(make_embeddings(noise=3.0), config)
    result["baselines"]["ridge"] = {"text_to_cad": worse["text_to_cad"]}
    return Run(
        **{
            "state": "0123456789abcdef" * 4,
            "written": "2026-01-02 03:04 UTC",
            "stages": STAGES,
            "metrics": metrics(result),
            "costs": {
                name: {"seconds": 10.25 * n + 1, "peak_memory_mb": 500.4 + n}
                for n, name in enumerate(STAGES[:-1])
            },
            "params": {
                "prepare": {"source": "<i>folder</i>"},
                "health": STANDARD_LIMITS.model_dump(),
                "train": {"lr": 1e-5, "patience": None},
            },
            "history": make_history(),
            "findings": {"health": [one.as_json() for one in make_findings(embeddings)]},
            "embeddings": embeddings,
            "graphs": make_graphs(folder / "steps", embeddings),
            "parts": embeddings.parts.assign(path="", split=""),
            "rejects": pd.DataFrame(
                [["<u>bad</u>.step", "unreadable", EVIL[0]], ["b.step", "timeout", "too slow"]],
                columns=["path", "reason", "message"],
            ),
            "steps": folder / "steps",
            "previous": None,
            "pictures": folder / "pictures",
            "workers": 2,
            "facts": {"git commit": "abc123 with changes since", "test split": "t1"},
            **changes,
        }
    )


def make_embeddings(noise: float = 0.9) -> Embeddings:
    """Captions that are near their part, but not always nearest."""
    random = np.random.default_rng(5)
    cad = random.normal(size=(PARTS, DIM)).astype(np.float32)
    of = np.repeat(np.arange(PARTS), 2)
    text = cad[of] + noise * random.normal(size=(len(of), DIM)).astype(np.float32)
    text[: len(EVIL)] *= -1  # what means harm is shown, among the worst queries
    ids = [f"part_{n:02}" for n in range(PARTS)]
    ids[3], ids[7], ids[11] = EVIL[0], EVIL[1], EVIL[5]
    captions = pd.DataFrame(
        {
            "model_id": [ids[n] for n in of],
            "caption": [EVIL[n] if n < len(EVIL) else f"caption {n}" for n in range(len(of))],
            "index": np.tile([0, 1], PARTS).astype(np.int32),
            "level": np.tile([0, 3], PARTS).astype(np.int8),
            "truncated": False,
        }
    )
    parts = pd.DataFrame(
        {
            "model_id": ids,
            "family": [FAMILIES[n % len(FAMILIES)] for n in range(PARTS)],
            "twin": np.arange(PARTS),
        }
    )
    return Embeddings(
        parts=parts,
        captions=captions,
        cad=cad,
        text=text.astype(np.float32),
        cad_before=np.zeros((PARTS, 0), np.float32),
        text_before=np.zeros((len(of), 0), np.float32),
        model="m" * 64,
    )


def make_graphs(steps: Path, embeddings: Embeddings) -> pd.DataFrame:
    """A manifest whose parts are real files; the first is no STEP file at all."""
    steps.mkdir(parents=True, exist_ok=True)
    for name in (*STEPS, BROKEN):
        shutil.copy(ZOO / f"{name}.step", steps)
    names = [STEPS[n % len(STEPS)] for n in range(PARTS)]
    names[0] = BROKEN
    table = pd.DataFrame(
        {
            "model_id": embeddings.parts["model_id"],
            "path": [f"{name}.step" for name in names],
            "sha256": [sha256(ZOO / f"{name}.step") for name in names],
            "faces": np.arange(PARTS) % 7 + 3,
            "edges": np.arange(PARTS) * 5 + 12,
        }
    )
    for axis in "xyz":
        table[f"box_min_{axis}"] = 0.0
        table[f"box_max_{axis}"] = np.geomspace(1, 900, PARTS)
    return table


def make_history() -> pd.DataFrame:
    """Of five validations; no step was taken before the first, and one loss is missing."""
    epoch = np.arange(0, 10, 2)
    falling, rising = np.geomspace(3, 0.5, 5), np.linspace(0.2, 0.9, 5)
    history = pd.DataFrame({"epoch": epoch, "step": 7 * epoch})
    for name in ("recall", "text_to_cad_R_at_1", "cad_to_text_R_at_1", "cad_std", "text_std",
                 "cad_distinct", "text_distinct"):  # fmt: skip
        history[name] = rising
    for name in ("held_out_loss", "cad_mean_cosine", "text_mean_cosine", "alignment",
                 "modality_gap", "text_to_cad_median_rank", "cad_to_text_median_rank"):  # fmt: skip
        history[name] = falling / 3
    for name in ("cad_uniformity", "text_uniformity"):
        history[name] = -falling
    for name in ("cad_effective_rank", "text_effective_rank", "logit_scale"):
        history[name] = 10 * rising
    for name in ("skipped", "overflows"):
        history[name] = 0
    for name in ("loss", "lr", "gradient_norm"):
        history[name] = [np.nan, *falling[1:]]
    history["chance_loss"] = [np.nan, 3.4, 3.4, np.nan, 3.4]
    return history.assign(loss_scale=1.0)


def make_findings(embeddings: Embeddings) -> list[Finding]:
    """The gate's own, on so few rows that one is worth a warning, and a failed one."""
    limits = STANDARD_LIMITS.model_copy(update={"min_rows": 8})
    found = list(judge("CAD", vitals(embeddings.cad), limits).findings)
    warned = Finding(name="health.units", value=1, limit="<= 0", verdict="warning", advice=EVIL[0])
    return [*found, warned]


def metrics(result: dict[str, Any]) -> dict[str, Any]:
    """What the stages measured."""
    signs = vitals(make_embeddings().cad).numbers()
    return {
        "prepare": {"captions": 48, "parts": 26},
        "extract": {
            "graphs": 24,
            "files": 26,
            "faces_mean": 5.5,
            "faces_max": 9,
            "rejected_by_reason": {"unreadable": 1, "timeout": 1},
        },
        "split": {
            "parts": {"test": 24, "train": 1200, "validation": 5},
            "parts_with_twins": 1,
            "leaking_parts": 0,
            "captions_orphaned_by_rejects": 2,
        },
        "sanitize": {"coverage": 1.0},
        "train": {
            "steps": 56,
            "epochs": 8,
            "skipped_steps": 1,
            "overflows": 0,
            "best": {"epoch": 8.0, "recall": 0.9},
        },
        "health": {"warnings": 0, "cad": signs, "text": signs},
        "evaluate": {**result, "model": "m" * 64, "warnings": 0, "face_order": None},
    }
