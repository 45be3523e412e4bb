"""Edges and faces that have no place in a plain graph are kept or counted, never lost."""

import re

import numpy as np
import pytest
from OCP.Bnd import Bnd_Box
from OCP.BOPAlgo import BOPAlgo_Builder
from OCP.BRep import BRep_Builder
from OCP.BRepAlgoAPI import BRepAlgoAPI_Fuse
from OCP.BRepBndLib import BRepBndLib
from OCP.BRepBuilderAPI import (
    BRepBuilderAPI_MakeEdge,
    BRepBuilderAPI_MakeSolid,
    BRepBuilderAPI_Sewing,
)
from OCP.gp import gp_Ax1, gp_Dir, gp_Pnt, gp_Trsf
from OCP.TopAbs import TopAbs_FACE, TopAbs_INTERNAL, TopAbs_SHELL
from OCP.TopExp import TopExp_Explorer
from OCP.TopLoc import TopLoc_Location
from OCP.TopoDS import TopoDS, TopoDS_Builder, TopoDS_Compound, TopoDS_Shell, TopoDS_Solid

from brepfind.cad import reading
from brepfind.cad.extract import extract_file, extract_shape
from brepfind.cad.reading import read
from brepfind.cad.summary import summary, warnings
from brepfind.errors import RejectedPart
from tests.cad.shapes import (
    CONFIG,
    arc,
    box,
    face_of,
    in_mm,
    line,
    motion,
    part_of,
    polygon,
    prism,
    revolved,
    shift,
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


def quarter_turn():
    """About the z axis."""
    turn = gp_Trsf()
    turn.SetRotation(gp_Ax1(gp_Pnt(0, 0, 0), gp_Dir(0, 0, 1)), np.pi / 2)
    return turn


def placed(shape, *transforms):
    """The same shape elsewhere, by a chain of locations; the first transform is applied first."""
    for transform in transforms:
        shape = shape.Moved(TopLoc_Location(transform))
    return shape


def occ_box(shape):
    found = Bnd_Box()
    BRepBndLib.AddOptimal_s(shape, found, False, False)
    return [
        [getattr(at, name)() for name in "XYZ"] for at in (found.CornerMin(), found.CornerMax())
    ]


def boxes_of(part):
    return [part.facts.box_min, part.facts.box_max]


@pytest.mark.parametrize(
    "chain",
    [
        (shift(100, 0, 0), quarter_turn()),
        (quarter_turn(), shift(100, 0, 0)),
        (motion(1), motion(2), motion(3)),
        (motion(1), motion(2), motion(2), motion(1).Inverted()),
    ],
)
def test_a_chain_of_placements_is_applied_in_its_order(chain):
    shape = compound(box(10, 20, 30), placed(box(5, 6, 7), *chain))
    part = part_of(shape)
    np.testing.assert_allclose(boxes_of(part), occ_box(shape), atol=1e-9)
    corner = np.array([5.0, 6.0, 7.0])
    for transform in chain:
        rows = [[transform.Value(i, j) for j in range(1, 5)] for i in (1, 2, 3)]
        corner = np.array(rows) @ [*corner, 1]
    points = in_mm(part, part.face_grid[6:, ..., :3].astype(float)).reshape(-1, 3)
    assert np.linalg.norm(points - corner, axis=1).min() < 1e-3


def test_a_mapped_item_in_a_turned_component_lies_where_its_file_says(tmp_path):
    """5 x 6 x 7, moved by 100 in x within a component that is turned: from (-6, 100) in (x, y)."""
    whole = compound(box(10, 20, 30), placed(box(5, 6, 7), quarter_turn()))
    path = write_step(whole, tmp_path / "mapped.step")
    text = path.read_text()
    shapes = r"#(\d+)\s*=\s*ADVANCED_BREP_SHAPE_REPRESENTATION\('',\(#(\d+),#(\d+)\),#(\d+)\);"
    component = list(re.finditer(shapes, text))[1]
    number, axes, solid, context = component.groups()
    n = max(map(int, re.findall(r"#(\d+)\s*=", text))) + 1
    mapped = f"""
#{number}=SHAPE_REPRESENTATION('',(#{axes},#{n + 6}),#{context});
#{n}=ADVANCED_BREP_SHAPE_REPRESENTATION('',(#{axes},#{solid}),#{context});
#{n + 1}=REPRESENTATION_MAP(#{axes},#{n});
#{n + 2}=CARTESIAN_POINT('',(100.,0.,0.));
#{n + 3}=DIRECTION('',(0.,0.,1.));
#{n + 4}=DIRECTION('',(1.,0.,0.));
#{n + 5}=AXIS2_PLACEMENT_3D('',#{n + 2},#{n + 3},#{n + 4});
#{n + 6}=MAPPED_ITEM('',#{n + 1},#{n + 5});
"""
    path.write_text(text.replace(component.group(), mapped))
    (part,) = extract_file(path, CONFIG)
    np.testing.assert_allclose(boxes_of(part), [(-6, 0, 0), (10, 105, 30)], atol=1e-9)
    np.testing.assert_allclose(boxes_of(part), occ_box(read(path)[0]), atol=1e-9)


def inside_out(shape):
    """The solid whose only shell is turned, so that its matter is all that lies outside."""
    shell = TopoDS.Shell(TopExp_Explorer(shape, TopAbs_SHELL).Current().Reversed())
    return BRepBuilderAPI_MakeSolid(shell).Solid()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: inside_out(box(5, 5, 5, at=(20, 0, 0))),
        lambda: box(5, 5, 5, at=(20, 0, 0)).Reversed(),
        lambda: placed(inside_out(box(5, 5, 5)), quarter_turn(), shift(20, 0, 0)),
    ],
)
def test_a_solid_that_is_inside_out_is_turned_and_not_taken_off_the_others(wrong):
    part = part_of(compound(box(10, 10, 10), wrong()))
    assert part.facts.volume == pytest.approx(1000 + 125, rel=1e-9)
    assert part.facts.healed
    for solid in (part.face_grid[:6], part.face_grid[6:]):
        middle = solid[..., :3].mean(axis=(0, 1, 2))
        assert (((solid[..., :3] - middle) * solid[..., 3:6]).sum(axis=-1) > 0).all()


def test_a_solid_that_stays_inside_out_is_refused(monkeypatch):
    monkeypatch.setattr(reading, "heal", lambda shape: shape)
    with pytest.raises(RejectedPart, match=r"volume: the volume of solid 2 of 2 is -125 mm\^3"):
        part_of(compound(box(10, 10, 10), inside_out(box(5, 5, 5, at=(20, 0, 0)))))


def test_a_face_that_two_solids_share_bounds_both():
    """Boxes of 1000 and 3000 glued at a face, which is one face; neither volume lacks it."""
    glue = BOPAlgo_Builder()
    glue.AddArgument(box(10, 10, 10))
    glue.AddArgument(box(30, 10, 10, at=(10, 0, 0)))
    glue.Perform()
    for seed in range(3):
        part = part_of(transformed(glue.Shape(), motion(seed)))
        assert (part.facts.solids, part.n_faces, part.facts.healed) == (2, 11, False)
        assert part.facts.volume == pytest.approx(4000, rel=1e-9)
