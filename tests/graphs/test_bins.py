import dataclasses
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from brepfind.errors import InputError
from brepfind.graphs.backend import dgl
from brepfind.graphs.bins import read_bin, write_bin
from brepfind.graphs.pairwise import pairwise

FIXTURES = Path(__file__).parents[1] / "fixtures" / "graphs"
PARITY = sorted(FIXTURES.glob("full_graph_*.bin"))


def load(path):
    (graph,), saved = dgl.load_graphs(str(path))
    edges = dict(zip(("src", "dst"), graph.edges(), strict=True))
    return {"ndata": dict(graph.ndata), "edata": dict(graph.edata), "saved": saved, "ends": edges}


@pytest.mark.parametrize("path", PARITY, ids=lambda path: path.stem)
def test_the_authors_files_round_trip(tmp_path, path):
    found = read_bin(path)
    write_bin(tmp_path / "out.bin", found.arrays, found.pairs, found.labels)
    before, after = load(path), load(tmp_path / "out.bin")
    assert before.keys() == after.keys()
    for kind, fields in before.items():
        assert fields.keys() == after[kind].keys()
        for name, value in fields.items():
            assert value.dtype == after[kind][name].dtype, name
            assert torch.equal(value, after[kind][name]), name


@pytest.mark.parametrize("path", PARITY, ids=lambda path: path.stem)
def test_the_authors_hops_paths_and_distances_are_ours(path):
    found = read_bin(path)
    computed = pairwise(found.arrays)
    assert np.array_equal(computed.hops, found.pairs.hops)
    assert np.array_equal(computed.path, found.pairs.path)
    assert np.abs(computed.distance - found.pairs.distance).max() < 1e-3


@pytest.mark.parametrize(
    ("n_faces", "pairs"),
    [(1, ()), (2, ((0, 1), (0, 1))), (5, ((0, 1), (1, 2))), (7, ((0, 6), (3, 3), (6, 2)))],
)
def test_a_part_round_trips(tmp_path, make_part, n_faces, pairs):
    part = make_part(n_faces, pairs)
    labels = np.arange(n_faces)
    write_bin(tmp_path / "part.bin", part, pairwise(part), labels)
    found = read_bin(tmp_path / "part.bin")
    assert found.layout == "brepformer" and found.labels.tolist() == labels.tolist()
    for field in ("face_grid", "face_area", "face_rational", "face_centroid", "edge_src"):
        assert np.array_equal(getattr(found.arrays, field), getattr(part, field)), field
    for field in ("edge_dst", "edge_grid", "edge_type", "edge_length", "edge_convexity"):
        assert np.array_equal(getattr(found.arrays, field), getattr(part, field)), field
    # Bezier faces (9) have no slot and come back as B-splines (10).
    assert np.array_equal(found.arrays.face_type, np.where(part.face_type == 9, 10, part.face_type))
    for field in dataclasses.fields(found.pairs):
        assert np.array_equal(getattr(found.pairs, field.name), getattr(pairwise(part), field.name))


WRITE = """
import sys, pathlib, numpy
sys.path.insert(0, {root!r})
from conftest import _make_part
from brepfind.graphs.bins import write_bin
from brepfind.graphs.pairwise import pairwise
junk = [numpy.random.default_rng({seed}).random(3000 * {seed}) for _ in range(20)]; del junk
part = _make_part()
print(write_bin(pathlib.Path({out!r}), part, pairwise(part)))
"""


def test_written_files_are_byte_stable_and_dgl_stays_quiet(tmp_path):
    env = {name: value for name, value in os.environ.items() if not name.startswith("DGL")}
    env["HOME"] = str(tmp_path / "home")
    digests = set()
    for seed in (1, 2):
        out = tmp_path / f"{seed}.bin"
        code = WRITE.format(root=str(Path(__file__).parent), seed=seed, out=str(out))
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code], env=env, capture_output=True, text=True
        )
        assert done.returncode == 0 and done.stderr == ""
        digests |= {done.stdout.strip(), hashlib.sha256(out.read_bytes()).hexdigest()}
    assert len(digests) == 1
    assert not (tmp_path / "home").exists()


def test_unreachable_faces_are_infinite_in_the_file(tmp_path, make_part):
    part = make_part(3, ((0, 1),))
    write_bin(tmp_path / "part.bin", part, pairwise(part))
    far = load(tmp_path / "part.bin")["saved"]["shortest_distance_matrix"]
    assert far.isinf().sum() == 4 and far[0].tolist() == [0, 1, float("inf")]
    assert read_bin(tmp_path / "part.bin").pairs.hops[2].tolist() == [-1, -1, 0]


def test_a_sha256_is_compared(tmp_path, make_part):
    part = make_part()
    digest = write_bin(tmp_path / "part.bin", part, pairwise(part))
    read_bin(tmp_path / "part.bin", sha256_hex=digest)
    with pytest.raises(InputError, match=r"part\.bin: its SHA-256 is not"):
        read_bin(tmp_path / "part.bin", sha256_hex="0" * 64)


@pytest.mark.parametrize("keep", [0, 8, 100, 4096, 4200, 0.5, -8, -1])
def test_a_cut_file_is_found_and_named(tmp_path, keep):
    content = PARITY[0].read_bytes()
    path = tmp_path / "cut.bin"
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(InputError, match=r"cut\.bin: is .*cut"):
        read_bin(path)


def test_a_file_of_something_else(tmp_path):
    path = tmp_path / "text.bin"
    path.write_bytes(b"not a graph" * 1000)
    with pytest.raises(InputError, match=r"no DGL graph file .*first bytes"):
        read_bin(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_bin(tmp_path / "missing.bin")


def test_a_file_of_several_graphs(tmp_path):
    graph = dgl.graph(([0, 1], [1, 0]))
    dgl.save_graphs(str(tmp_path / "two.bin"), [graph, graph])
    with pytest.raises(InputError, match="it holds 2 graphs"):
        read_bin(tmp_path / "two.bin")


def test_flipped_bytes_never_end_the_process(tmp_path):
    content = PARITY[2].read_bytes()
    path = tmp_path / "flip.bin"
    r = np.random.default_rng(0)
    read = refused = 0
    # Everything but the last 3 kB of numbers; the frame is where DGL itself would fall.
    for at in r.choice(np.r_[:32, 4096:5300, len(content) - 200 : len(content)], 400):
        damaged = bytearray(content)
        damaged[at] ^= 1 << int(r.integers(8))
        path.write_bytes(damaged)
        try:
            read_bin(path)
            read += 1
        except InputError as error:
            assert str(path) in str(error)
            refused += 1
    assert refused > 250 and read > 0  # the rest hit numbers, where one is as good as another


def save(path, change):
    (graph,), saved = dgl.load_graphs(str(PARITY[0]))
    change(graph, saved)
    dgl.save_graphs(str(path), [graph], saved)
    return path


def put(where, name, index, value):
    def change(graph, saved):
        fields = {"ndata": graph.ndata, "edata": graph.edata, "saved": saved}[where]
        fields[name][index] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("ndata", "x", (2, 1, 1, 0), np.nan), r"ndata 'x' is not finite at \[2, 1, 1, 0\]"),
        (put("edata", "l", 3, np.inf), r"edata 'l' is not finite at \[3\]"),
        (put("saved", "angle_matrix", (1, 2), np.nan), "'angle_matrix' is not finite.*recompute"),
        (put("saved", "edge_path_matrix", (0, 1, 0), 999), r"names an edge outside 0\.\.21"),
        (put("saved", "shortest_distance_matrix", (0, 1), 0.5), "no matrix of hop counts"),
        (put("saved", "shortest_distance_matrix", (0, 1), np.nan), "is not finite"),
        (put("ndata", "t", 0, 1.0), "row 0 of face field 't' is not one-hot"),
        (put("edata", "t", (0, 0), 0.5), "holds other numbers than 0 and 1"),
        (lambda g, s: g.ndata.pop("a"), "of no known layout"),
        (lambda g, s: s.pop("angle_matrix"), "lacks angle_matrix"),
        (
            lambda g, s: s.update(angle_matrix=torch.zeros(2, 2)),
            r"label 'angle_matrix' is \(2, 2\), must be \(6, 6\)",
        ),
        (lambda g, s: g.edata.update(t=torch.zeros(22, 3)), r"edata 't' is \(22, 3\)"),
        (lambda g, s: g.ndata.update(x=torch.zeros(6, 5, 5, 7)), "grids differ in size"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, change, message):
    with pytest.raises(InputError, match=rf"odd\.bin: .*{message}"):
        read_bin(save(tmp_path / "odd.bin", change))


def test_matrices_are_computed_where_they_are_missing_or_not_wanted(tmp_path):
    expected = pairwise(read_bin(PARITY[0]).arrays, "authors")
    bare = save(tmp_path / "bare.bin", lambda g, s: s.clear())
    sick = save(tmp_path / "sick.bin", put("saved", "angle_matrix", 0, np.nan))
    for path, recompute in ((bare, False), (sick, True)):
        found = read_bin(path, recompute=recompute, angle_rule="authors").pairs
        assert np.array_equal(found.angle, expected.angle)
        assert np.array_equal(found.path, expected.path)


@pytest.mark.parametrize("formats", ["coo", "csr", "csc", ["coo", "csr"]])
@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
def test_every_format_of_dgl_is_read(tmp_path, formats, idtype):
    (graph,), saved = dgl.load_graphs(str(PARITY[0]))
    path = tmp_path / "graph.bin"
    dgl.save_graphs(str(path), [graph.astype(idtype)], saved, formats=formats)
    found = read_bin(path)
    src, dst = graph.edges()
    assert sorted(zip(found.arrays.edge_src, found.arrays.edge_dst, strict=True)) == sorted(
        zip(src.tolist(), dst.tolist(), strict=True)
    )


def test_the_volume_of_a_cube_is_estimated(tmp_path, make_part):
    part = make_part(6, (), grid=5)
    u, v = np.meshgrid(np.linspace(-1, 1, 5), np.linspace(-1, 1, 5), indexing="ij")
    for face in range(6):
        axis, sign = face // 2, 1.0 - 2.0 * (face % 2)
        points = np.stack(np.broadcast_arrays(u, v), -1)
        part.face_grid[face, ..., :3] = np.insert(points, axis, sign, axis=-1)
        part.face_grid[face, ..., 3:6] = sign * np.eye(3)[axis]
    part.face_grid[..., 6] = 1
    part.face_area[:] = 4
    write_bin(tmp_path / "cube.bin", part, pairwise(part))
    facts = read_bin(tmp_path / "cube.bin").arrays.facts
    assert facts.volume == pytest.approx(8) and facts.area == pytest.approx(24)
    assert (facts.box_min, facts.box_max, facts.unit) == ((-1, -1, -1), (1, 1, 1), "box")
