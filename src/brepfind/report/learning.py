"""The page's sections on training: its curves, and the vital signs of what it made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from brepfind.report import charts, words
from brepfind.report.run import Run
from brepfind.report.section import Content, Missing, findings_rows, history_of, worth_a_look

# Title, columns of the history, the limit of the health section, and which side of it is asked.
_SIGNS: tuple[tuple[str, dict[str, str], str, str], ...] = (
    ("Column standard deviation", {"cad_std": "CAD", "text_std": "text"}, "min_column_std", "≥"),
    (
        "Mean cosine of two embeddings",
        {"cad_mean_cosine": "CAD", "text_mean_cosine": "text"},
        "max_mean_cosine",
        "≤",
    ),
    (
        "Effective rank",
        {"cad_effective_rank": "CAD", "text_effective_rank": "text"},
        "min_effective_rank",
        "≥",
    ),
    (
        "Share of distinct embeddings",
        {"cad_distinct": "CAD", "text_distinct": "text"},
        "min_distinct",
        "≥",
    ),
    ("Uniformity", {"cad_uniformity": "CAD", "text_uniformity": "text"}, "", ""),
    (
        "Between the towers",
        {"alignment": "distance in a pair", "modality_gap": "gap of the means"},
        "",
        "",
    ),
)

_SHOWN_SIGNS = {
    "n": "embeddings",
    "column_std": "column standard deviation (1 is spread evenly)",
    "mean_cosine": "mean cosine of two embeddings",
    "rank": "effective rank",
    "rank_share": "effective rank, share of what is attainable",
    "participation": "directions that hold the variance",
    "distinct": "share of distinct embeddings",
    "near_copies": "share that copy another",
    "dead_columns": "share of columns that never move",
}


def training(run: Run) -> Content:
    """Curves of training."""
    history = history_of(run)
    trained = history[history["epoch"] > 0]
    if not len(trained):
        raise Missing("training stopped before its first validation.")
    drawn = []

    def chart(
        title: str, columns: Mapping[str, str], every: pd.DataFrame = trained, **more: Any
    ) -> None:
        there = {column: name for column, name in columns.items() if column in every}
        if there:
            series = [
                charts.Series(
                    name=name,
                    x=every["epoch"],
                    y=every[column] * more.get("times", 1),
                    tone=tone,
                    dashed=tone > 1,
                )
                for tone, (column, name) in enumerate(there.items(), 1)
            ]
            more.pop("times", None)
            drawn.append(charts.lines(title, series, x_label="epoch", **more))

    chart(
        "Contrastive loss",
        {"loss": "training", "held_out_loss": "validation", "chance_loss": "guessing"},
        from_zero=True,
    )
    chart("Validation mean recall, %", {"recall": "recall"}, history, times=100, from_zero=True)
    chart(
        "Validation R@1, %",
        {"text_to_cad_R_at_1": "caption to part", "cad_to_text_R_at_1": "part to caption"},
        history,
        times=100,
        from_zero=True,
    )
    chart("Learning rate", {"lr": "heads and encoder"}, from_zero=True)
    chart("Gradient norm before clipping", {"gradient_norm": "norm"}, from_zero=True)
    chart("Gradient scale (1 without fp16)", {"loss_scale": "scale"}, from_zero=True)
    chart(
        "Skipped steps, so far",
        {"skipped": "not finite", "overflows": "fp16 overflow"},
        from_zero=True,
    )
    chart("Logit scale (at most 100)", {"logit_scale": "scale"}, history)
    chart(
        "Validation median rank",
        {
            "text_to_cad_median_rank": "caption to part",
            "cad_to_text_median_rank": "part to caption",
        },
        history,
        from_zero=True,
    )
    return {"said": _training_words(run, history), "charts": drawn}


def vitals(run: Run) -> Content:
    """Vital signs over epochs with their limits, and the gate's checks."""
    findings = findings_rows(run.findings.get("health", []))
    history, limits = run.history, run.params.get("health") or {}
    drawn = []
    for title, columns, limit, asked in _SIGNS:
        if history is None or any(column not in history for column in columns):
            continue
        series = [
            charts.Series(
                name=name, x=history["epoch"], y=history[column], tone=tone, dashed=tone > 1
            )
            for tone, (column, name) in enumerate(columns.items(), 1)
        ]
        drawn.append(
            charts.lines(title, series, x_label="epoch", limit=_limit(limits, limit, asked))
        )
    health = run.metrics.get("health")
    if not drawn and not findings and not health:
        raise Missing("training left no history, and the health gate has not run.")
    return {
        "said": "A tower that has collapsed gives every part nearly the same embedding; its spread "
        "and its rank fall, and its mean cosine rises. Epoch 0 is before the first step.",
        "charts": drawn,
        "signs": _signs(health),
        "findings": findings,
        "worth": worth_a_look(findings),
    }


def _limit(limits: Mapping[str, Any], name: str, asked: str) -> tuple[float, str] | None:
    value = limits.get(name)
    return (float(value), f"{asked} {value:g}") if isinstance(value, int | float) else None


def _training_words(run: Run, history: pd.DataFrame) -> str:
    numbers = run.metrics.get("train")
    if numbers is None:
        last = history.iloc[-1]
        return (
            f"Training did not end well; these are its {words.many(len(history), 'validation')} "
            f"up to epoch {last['epoch']:.0f}, step {last['step']:.0f}."
        )
    return (
        f"{words.count(numbers['steps'])} steps in {words.many(numbers['epochs'], 'epoch')}, "
        f"{words.many(numbers['skipped_steps'], 'step')} skipped as not finite, "
        f"{words.many(numbers['overflows'], 'overflow')}. The best weights are those of epoch "
        f"{numbers['best']['epoch']:.0f}, with a validation mean recall of "
        f"{words.percent(numbers['best']['recall'])}."
    )


def _signs(health: Mapping[str, Any] | None) -> list[list[str]]:
    if not health:
        return []
    return [
        [name, *(words.number(health[tower][key]) for tower in ("cad", "text"))]
        for key, name in _SHOWN_SIGNS.items()
        if key in health["cad"] and key in health["text"]
    ]
