"""The page is taken away when it is no longer true, and the runs before it are remembered."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from brepfind.pipeline import page, paths
from brepfind.pipeline.failure import Failure

FAILURE = Failure(stage="health", reason="a <b>tower</b> has collapsed", exit_code=1)
GREEN = "<title>Every gate passed</title>"


def old_page(project: Path) -> Path:
    path = project / paths.PAGE
    path.parent.mkdir(parents=True)
    path.write_text(GREEN, encoding="utf-8")
    return path


def test_a_stage_that_begins_takes_an_older_page_away(tmp_path: Path) -> None:
    path = old_page(tmp_path)
    page.began(tmp_path, "train")
    text = path.read_text(encoding="utf-8")
    assert "Every gate passed" not in text
    assert "train began on" in text and "dvc repro" in text


def test_where_there_was_no_page_a_stage_makes_none(tmp_path: Path) -> None:
    page.began(tmp_path, "prepare")
    assert not (tmp_path / paths.PAGE).exists()


def test_a_run_that_stopped_before_anything_was_written_has_a_page(tmp_path: Path) -> None:
    path = old_page(tmp_path)
    assert page.stopped(tmp_path, "", FAILURE, tmp_path / "evidence") == path
    text = path.read_text(encoding="utf-8")
    assert "It stopped at health" in text and "Every gate passed" not in text
    assert "a &lt;b&gt;tower&lt;/b&gt; has collapsed" in text


def test_a_page_that_cannot_be_made_leaves_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise MemoryError("no room for <charts>")

    monkeypatch.setattr("brepfind.report.page.write_page", broken)
    path = old_page(tmp_path)
    page.stopped(tmp_path, "", FAILURE, tmp_path / "evidence")
    text = path.read_text(encoding="utf-8")
    assert "Stopped at health" in text and "Every gate passed" not in text
    assert "a &lt;b&gt;tower&lt;/b&gt; has collapsed" in text
    assert "no room for &lt;charts&gt;" in text


def test_damaged_files_are_said_to_be_missing(tmp_path: Path) -> None:
    for file in (paths.metrics_file("prepare"), paths.GRAPHS / "manifest.parquet", paths.PARAMS):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("{cut", encoding="utf-8")
    page.stopped(tmp_path, "", FAILURE, tmp_path / "evidence")
    text = (tmp_path / paths.PAGE).read_text(encoding="utf-8")
    assert "Not here: nothing was prepared or extracted." in text


def test_the_run_before_is_the_last_of_another_state_or_model(tmp_path: Path) -> None:
    row = {"R_at_1": 0.5, "median_rank": 1.0, "n_queries": 4.0, "n_items": 4.0}

    def publish(state: str, model: str) -> Any:
        context = SimpleNamespace(home=tmp_path, fingerprint=state)
        tables = dict.fromkeys(("text_to_cad", "cad_to_text", "cad_to_cad"), row)
        return page._remember(context, {"evaluate": {**tables, "model": model}}, "test")  # type: ignore[arg-type]

    assert publish("a", "m") is None
    assert publish("a", "m") is None  # the same run published again is not its own predecessor
    before = publish("b", "m")
    assert before["state"] == "a" and before["retrieval"]["text_to_cad"] == row
    assert publish("b", "m")["state"] == "a"
    assert publish("b", "other weights")["model"] == "m"
    assert publish("a", "m")["model"] == "other weights"
    (tmp_path / "published.json").write_text("[{", encoding="utf-8")
    assert publish("a", "m") is None
