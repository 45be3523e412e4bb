"""The gate of the extract stage: what it refuses, and what it says then."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest

from brepfind.corpus.manifest import write_corpus
from brepfind.errors import CheckFailed, ParamsError
from brepfind.graphs.store import GraphStore
from brepfind.pipeline.config import RuntimeConfig
from brepfind.pipeline.context import StageContext
from brepfind.pipeline.extract import extract
from brepfind.tracking.tracker import Tracker

ZOO = Path(__file__).parents[1] / "fixtures" / "cad" / "zoo"
SECTION = {
    "grid": 5,
    "max_faces": 100,
    "multi_solid": "merge",
    "timeout_s": 30,
    "memory_gb": 4,
    "max_reject_rate": 1.0,
    "shards": 2,
    "cluster": "local",
}
RUNTIME = RuntimeConfig(
    workers=2,
    threads=1,
    experiment="x",
    stop_grace_s=1,
    loader_workers=0,
    save_every=1,
)

Run = Callable[..., tuple[Mapping[str, Any], StageContext]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A function that extracts files of the zoo as the stage does."""

    def stage(*names: str, **changes: object) -> tuple[Mapping[str, Any], StageContext]:
        raw = tmp_path / "raw"
        raw.mkdir(exist_ok=True)
        for name in names:
            shutil.copy(ZOO / name, raw)
        parts = pd.DataFrame(
            {"model_id": [Path(name).stem for name in names], "path": list(names)}, dtype="str"
        )
        write_corpus(
            tmp_path / "data" / "corpus",
            parts.assign(family="", split=""),
            pd.DataFrame(
                {
                    "model_id": parts["model_id"],
                    "caption": "a part",
                    "level": 0,
                    "index": 0,
                    "phrasing": "",
                }
            ),
            root=str(raw),
            source="folder",
            notes={},
        )
        evidence = tmp_path / "evidence"
        evidence.mkdir(exist_ok=True)
        context = StageContext(
            name="extract",
            project=tmp_path,
            home=tmp_path / ".brepfind",
            params={"extract": SECTION | changes},
            fingerprint="",
            evidence=evidence,
            tracker=cast("Tracker", None),  # the stage tells it nothing
            runtime=RUNTIME,
        )
        return extract(context), context

    return stage


def test_accepted_and_rejected_are_all_files(run: Run, tmp_path: Path) -> None:
    found, _ = run("ok_box.step", "sphere.step", "html_404.step", "one_face.step")
    assert (found["files"], found["graphs"], found["rejected"]) == (4, 2, 2)
    assert found["reject_rate"] == 0.5
    assert found["rejected_by_reason"] == {"no_solid": 1, "unreadable": 1}
    assert (found["faces_mean"], found["faces_max"]) == (4.0, 6)
    assert GraphStore(tmp_path / "data" / "graphs").ids == ["ok_box", "sphere"]


def test_what_came_from_the_cache_is_said_as_cost_and_changes_no_metric(run: Run) -> None:
    names = ("ok_box.step", "html_404.step")
    first, before = run(*names)
    second, after = run(*names, timeout_s=20)
    assert first == second
    assert (before.cost["extracted"], before.cost["cached"]) == (2, 0)
    assert (after.cost["extracted"], after.cost["cached"]) == (0, 2)
    assert after.cost["worker_seconds"] == 0.0 and after.cost["damaged_in_cache"] == 0


def test_all_rejected_is_a_failed_check_whatever_rate_is_allowed(run: Run, tmp_path: Path) -> None:
    with pytest.raises(CheckFailed, match=r"extract\.graphs is 0, asked is >= 1.*2 unreadable"):
        run("html_404.step", "empty_0_bytes.step", "one_face.step", max_reject_rate=1.0)
    listed = pd.read_csv(tmp_path / "evidence" / "rejects.csv")
    assert dict(zip(listed["path"], listed["reason"], strict=True)) == {
        "html_404.step": "unreadable",
        "empty_0_bytes.step": "unreadable",
        "one_face.step": "no_solid",
    }


def test_no_file_is_a_failed_check(run: Run) -> None:
    with pytest.raises(CheckFailed, match=r"extract\.graphs is 0.*the corpus holds no STEP file"):
        run()


def test_too_many_rejects(run: Run) -> None:
    with pytest.raises(
        CheckFailed, match=r"extract\.reject_rate is 0\.5, asked is <= 0\.4: 1 of 2"
    ):
        run("ok_box.step", "html_404.step", max_reject_rate=0.4)


def test_captions_speak_of_whole_files(run: Run) -> None:
    with pytest.raises(ParamsError, match="a caption speaks of a whole file"):
        run("ok_box.step", multi_solid="split")
