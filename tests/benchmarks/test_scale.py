"""The fit of a growth, worked by hand; a corpus that is repeated."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import scale_simulated
from benchmarks.scale_fit import grown
from brepfind.corpus.manifest import read_corpus, write_corpus
from brepfind.graphs import store as stores
from brepfind.graphs.store import GraphStore, GraphStoreWriter
from brepfind.graphs.twins import twin_groups
from tests.training.tiny import part


def test_a_power_above_a_floor_is_found_and_followed() -> None:
    found = grown(5.0, {100: 6.0, 1000: 105.0})  # 1 and 100 above the floor: n^2
    assert found.exponent == pytest.approx(2.0)
    assert found.value(10_000) == pytest.approx(5.0 + 10_000)
    assert found.reaches(105.0) == pytest.approx(1000)
    assert found.reaches(5.0 + 10_000) == pytest.approx(10_000)


def test_noise_is_flat_and_reaches_nothing() -> None:
    found = grown(5.0, {100: 5.2, 1000: 5.4})
    assert found.flat and found.reaches(24.0) == math.inf
    assert found.value(10**6) == pytest.approx(5.4)


def test_one_size_is_taken_in_proportion() -> None:
    assert grown(0.0, {1000: 2.0}).value(10_000) == pytest.approx(20.0)


def test_a_small_size_in_the_noise_of_the_floor_has_a_slope_all_the_same() -> None:
    found = grown(5.0, {100: 4.9, 1000: 15.0})
    assert found.exponent == pytest.approx(3.0)  # a thousandth of the rise is the least


def test_a_repeated_corpus_is_whole_and_its_copies_are_no_twins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, folder = tmp_path / "source", tmp_path / "repeated"
    with GraphStoreWriter(source / "data/graphs", shards=2) as writer:
        for seed, model_id in enumerate("abc"):
            writer.add(model_id, f"{model_id}.step", "0" * 64, part(1, 0, seed))
    parts = pd.DataFrame({"model_id": list("abc"), "path": list("abc"), "family": "", "split": ""})
    said = pd.DataFrame(
        {"model_id": list("aabc"), "caption": list("wxyz"), "level": 0, "index": [0, 1, 0, 0]}
    ).assign(phrasing="")
    write_corpus(source / "data/corpus", parts, said, "step", "sample", {})
    scale_simulated.make(source, folder, 7)

    store, corpus = GraphStore(folder / "data/graphs"), read_corpus(folder / "data/corpus")
    assert store.ids == sorted(store.ids) == corpus.parts["model_id"].tolist()
    assert store.ids[-2:] == ["00001/c", "00002/a"]
    assert corpus.captions["caption"].is_unique and len(corpus.captions) == 4 + 4 + 2
    original = GraphStore(source / "data/graphs")
    groups = len(np.unique(twin_groups(original.signatures)))
    once = twin_groups(store.signatures)
    assert len(np.unique(once)) == 2 * groups + 1
    expected = original.load("c").face_grid
    monkeypatch.setattr(stores._Shard, "arrays", stores._Shard.arrays)  # to be put back
    scale_simulated._read_as_originals()
    assert np.array_equal(store.load("00001/c").face_grid, expected)
