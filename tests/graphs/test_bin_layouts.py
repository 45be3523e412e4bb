"""BRepFormer's, UV-Net's and BrepMFR's files, made from parts whose truth is known."""

import numpy as np
import pytest
import torch
from OCP.BRepAlgoAPI import BRepAlgoAPI_Cut, BRepAlgoAPI_Fuse
from OCP.BRepPrimAPI import (
    BRepPrimAPI_MakeBox,
    BRepPrimAPI_MakeCone,
    BRepPrimAPI_MakeCylinder,
    BRepPrimAPI_MakeSphere,
    BRepPrimAPI_MakeTorus,
)
from OCP.gp import gp_Ax2, gp_Dir, gp_Pnt

from brepfind.cad.arrays import FACE_TYPES
from brepfind.cad.extract import ExtractConfig, extract_shape
from brepfind.errors import InputError
from brepfind.graphs.backend import dgl
from brepfind.graphs.bins import read_bin, read_part, write_bin
from brepfind.graphs.collate import collate
from brepfind.graphs.lengths import named_lengths
from brepfind.graphs.pairwise import pairwise
from tests.cad.shapes import polygon, prism

CONFIG = ExtractConfig(
    grid=10,
    max_faces=100,
    multi_solid="merge",
    timeout_s=60.0,
    memory_gb=4.0,
    max_reject_rate=1.0,
    shards=1,
)


def at(x, y, z):
    return gp_Ax2(gp_Pnt(x, y, z), gp_Dir(0, 0, 1))


@pytest.fixture(scope="module")
def bracket():
    """A plate of 40 x 20 x 10 with a hole of diameter 8 and a block on top: every convexity."""
    plate = BRepPrimAPI_MakeBox(gp_Pnt(0, 0, 0), 40, 20, 10).Shape()
    block = BRepPrimAPI_MakeBox(gp_Pnt(0, 0, 10), 12, 20, 6).Shape()
    hole = BRepPrimAPI_MakeCylinder(at(28, 10, -1), 4, 20).Shape()
    shape = BRepAlgoAPI_Cut(BRepAlgoAPI_Fuse(plate, block).Shape(), hole).Shape()
    (part,) = extract_shape(shape, "mm", CONFIG)
    return part


def extent(part):
    return np.subtract(part.facts.box_max, part.facts.box_min)


def wedge():
    """30 x 10 x 5, half of it: no sample inside a face is at its sharp ends."""
    return prism(polygon([(0, 0), (30, 0), (0, 10)]), 5.0)


def holed():
    """A plate of 40 x 20 x 10 with a hole of diameter 10 far from its middle."""
    plate = BRepPrimAPI_MakeBox(gp_Pnt(0, 0, 0), 40, 20, 10).Shape()
    return BRepAlgoAPI_Cut(plate, BRepPrimAPI_MakeCylinder(at(34, 10, -1), 5, 20).Shape()).Shape()


# How far off: the ten samples of a full turn are 40 degrees apart, and one is 10 degrees from the
# top of the circle. A sphere's miss the equator by as much. The cells of a torus are flat.
TURN, FLAT = 1 - np.cos(np.radians(10)), 1e-5


@pytest.mark.parametrize(
    ("shape", "sides", "volume", "box_off", "volume_off"),
    [
        (BRepPrimAPI_MakeBox(30, 20, 10).Shape(), (2, 4 / 3, 2 / 3), 6000 / 15**3, FLAT, FLAT),
        (wedge(), (2, 2 / 3, 1 / 3), 750 / 15**3, FLAT, FLAT),
        (BRepPrimAPI_MakeCylinder(5, 10).Shape(), (2, 2, 2), 2 * np.pi, TURN, FLAT),
        (BRepPrimAPI_MakeCone(5, 0, 10).Shape(), (2, 2, 2), 2 / 3 * np.pi, TURN, FLAT),
        (BRepPrimAPI_MakeSphere(5).Shape(), (2, 2, 2), 4 / 3 * np.pi, 2 * TURN, FLAT),
        (
            BRepPrimAPI_MakeTorus(10, 3).Shape(),
            (2, 2, 6 / 13),
            2 * np.pi**2 * 10 * 9 / 13**3,
            TURN,
            0.04,
        ),
        (holed(), (2, 1, 0.5), (8000 - 250 * np.pi) / 20**3, FLAT, 1e-3),
    ],
    ids=["box", "wedge", "cylinder", "cone", "sphere", "torus", "holed"],
)
def test_a_brepformer_file_gives_the_box_and_the_volume(
    tmp_path, shape, sides, volume, box_off, volume_off
):
    (part,) = extract_shape(shape, "mm", CONFIG)
    write_bin(tmp_path / "part.bin", part, pairwise(part))
    found = read_part(tmp_path / "part.bin")
    assert found.facts.unit == "box" and extent(found).max() == 2
    assert np.allclose(extent(found), sides, rtol=box_off * 1.01, atol=0)
    assert found.facts.volume == pytest.approx(volume, rel=volume_off)
    assert np.add(found.facts.box_min, found.facts.box_max).tolist() == [0, 0, 0]


def test_lengths_of_a_brepformer_file_are_in_box_units(tmp_path):
    (part,) = extract_shape(BRepPrimAPI_MakeCone(5, 0, 20).Shape(), "mm", CONFIG)
    write_bin(tmp_path / "part.bin", part, pairwise(part))
    diameters = named_lengths(read_part(tmp_path / "part.bin"))[3:]
    assert diameters == pytest.approx([1, 1], rel=1e-5)  # both directions of the base's edge


def test_a_brepformer_file_whose_samples_are_all_the_origin(tmp_path, make_part):
    part = make_part(1, ())
    part.face_grid[..., :3] = 0
    write_bin(tmp_path / "point.bin", part, pairwise(part))
    with pytest.raises(InputError, match="all its samples are the origin"):
        read_part(tmp_path / "point.bin")


def test_the_box_of_a_uvnet_file_takes_in_its_edges(tmp_path):
    (truth,) = extract_shape(wedge(), "mm", CONFIG)
    part = save_uvnet(tmp_path / "part.bin", truth, scale=15.0, shift=7.0).arrays
    assert extent(part) == pytest.approx([30, 10, 5], rel=1e-5)
    assert np.allclose(part.face_grid, truth.face_grid, atol=1e-5)


def test_a_volume_does_not_depend_on_where_the_part_is(tmp_path):
    (truth,) = extract_shape(holed(), "mm", CONFIG)
    near, far = (
        save_uvnet(tmp_path / "part.bin", truth, scale=20.0, shift=shift).arrays.facts.volume
        for shift in (0.0, 1000.0)
    )
    assert near == pytest.approx(far, rel=1e-6)


def save_uvnet(path, part, scale=1.0, shift=0.0, turned=()):
    """What UV-Net's script writes: float64 grids, points in the file's own units."""
    face, edge = part.face_grid.astype(float), part.edge_grid[..., :6].astype(float)
    for edge_number in turned:
        edge[edge_number] = edge[edge_number, ::-1] * (1, 1, 1, -1, -1, -1)
    for grid in (face, edge):
        grid[..., :3] = grid[..., :3] * scale + shift
    ends = (torch.tensor(part.edge_src), torch.tensor(part.edge_dst))
    graph = dgl.graph(ends, num_nodes=part.n_faces)
    graph.ndata["x"] = torch.from_numpy(face)
    graph.edata["x"] = torch.from_numpy(edge) if part.n_edges else torch.zeros(0)
    dgl.save_graphs(str(path), [graph])
    return read_bin(path)


def test_a_uvnet_file_becomes_the_part_it_was(tmp_path, bracket):
    found = save_uvnet(tmp_path / "part.bin", bracket, scale=20.0, shift=7.0, turned=(3, 6, 7))
    part = found.arrays
    assert found.layout == "uvnet" and found.labels is None
    assert part.face_type.tolist() == bracket.face_type.tolist()
    assert part.edge_type.tolist() == bracket.edge_type.tolist()
    assert part.edge_convexity.tolist() == bracket.edge_convexity.tolist()
    assert set(part.edge_convexity.tolist()) == {0, 1, 2}
    assert np.allclose(part.edge_length, bracket.edge_length, rtol=0.03)
    straight = bracket.edge_type[:, 3] == 1
    assert np.allclose(part.edge_dihedral, bracket.edge_dihedral, atol=0.02)
    # Back in box units, and every edge with its source face on the left.
    assert np.allclose(part.edge_grid[straight], bracket.edge_grid[straight], atol=2e-3)
    assert np.allclose(part.edge_grid[..., :6], bracket.edge_grid[..., :6], atol=2e-3)
    assert np.abs(part.face_grid - bracket.face_grid).max() < 2e-3
    assert np.array_equal(pairwise(part).hops, found.pairs.hops)
    assert part.facts.unit == "unknown" and np.allclose(extent(part), (40, 20, 16), rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (BRepPrimAPI_MakeSphere(5).Shape(), {"sphere"}),
        (BRepPrimAPI_MakeTorus(9, 2).Shape(), {"torus"}),
        (BRepPrimAPI_MakeCylinder(3, 8).Shape(), {"cylinder", "plane"}),
        (BRepPrimAPI_MakeCone(5, 2, 6).Shape(), {"cone", "plane"}),
        (BRepPrimAPI_MakeCone(5, 0, 6).Shape(), {"cone", "plane"}),
    ],
)
def test_types_are_seen_in_the_samples(tmp_path, shape, expected):
    (part,) = extract_shape(shape, "mm", CONFIG)
    part.face_grid[..., 6] = 1  # UV-Net counts the border as inside; these are not trimmed
    found = save_uvnet(tmp_path / "part.bin", part, scale=3.0).arrays
    assert {FACE_TYPES[code] for code in found.face_type} == expected
    curved = part.face_type != FACE_TYPES.index("plane")
    assert np.allclose(found.face_area[curved], part.face_area[curved], rtol=0.06)
    assert np.allclose(found.face_centroid[curved], part.face_centroid[curved], atol=0.1)


def test_a_sphere_has_no_edge_and_batches(tmp_path):
    (part,) = extract_shape(BRepPrimAPI_MakeSphere(5).Shape(), "mm", CONFIG)
    part.face_grid[..., 6] = 1
    found = save_uvnet(tmp_path / "sphere.bin", part)
    assert found.arrays.edge_grid.shape == (0, 10, 12)
    assert len(collate([found.arrays], [found.pairs])) == 1
    # The faceted sphere's volume stays below the truth, and near it.
    assert 0.85 < found.arrays.facts.volume / (4 / 3 * np.pi) < 1


def save_brepmfr(path, part, area_scale=1.0):
    graph = dgl.graph(
        (torch.tensor(part.edge_src), torch.tensor(part.edge_dst)), num_nodes=part.n_faces
    )
    graph.ndata["x"] = torch.from_numpy(part.face_grid * np.r_[[30.0] * 3, [1.0] * 4]).float()
    graph.ndata["z"] = torch.ones(part.n_faces, dtype=torch.int32)
    graph.ndata["y"] = torch.from_numpy(part.face_area) * 900 * area_scale
    graph.ndata["l"] = torch.from_numpy(part.face_loops).int()
    graph.ndata["a"] = torch.zeros(part.n_faces, dtype=torch.int32)
    graph.ndata["f"] = torch.arange(part.n_faces, dtype=torch.int32)
    curve = np.concatenate([part.edge_grid[..., :6], part.edge_grid[..., :1]], axis=2)
    graph.edata["x"] = torch.from_numpy(curve * np.r_[[30.0] * 3, [1.0] * 4]).float()
    graph.edata["t"] = torch.zeros(part.n_edges, dtype=torch.int32)
    graph.edata["l"] = torch.from_numpy(part.edge_length) * 30
    graph.edata["a"] = torch.zeros(part.n_edges)
    graph.edata["c"] = torch.zeros(part.n_edges, dtype=torch.int32)
    n = part.n_faces
    saved = {name: torch.zeros(n, n, 64) for name in ("d2_distance", "angle_distance")}
    saved["spatial_pos"] = torch.zeros(n, n, dtype=torch.int32)
    saved["edges_path"] = torch.full((n, n, 16), -1, dtype=torch.int32)
    dgl.save_graphs(str(path), [graph], saved)
    return read_bin(path)


def test_a_brepmfr_file_becomes_the_part_it_was(tmp_path, bracket):
    found = save_brepmfr(tmp_path / "part.bin", bracket)
    part = found.arrays
    assert found.layout == "brepmfr" and found.labels.tolist() == list(range(part.n_faces))
    assert np.allclose(part.face_area, bracket.face_area, rtol=1e-5)
    assert np.allclose(part.edge_length, bracket.edge_length, rtol=1e-5)
    assert part.face_loops.tolist() == bracket.face_loops.tolist()
    assert part.face_type.tolist() == bracket.face_type.tolist()
    assert part.edge_convexity.tolist() == bracket.edge_convexity.tolist()
    assert np.array_equal(found.pairs.hops, pairwise(bracket).hops)


def test_sizes_in_other_units_than_the_points_are_not_believed(tmp_path, bracket):
    part = save_brepmfr(tmp_path / "part.bin", bracket, area_scale=0.01).arrays
    assert np.allclose(part.face_area, bracket.face_area, rtol=0.5)


def test_grids_must_be_square_and_alike(tmp_path, make_part):
    part = make_part(grid=5)
    graph = dgl.graph((part.edge_src, part.edge_dst), num_nodes=part.n_faces)
    graph.ndata["x"] = torch.rand(6, 5, 4, 7)
    graph.edata["x"] = torch.rand(6, 5, 6)
    dgl.save_graphs(str(tmp_path / "odd.bin"), [graph])
    with pytest.raises(InputError, match=r"odd\.bin: its grids differ in size"):
        read_bin(tmp_path / "odd.bin")


def test_a_part_that_is_one_point(tmp_path, make_part):
    part = make_part(1, ())
    part.face_grid[..., :3] = 1
    with pytest.raises(InputError, match="all its samples are one point"):
        save_uvnet(tmp_path / "point.bin", part)
