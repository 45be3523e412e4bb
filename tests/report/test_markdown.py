"""The report says what the numbers say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib.image
import pandas as pd
import pytest

from brepfind.report.markdown import write_report


def table(r1: float, **more: Any) -> dict[str, Any]:
    return {
        "n_queries": 160.0,
        "n_items": 40.0,
        "R_at_1": r1,
        "R_at_5": 0.5,
        "R_at_10": 0.75,
        "median_rank": 3.0,
        **more,
    }


@pytest.fixture
def metrics() -> dict[str, Any]:
    return {
        "prepare": {"parts": 160, "captions": 640},
        "extract": {
            "graphs": 158,
            "files": 160,
            "faces_mean": 20.25,
            "faces_max": 90,
            "rejected_by_reason": {"timeout": 2},
        },
        "split": {
            "parts": {"train": 90, "validation": 28, "test": 40},
            "parts_with_twins": 6,
            "leaking_parts": 0,
            "captions_orphaned_by_rejects": 8,
        },
        "train": {"chance_loss": math.log(32)},
        "health": {"warnings": 0, "cad": {"mean_cosine": 0.1}, "text": {"mean_cosine": 0.25}},
        "evaluate": {
            "text_to_cad": table(
                0.2, interval_95={"R_at_1": [0.1, 0.3]}, by_level={"0": table(0.125)}
            ),
            "cad_to_text": table(0.3),
            "cad_to_cad": table(1.0),
            "baselines": {"chance": {"text_to_cad": table(0.025)}},
        },
    }


def written(folder: Path, metrics: dict[str, Any]) -> str:
    history = pd.DataFrame(
        {
            "epoch": [0, 2, 4],
            "loss": [math.nan, 3.0, 2.0],  # no loss before the first step
            "recall": [0.1, 0.2, 0.3],
            "logit_scale": [14.3, 14.5, 15.0],
        }
    )
    path = folder / "report.md"
    write_report(
        path,
        figures=folder / "figures",
        metrics=metrics,
        costs={"train": {"seconds": 61.25, "peak_memory_mb": 900.4}},
        history=history,
        params={"train": {"lr": 1e-5}},
        fingerprint="0123456789abcdef",
    )
    return path.read_text(encoding="utf-8")


def test_verdict_tables_and_parameters(tmp_path: Path, metrics: dict[str, Any]) -> None:
    text = written(tmp_path, metrics)
    assert "Every gate passed. A caption finds its part first in 20.0 % of 160 queries" in text
    assert "over 40 parts; chance would be 2.5 %" in text
    assert "| text to cad | 160 | 40 | 20.0 % (10.0 to 30.0) | 50.0 % | 75.0 % | 3.0 |" in text
    assert "| chance, text to cad | 160 | 40 | 2.5 %" in text
    assert "| 0 | 160 | 12.5 % |" in text
    assert "| mean_cosine | 0.1 | 0.25 |" in text
    assert "158 graphs from 160 STEP files" in text
    assert "6 parts have a twin, none across a border" in text
    assert "2 files rejected: timeout" in text
    assert "| train | 61.2 | 900 |" in text
    assert "State `0123456789ab`" in text
    assert "lr: 1.0e-05" in text


def test_warnings_and_leaks_are_said(tmp_path: Path, metrics: dict[str, Any]) -> None:
    metrics["health"]["warnings"] = 3
    metrics["split"]["leaking_parts"] = 4
    text = written(tmp_path, metrics)
    assert "Every gate passed; 3 warnings." in text
    assert "**4 parts leak**" in text
    assert "none across a border" not in text


def test_every_curve_is_a_picture_the_report_shows(tmp_path: Path, metrics: dict[str, Any]) -> None:
    text = written(tmp_path, metrics)
    pictures = sorted((tmp_path / "figures").iterdir())
    assert [file.name for file in pictures] == ["logit_scale.png", "loss.png", "recall.png"]
    for file in pictures:
        assert f"](figures/{file.name})" in text
        assert matplotlib.image.imread(file).std() > 0


def test_the_same_run_gives_the_same_bytes(tmp_path: Path, metrics: dict[str, Any]) -> None:
    for name in ("one", "two"):
        written(tmp_path / name, metrics)
    for file in ("report.md", "figures/loss.png"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
