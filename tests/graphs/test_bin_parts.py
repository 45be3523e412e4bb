"""Graph files as parts: into the store beside nothing else, twins known, bad ones rejected."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from brepfind.cad.arrays import PartArrays
from brepfind.cad.extract import ExtractConfig, extract_file
from brepfind.errors import RejectedPart
from brepfind.graphs import estimate
from brepfind.graphs.bin_parts import extract_bin, sampled_signature
from brepfind.graphs.bins import read_part, write_bin
from brepfind.graphs.extraction import extract_store
from brepfind.graphs.extraction_cache import ExtractionCache
from brepfind.graphs.pairwise import pairwise
from brepfind.graphs.store import GraphStore
from brepfind.graphs.twins import twin_groups

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
GRAPHS = sorted((FIXTURES / "models").glob("small_graph_*.bin"))
CONFIG = ExtractConfig(
    grid=10,
    max_faces=400,
    multi_solid="merge",
    timeout_s=60,
    memory_gb=4,
    max_reject_rate=0,
    shards=2,
)


@pytest.fixture(scope="module")
def box() -> PartArrays:
    return extract_file(FIXTURES / "corpus/box.step", CONFIG)[0]


def test_graph_files_become_a_store_and_copies_twins(tmp_path: Path) -> None:
    for graph in GRAPHS:
        shutil.copyfile(graph, tmp_path / graph.name)
    shutil.copyfile(GRAPHS[0], tmp_path / "copy.bin")
    (tmp_path / "cut.bin").write_bytes(GRAPHS[1].read_bytes()[:-100])
    files = [(path.name, path.name, path) for path in sorted(tmp_path.glob("*.bin"))]
    cache = ExtractionCache(tmp_path / "cache", CONFIG)
    tally = extract_store(files, tmp_path / "store", CONFIG, 1, cache)
    assert (tally.graphs, tally.rejected) == (len(GRAPHS) + 1, 1)
    store = GraphStore(tmp_path / "store")
    assert store.rejects[["path", "reason"]].to_numpy().tolist() == [["cut.bin", "unreadable"]]
    groups = dict(zip(store.ids, twin_groups(store.signatures).tolist(), strict=True))
    assert groups["copy.bin"] == groups[GRAPHS[0].name]
    assert len(set(groups.values())) == len(GRAPHS)
    loaded, read = store.load(GRAPHS[0].name), read_part(GRAPHS[0])
    assert np.array_equal(loaded.face_grid, read.face_grid)
    assert np.array_equal(loaded.edge_src, read.edge_src)

    first = {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir()}
    again = extract_store(files[::-1], tmp_path / "store", CONFIG, 1, cache)
    assert (again.cached, again.extracted) == (0, len(files))
    assert {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir()} == first


@pytest.mark.parametrize("names", [("a.bin", "a.step"), ("a.step", "a.bin")], ids="-then-".join)
def test_what_a_file_gave_is_not_taken_for_another_kind_of_file(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    cache = ExtractionCache(tmp_path / "cache", CONFIG)
    accepted = {}
    for name in names:
        shutil.copyfile(FIXTURES / "corpus/box.step", tmp_path / name)
        tally = extract_store([(name, name, tmp_path / name)], tmp_path / "store", CONFIG, 1, cache)
        accepted[name] = tally.accepted
    assert accepted == {"a.step": 1, "a.bin": 0}


def test_why_a_graph_file_is_rejected_names_that_file(tmp_path: Path) -> None:
    cache = ExtractionCache(tmp_path / "cache", CONFIG)
    for name in ("first.bin", "second.bin"):
        (tmp_path / name).write_bytes(GRAPHS[1].read_bytes()[:-100])
        extract_store([(name, name, tmp_path / name)], tmp_path / "store", CONFIG, 1, cache)
        (message,) = GraphStore(tmp_path / "store").rejects["message"]
        assert message.startswith(f"{tmp_path / name}: ")


def test_a_change_of_what_reads_graph_files_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ExtractionCache(tmp_path / "cache", CONFIG)
    for volume in (2.0, 3.0):
        monkeypatch.setattr(estimate, "volume", lambda *_, volume=volume: volume)
        extract_store([("a", "a", GRAPHS[0])], tmp_path / "store", CONFIG, 1, cache)
        assert GraphStore(tmp_path / "store").load("a").facts.volume == volume


def test_the_signature_of_samples_is_near_that_of_the_geometry(box: PartArrays) -> None:
    # What samples miss on flat faces is the spread of second moments: eight of ten samples a side
    # are inside the outline, and their variance is 63/81 of the face's.
    exact, sampled = box.facts.signature, sampled_signature(box)
    assert sampled[[0, 1, 5, 6]] == pytest.approx(exact[[0, 1, 5, 6]], rel=1e-5)
    assert (sampled[2:5] < exact[2:5]).all()
    assert (sampled[2:5] > exact[2:5] * (63 / 81) ** 0.5).all()


def test_the_handedness_of_neighbours_counts_each_edge_once() -> None:
    part = read_part(GRAPHS[0])
    scale = max(np.subtract(part.facts.box_max, part.facts.box_min)) / 2
    centres, normals = [], []
    for grid in part.face_grid.astype(float):
        inside = grid[grid[..., 6] > 0.5]
        assert len(inside)
        centres.append(inside[:, :3].mean(axis=0) * scale)
        normals.append(inside[:, 3:6].mean(axis=0))
    twist = sum(
        length * scale * np.dot(centres[s] - centres[d], np.cross(normals[s], normals[d]))
        for s, d, length in zip(part.edge_src, part.edge_dst, part.edge_length, strict=True)
        if s < d  # the other direction is the same edge
    )
    size = np.sqrt(part.face_area.sum(dtype=float)) * scale
    sampled = sampled_signature(part)
    assert abs(sampled[7]) > 1e-5 * size
    assert sampled[7] == pytest.approx(0.25 * twist / size, rel=1e-4)


def test_the_signature_knows_a_resized_part(box: PartArrays) -> None:
    double = replace(
        box.facts,
        box_min=tuple(2 * x for x in box.facts.box_min),
        box_max=tuple(2 * x for x in box.facts.box_max),
        volume=8 * box.facts.volume,
    )
    sampled = sampled_signature(replace(box, facts=double))
    assert sampled == pytest.approx(2 * sampled_signature(box), rel=1e-9, abs=1e-9)


def test_graphs_that_do_not_fit_the_settings_are_rejected(box: PartArrays, tmp_path: Path) -> None:
    write_bin(tmp_path / "box.bin", box, pairwise(box, "inside"))
    with pytest.raises(RejectedPart, match="too_many_faces: it has 6 faces, allowed are 5"):
        extract_bin(tmp_path / "box.bin", CONFIG.model_copy(update={"max_faces": 5}))
    with pytest.raises(RejectedPart, match=r"grid: its grids have 10 samples, extract\.grid is 8"):
        extract_bin(tmp_path / "box.bin", CONFIG.model_copy(update={"grid": 8}))
