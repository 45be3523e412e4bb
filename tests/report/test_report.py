"""The report of a run: its numbers, its curves, and what it says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from brepfind.report.figures import draw_curves
from brepfind.report.markdown import write_report

FIGURES = ["loss.png", "recall.png", "logit_scale.png"]
PARAMS = {"train": {"lr": 1e-5, "patience": None}, "health": {"min_rows": 64}}


@pytest.fixture
def history() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "epoch": [0, 1, 2],
            "chance_loss": [float("nan"), 3.47, 3.47],
            "loss": [float("nan"), 3.2, 2.1],  # nothing is trained before the first step
            "recall": [0.1, 0.2, 0.5],
            "logit_scale": [14.3, 14.6, 15.0],
        }
    )


def _row(recall: float, queries: int = 40, **more: Any) -> dict[str, Any]:
    return {
        "n_queries": queries,
        "n_items": 10,
        "R_at_1": recall,
        "R_at_5": min(1.0, recall + 0.1),
        "R_at_10": 1.0,
        "median_rank": 2.5,
        **more,
    }


@pytest.fixture
def metrics() -> dict[str, Any]:
    to_cad = _row(0.625, interval_95={"R_at_1": [0.5, 0.75]}, by_level={"0": _row(0.25, 10)})
    return {
        "prepare": {"captions": 160, "parts": 40},
        "extract": {
            "graphs": 39,
            "files": 40,
            "faces_mean": 12.25,
            "faces_max": 80,
            "rejected_by_reason": {"unreadable": 1},
        },
        "split": {
            "parts": {"train": 23, "validation": 6, "test": 10},
            "parts_with_twins": 4,
            "leaking_parts": 0,
            "captions_orphaned_by_rejects": 4,
        },
        "health": {
            "warnings": 0,
            "cad": {"mean_cosine": 0.25, "only_here": 1.0},
            "text": {"mean_cosine": 0.5},
        },
        "evaluate": {
            "warnings": 0,
            "text_to_cad": to_cad,
            "cad_to_text": _row(0.5),
            "cad_to_cad": _row(1.0),
            "baselines": {
                "chance": {"text_to_cad": _row(0.1)},
                "ridge": {"text_to_cad": _row(0.2)},
            },
            "face_order": {
                "parts": 10,
                "orders": 4,
                "median": 0.99,
                "worst": 0.9,
                "neighbour": 0.8,
                "finds_itself": 0.975,
            },
        },
    }


def _report(folder: Path, metrics: dict[str, Any], history: pd.DataFrame) -> str:
    path = folder / "reports/report.md"
    write_report(
        path,
        figures=folder / "reports/figures",
        metrics=metrics,
        costs={"train": {"seconds": 61.26, "peak_memory_mb": 1204.4}},
        history=history,
        params=PARAMS,
        fingerprint="0123456789abcdef",
    )
    return path.read_text(encoding="utf-8")


def test_the_verdict_stands_first_beside_chance(
    tmp_path: Path, metrics: dict[str, Any], history: pd.DataFrame
) -> None:
    text = _report(tmp_path, metrics, history)
    assert text.splitlines()[2] == (
        "Every gate passed. A caption finds its part first in 62.5 % of 40 queries over 10 parts; "
        "chance would be 10.0 %."
    )
    metrics["health"]["warnings"], metrics["evaluate"]["warnings"] = 2, 1
    assert "Every gate passed, with 3 warnings." in _report(tmp_path, metrics, history)


def test_tables_hold_directions_baselines_levels_signs_and_costs(
    tmp_path: Path, metrics: dict[str, Any], history: pd.DataFrame
) -> None:
    lines = _report(tmp_path, metrics, history).splitlines()
    assert "| text to cad | 40 | 10 | 62.5 % (50.0 to 75.0) | 72.5 % | 100.0 % | 2.5 |" in lines
    assert "| cad to cad | 40 | 10 | 100.0 % | 100.0 % | 100.0 % | 2.5 |" in lines
    assert "| ridge, text to cad | 40 | 10 | 20.0 % | 30.0 % | 100.0 % | 2.5 |" in lines
    assert "| 0 | 10 | 25.0 % | 35.0 % | 100.0 % |" in lines
    assert "| mean_cosine | 0.25 | 0.5 |" in lines
    assert "| train | 61.3 | 1204 |" in lines
    assert "- 1 files rejected: unreadable" in lines
    assert "10 test parts are nearest to themselves in 97.5 % of tries" in "\n".join(lines)


def test_leaks_are_not_hidden(
    tmp_path: Path, metrics: dict[str, Any], history: pd.DataFrame
) -> None:
    assert "4 parts have a twin, none across a border" in _report(tmp_path, metrics, history)
    metrics["split"]["leaking_parts"] = 2
    text = _report(tmp_path, metrics, history)
    assert "**2 parts leak**" in text and "none across a border" not in text


def test_params_can_be_read_back_from_it(
    tmp_path: Path, metrics: dict[str, Any], history: pd.DataFrame
) -> None:
    text = _report(tmp_path, metrics, history)
    block = text.split("```yaml\n")[1].split("```")[0]
    assert yaml.safe_load(block) == PARAMS
    assert "State `0123456789ab`" in text


def test_every_curve_it_shows_is_there(
    tmp_path: Path, metrics: dict[str, Any], history: pd.DataFrame
) -> None:
    text = _report(tmp_path, metrics, history)
    for name in FIGURES:
        assert f"](figures/{name})" in text
        assert (tmp_path / "reports/figures" / name).read_bytes().startswith(b"\x89PNG")


def test_the_same_curve_is_the_same_file(tmp_path: Path, history: pd.DataFrame) -> None:
    first = [path.read_bytes() for path in draw_curves(tmp_path / "a", history)]
    again = [path.read_bytes() for path in draw_curves(tmp_path / "b", history)]
    assert [path.name for path in draw_curves(tmp_path / "a", history)] == FIGURES
    assert first == again
    other = draw_curves(tmp_path / "c", history.assign(loss=[0.0, 1.0, 2.0]))
    assert other[0].read_bytes() != first[0]
    assert other[1].read_bytes() == first[1]
