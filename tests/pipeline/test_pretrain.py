"""`make pretrain` on a few parts: what it takes, what it leaves out, and what it writes."""

import argparse
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

from brepfind.cad.extract import ExtractConfig
from brepfind.checkpoints.authors import PREFIX
from brepfind.corpus.manifest import read_corpus
from brepfind.corpus.prepare import PrepareConfig, prepare
from brepfind.graphs.extraction import extract_store
from brepfind.graphs.store import GraphStore
from brepfind.params import load_section
from brepfind.pipeline import paths, pretrain
from brepfind.retrieval.leaks import leaked, read_signatures
from brepfind.training.pretrain import SMALL
from tests.pipeline.project import REPO

FEW = SMALL.model_copy(
    update={"grid_steps": 2, "grids_per_step": 8, "part_steps": 2, "parts_per_step": 4}
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose pipeline ran to the end of split: 6 parts, 2 of them tested."""
    root = tmp_path_factory.mktemp("project")
    shutil.copy(REPO / "params.yaml", root)
    config = PrepareConfig(
        source="sample",
        parts=6,
        seed=20,
        captions_per_part=1,
        step_dir=None,
        captions=None,
        max_orphan_rate=0.0,
    )
    prepare(config, root / paths.CORPUS, 1)
    corpus = read_corpus(root / paths.CORPUS)
    files = [
        (str(part.model_id), str(part.path), corpus.step_path(str(part.path)))
        for part in corpus.parts.itertuples()
    ]
    extraction = load_section(root / paths.PARAMS, "extract", ExtractConfig)
    extract_store(files, root / paths.GRAPHS, extraction, 1)
    ids = GraphStore(root / paths.GRAPHS).ids
    sides = ["test", "validation", "train", "train", "train", "train"]
    (root / paths.SPLIT).parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame({"model_id": ids, "split": sides}).to_parquet(root / paths.SPLIT)
    return root


def test_generated_parts_and_a_folder_without_twins_of_what_is_tested(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr(pretrain, "SIZES", {"small": FEW})
    corpus = read_corpus(paths.CORPUS)
    where = dict(zip(corpus.parts["model_id"], corpus.parts["path"], strict=True))
    mine = project / "mine/deep"
    mine.mkdir(parents=True)
    tested, _, trained = GraphStore(paths.GRAPHS).ids[:3]
    shutil.copy(corpus.step_path(where[tested]), mine / "tested.step")
    shutil.copy(corpus.step_path(where[trained]), mine / "new.STP")
    (mine / "broken.step").write_text("nothing")
    out = Path("data/pretrained/few.ckpt")

    arguments = ["--parts", "4", "--step-dir", "mine", "--out", str(out)]
    assert pretrain.main(arguments) == 0
    said = capsys.readouterr().err

    assert "7 files: 6 taken, 1 rejected" in said
    assert "1 parts are left out: twins of validation or test parts" in said
    account = json.loads(out.with_suffix(".json").read_text())
    assert account["parts"] == 5
    seen = read_signatures(out)
    assert seen is not None and len(seen) == 5
    store = GraphStore(paths.GRAPHS)
    assert leaked(store.ids, store.signatures, seen) == [trained]
    with torch.serialization.safe_globals([argparse.Namespace]):
        content = torch.load(out, weights_only=True)["state_dict"]
    assert any(tensor.is_complex() for tensor in content.values())
    assert all(name.startswith(PREFIX) for name in content)


def test_the_pipelines_own_seed_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    assert pretrain.main(["--seed", "20"]) == 2
    said = capsys.readouterr().err
    assert "pretraining would see the same parts" in said


def test_a_folder_that_is_not_there(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    assert pretrain.main(["--parts", "2", "--step-dir", "nowhere"]) == 2
    said = capsys.readouterr().err
    assert "nowhere: there is no such folder; name another --step-dir" in said
