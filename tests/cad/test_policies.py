"""Edges and faces that have no place in a plain graph are kept or counted, never lost."""

import numpy as np
import pytest
from OCP.BRep import BRep_Builder
from OCP.BRepAlgoAPI import BRepAlgoAPI_Fuse
from OCP.BRepBuilderAPI import BRepBuilderAPI_MakeEdge, BRepBuilderAPI_Sewing
from OCP.gp import gp_Ax1, gp_Dir, gp_Pnt, gp_Trsf
from OCP.TopAbs import TopAbs_FACE, TopAbs_INTERNAL
from OCP.TopExp import TopExp_Explorer
from OCP.TopoDS import TopoDS, TopoDS_Builder, TopoDS_Compound, TopoDS_Shell, TopoDS_Solid

from brepfind.cad import reading
from brepfind.cad.extract import extract_shape
from brepfind.cad.reading import read
from brepfind.cad.summary import summary, warnings
from brepfind.errors import RejectedPart
from tests.cad.shapes import (
    CONFIG,
    arc,
    box,
    face_of,
    line,
    motion,
    part_of,
    polygon,
    prism,
    revolved,
    transformed,
    write_step,
)


def compound(*shapes):
    whole = TopoDS_Compound()
    builder = TopoDS_Builder()
    BRep_Builder().MakeCompound(whole)
    for shape in shapes:
        builder.Add(whole, shape)
    return whole


def faces_of(shape):
    found, walk = [], TopExp_Explorer(shape, TopAbs_FACE)
    while walk.More():
        found.append(TopoDS.Face(walk.Current()))
        walk.Next()
    return found


def pairs(part):
    """How many edges each two faces share."""
    found: dict[tuple[int, int], int] = {}
    for a, b in zip(part.edge_src[::2].tolist(), part.edge_dst[::2].tolist(), strict=True):
        key = (min(a, b), max(a, b))
        found[key] = found.get(key, 0) + 1
    return found


def test_two_faces_that_share_two_edges_have_two_edges():
    """A lens: two round walls that meet along two straight edges."""
    left, right = (-5, 0, 0), (5, 0, 0)
    lens = prism(face_of([arc(left, (0, 2, 0), right), arc(right, (0, -2, 0), left)]), 4)
    part = part_of(lens)
    assert part.n_faces == 4
    assert sorted(pairs(part).values()) == [1, 1, 1, 1, 2]
    assert part.n_edges == 12


def test_an_edge_of_four_faces_joins_each_two_of_them():
    """Two boxes that touch along one edge: 22 edges of two faces, and one of four."""
    fused = BRepAlgoAPI_Fuse(box(10, 10, 10), box(10, 10, 10, at=(10, 10, 0))).Shape()
    part = part_of(fused)
    assert (part.facts.solids, part.n_faces, part.facts.nonmanifold) == (2, 12, 1)
    assert part.n_edges // 2 == 22 + 6
    assert part.facts.free_edges == 0
    assert part.facts.volume == pytest.approx(2000, rel=1e-9)
    assert "1 edges have more than two faces: solids touch" in warnings(part)


def test_several_solids_are_merged_split_or_refused():
    both = compound(box(10, 10, 10), box(5, 5, 5, at=(20, 0, 0)))
    merged = part_of(both)
    assert (merged.facts.solids, merged.n_faces, merged.n_edges) == (2, 12, 48)
    assert merged.facts.volume == pytest.approx(1125, rel=1e-9)
    split = extract_shape(both, "mm", CONFIG.model_copy(update={"multi_solid": "split"}))
    assert [round(part.facts.volume) for part in split] == [1000, 125]
    assert [(part.facts.solids, part.n_faces) for part in split] == [(1, 6), (1, 6)]
    with pytest.raises(RejectedPart, match="multi_solid: it holds 2 solids"):
        part_of(both, multi_solid="reject")


def test_what_lies_outside_every_solid_is_left_out_and_counted():
    """A sheet of four edges, and a lone line, beside two boxes."""
    sheet = polygon([(0, 0), (5, 0), (5, 5), (0, 5)])
    wire = BRepBuilderAPI_MakeEdge(gp_Pnt(0, 0, 50), gp_Pnt(9, 0, 50)).Edge()
    shape = compound(box(10, 10, 10, at=(0, 0, 9)), box(5, 5, 5, at=(20, 0, 0)), sheet, wire)
    part = part_of(shape)
    assert (part.n_faces, part.facts.free_faces, part.facts.loose_edges) == (12, 1, 5)
    assert part.facts.box_max == pytest.approx((25, 10, 19))  # the wire at 50 is no part of it
    split = extract_shape(shape, "mm", CONFIG.model_copy(update={"multi_solid": "split"}))
    assert [(one.facts.free_faces, one.facts.loose_edges) for one in split] == [(1, 5), (0, 0)]
    said = summary(part)
    assert said["faces_outside_every_solid_left_out"] == 1
    assert said["loose_edges_left_out"] == 5
    assert said["warnings"] == [
        "1 faces outside every solid are left out",
        "5 loose edges are left out",
    ]


def test_a_face_of_the_solid_that_stands_beside_it_too_is_no_free_face():
    solid = box(10, 10, 10)
    part = part_of(compound(solid, faces_of(solid)[0]))
    assert (part.n_faces, part.facts.free_faces, part.facts.loose_edges) == (6, 0, 0)
    assert warnings(part) == []


def test_a_sheet_inside_a_solid_bounds_nothing():
    solid = TopoDS_Solid()
    shell = TopoDS_Shell()
    builder = BRep_Builder()
    builder.MakeSolid(solid)
    builder.MakeShell(shell)
    sewing = BRepBuilderAPI_Sewing()
    sewing.Add(box(10, 10, 10))
    sewing.Perform()
    for face in faces_of(sewing.SewedShape()):
        builder.Add(shell, face)
    inner = face_of(
        [line((2, 2, 5), (8, 2, 5)), line((8, 2, 5), (5, 8, 5)), line((5, 8, 5), (2, 2, 5))]
    )
    builder.Add(shell, inner.Oriented(TopAbs_INTERNAL))
    shell.Closed(True)
    builder.Add(solid, shell)
    part = part_of(solid)
    assert (part.n_faces, part.facts.free_faces, part.facts.loose_edges) == (6, 1, 3)
    assert part.facts.volume == pytest.approx(1000, rel=1e-9)


def lemon():
    """Two arcs through (0, -3), (1, 0) and (0, 3), turned about the axis; and its volume."""
    lower = arc((0, 0, -3), (0.8, 0, -1.2), (1, 0, 0))
    upper = arc((1, 0, 0), (0.8, 0, 1.2), (0, 0, 3))
    # The lower arc's circle has its centre at (-5.3, 13/30) and passes through (1, 0).
    z = np.linspace(-3, 0, 200_001)
    x = -5.3 + np.sqrt(6.3**2 + (13 / 30) ** 2 - (z - 13 / 30) ** 2)
    shape = revolved([lower, upper, line((0, 0, 3), (0, 0, -3))])
    return shape, 2 * np.pi * np.trapezoid(x**2, z)


@pytest.mark.parametrize("upside_down", [False, True])
def test_a_cap_that_its_file_tells_by_a_ring_is_closed_at_its_pole(tmp_path, upside_down):
    """Written to STEP, the caps of a lemon lose their poles, and one its seam, too."""
    shape, volume = lemon()
    half_turn = gp_Trsf()
    half_turn.SetRotation(gp_Ax1(gp_Pnt(0, 0, 0), gp_Dir(1, 0, 0)), np.pi)
    if upside_down:
        shape = transformed(shape, half_turn)
    whole = compound(transformed(shape, motion(2)), box(5, 5, 5, at=(900, 0, 0)))
    written, _ = read(write_step(whole, tmp_path / "lemon.step"))
    part = part_of(written)
    assert part.facts.healed
    assert (part.n_faces, part.facts.seams, part.facts.degenerate) == (8, 2, 2)
    assert part.facts.volume - 125 == pytest.approx(volume, rel=1e-6)
    assert warnings(part) == ["it was invalid and has been healed"]


def test_a_face_whose_outline_does_not_close_is_refused_not_guessed(tmp_path, monkeypatch):
    """Its area would be that of nothing, though all its edges close in space."""
    monkeypatch.setattr(reading, "close_caps", lambda shape: shape)
    shape, _ = read(write_step(lemon()[0], tmp_path / "lemon.step"))
    with pytest.raises(RejectedPart, match="invalid: the outline of face 1 does not close"):
        part_of(shape)


def test_faces_are_numbered_as_the_file_has_them_and_alike_each_time():
    shape = compound(box(10, 20, 30), box(5, 6, 7, at=(40, 0, 0)))
    first, second = part_of(shape), part_of(shape)
    for name in ("face_grid", "edge_grid", "edge_src", "edge_dst", "face_area"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()
    sizes = first.face_area / first.face_area.max()
    order = [600, 600, 300, 300, 200, 200, 42, 42, 35, 35, 30, 30]
    assert sorted(sizes[:6], reverse=True) == pytest.approx(np.array(order[:6]) / 600, rel=1e-5)
    assert sorted(sizes[6:], reverse=True) == pytest.approx(np.array(order[6:]) / 600, rel=1e-5)
