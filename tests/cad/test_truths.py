"""What is measured, against numbers worked by hand on shapes with closed forms."""

import numpy as np
import pytest
from OCP.BRepAlgoAPI import BRepAlgoAPI_Cut
from OCP.BRepClass3d import BRepClass3d_SolidClassifier
from OCP.BRepFilletAPI import BRepFilletAPI_MakeFillet
from OCP.BRepPrimAPI import (
    BRepPrimAPI_MakeCone,
    BRepPrimAPI_MakeCylinder,
    BRepPrimAPI_MakePrism,
    BRepPrimAPI_MakeSphere,
    BRepPrimAPI_MakeTorus,
)
from OCP.collections import Array1_gp_Pnt
from OCP.Geom import (
    Geom_BezierCurve,
    Geom_Circle,
    Geom_Ellipse,
    Geom_Hyperbola,
    Geom_OffsetCurve,
    Geom_Parabola,
    Geom_TrimmedCurve,
)
from OCP.GeomConvert import GeomConvert
from OCP.gp import gp_Ax2, gp_Dir, gp_Pnt, gp_Vec
from OCP.TopAbs import TopAbs_EDGE, TopAbs_IN, TopAbs_OUT
from OCP.TopExp import TopExp_Explorer
from OCP.TopoDS import TopoDS

from brepfind.cad.arrays import EDGE_TYPES
from tests.cad.shapes import (
    arc,
    box,
    convexities,
    face_of,
    in_mm,
    line,
    motion,
    part_of,
    polygon,
    prism,
    revolved,
    scale_of,
    shift,
    spline,
    transformed,
    types,
)

PI = np.pi


def areas(part):
    return part.face_area.astype(float) * scale_of(part) ** 2


def lengths(part):
    """Of each edge once, mm."""
    return part.edge_length[::2].astype(float) * scale_of(part)


def edge_types(part):
    return [
        "+".join(name for name, flag in zip(EDGE_TYPES, row, strict=True) if flag)
        for row in part.edge_type[::2]
    ]


def points(part):
    return part.face_grid[..., :3].astype(float)


def normals(part):
    return part.face_grid[..., 3:6].astype(float)


def test_a_box():
    part = part_of(box(10, 20, 30, at=(5, 5, 5)))
    assert types(part) == ["plane"] * 6
    np.testing.assert_allclose(np.sort(areas(part)), [200, 200, 300, 300, 600, 600], rtol=1e-6)
    assert (part.facts.box_min, part.facts.box_max) == (
        pytest.approx((5, 5, 5)),
        pytest.approx((15, 25, 35)),
    )
    assert part.facts.volume == pytest.approx(6000, rel=1e-12)
    assert part.facts.area == pytest.approx(2200, rel=1e-12)
    # The longest side runs from -1 to 1, so the box's half sides are 1/3, 2/3 and 1.
    half = np.array([1 / 3, 2 / 3, 1])
    outward = normals(part)[:, 0, 0]
    np.testing.assert_allclose(part.face_centroid, outward * half, atol=1e-6)
    assert {tuple(row) for row in outward.round(6).tolist()} == {
        (1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)
    }  # fmt: skip
    np.testing.assert_array_equal(
        normals(part), np.broadcast_to(outward[:, None, None], (6, 10, 10, 3))
    )
    # Samples reach the rim, which is not inside: 8 x 8 of 10 x 10 are.
    inside = np.zeros((10, 10))
    inside[1:-1, 1:-1] = 1
    np.testing.assert_array_equal(part.face_grid[..., 6], np.broadcast_to(inside, (6, 10, 10)))
    assert part.face_loops.tolist() == [1] * 6
    assert part.face_rational.tolist() == [0] * 6

    assert edge_types(part) == ["straight"] * 12
    np.testing.assert_allclose(np.sort(lengths(part)), np.repeat([10, 20, 30], 4), rtol=1e-6)
    assert convexities(part) == ["convex"] * 12
    np.testing.assert_allclose(part.edge_dihedral, PI / 2, atol=1e-6)


def test_every_edge_has_both_directions_and_its_faces_on_the_right_sides():
    part = part_of(box(10, 20, 30))
    ahead, back = part.edge_grid[::2].astype(float), part.edge_grid[1::2].astype(float)
    np.testing.assert_array_equal(part.edge_src[::2], part.edge_dst[1::2])
    np.testing.assert_array_equal(part.edge_dst[::2], part.edge_src[1::2])
    np.testing.assert_array_equal(ahead[..., :3], back[:, ::-1, :3])
    np.testing.assert_array_equal(ahead[..., 3:6], -back[:, ::-1, 3:6])
    np.testing.assert_array_equal(ahead[..., 6:9], back[:, ::-1, 9:])
    for side, face in ((slice(6, 9), part.edge_src), (slice(9, 12), part.edge_dst)):
        outward = normals(part)[face][:, 0, 0]
        np.testing.assert_allclose(
            part.edge_grid[:, :, side], outward[:, None].repeat(10, 1), atol=1e-6
        )
    # Seen from outside, the left face lies to the left: normal x tangent points into it.
    inward = np.cross(part.edge_grid[:, 4, 6:9], part.edge_grid[:, 4, 3:6])
    toward = part.face_centroid[part.edge_src] - part.edge_grid[:, 4, :3]
    assert (np.einsum("ij,ij->i", inward, toward) > 0).all()


def test_a_cylinder():
    part = part_of(BRepPrimAPI_MakeCylinder(5.0, 10.0).Shape())
    side, *ends = np.argsort([kind != "cylinder" for kind in types(part)], kind="stable")
    np.testing.assert_allclose(areas(part)[[side, *ends]], [100 * PI, 25 * PI, 25 * PI], rtol=1e-6)
    assert part.facts.volume == pytest.approx(250 * PI, rel=1e-9)
    np.testing.assert_allclose(part.face_centroid[side], 0, atol=1e-6)
    p = points(part)[side]
    np.testing.assert_allclose(normals(part)[side], p * [1, 1, 0], atol=1e-6)  # radius 1 in its box
    # The grid runs once around and from end to end; the seam's samples meet.
    np.testing.assert_allclose(p[0], p[-1], atol=1e-6)
    np.testing.assert_allclose(p[3, :, 2], np.linspace(-1, 1, 10), atol=1e-6)
    for end in ends:
        np.testing.assert_allclose(normals(part)[end] * [0, 0, 1], normals(part)[end], atol=1e-6)
        assert (normals(part)[end][..., 2] * part.face_centroid[end, 2] > 0).all()
    assert edge_types(part) == ["circular+closed"] * 2
    np.testing.assert_allclose(lengths(part), 10 * PI, rtol=1e-6)
    np.testing.assert_allclose(part.edge_dihedral, PI / 2, atol=1e-6)
    assert (part.facts.seams, part.facts.degenerate, part.n_edges) == (1, 0, 4)


@pytest.mark.parametrize("grid", [10, 13])
def test_the_trim_mask_of_a_disc(grid):
    """Against the circle's own formula, at every sample; the rim is not inside."""
    part = part_of(BRepPrimAPI_MakeCylinder(5.0, 10.0).Shape(), grid=grid)
    steps = np.linspace(-1, 1, grid)
    disc = steps[:, None] ** 2 + steps[None, :] ** 2 < 1 - 1e-9
    for face in np.flatnonzero(np.array(types(part)) == "plane"):
        np.testing.assert_array_equal(part.face_grid[face, ..., 6] == 1, disc)


def test_the_trim_mask_leaves_out_holes():
    """A square plate of 20 with a hole of diameter 10, off centre."""
    drill = transformed(BRepPrimAPI_MakeCylinder(5.0, 4.0).Shape(), shift(8, 11, 0))
    part = part_of(BRepAlgoAPI_Cut(box(20, 20, 4), drill).Shape(), grid=21)
    holed = np.flatnonzero(part.face_loops == 2)
    assert len(holed) == 2
    for face in holed:
        p = in_mm(part, points(part)[face])
        clear = np.hypot(p[..., 0] - 8, p[..., 1] - 11) > 5 + 1e-6
        inner = (p[..., :2] > 1e-3).all(axis=-1) & (p[..., :2] < 20 - 1e-3).all(axis=-1)
        np.testing.assert_array_equal(part.face_grid[face, ..., 6] == 1, clear & inner)
    np.testing.assert_allclose(areas(part)[holed], 400 - 25 * PI, rtol=1e-6)
    # Centroid of a plate with a hole: the hole counts as negative area.
    x, y = (10 * 400 - at * 25 * PI for at in (8, 11))
    expected = np.array([x, y]) / (400 - 25 * PI)
    np.testing.assert_allclose(
        in_mm(part, part.face_centroid[holed])[:, :2], [expected] * 2, rtol=1e-6
    )
    rim = [name for name in edge_types(part) if name == "circular+closed"]
    assert len(rim) == 2
    assert convexities(part) == ["convex"] * 14


def test_a_cone_with_its_apex():
    part = part_of(BRepPrimAPI_MakeCone(5.0, 0.0, 10.0).Shape())
    side = types(part).index("cone")
    slant = np.hypot(5, 10)
    assert areas(part)[side] == pytest.approx(5 * PI * slant, rel=1e-6)
    assert part.facts.volume == pytest.approx(250 * PI / 3, rel=1e-9)
    np.testing.assert_allclose(in_mm(part, part.face_centroid[side]), [0, 0, 10 / 3], atol=1e-5)
    n = normals(part)[side]
    np.testing.assert_allclose(np.linalg.norm(n, axis=-1), 1, atol=1e-6)  # at the apex, too
    np.testing.assert_allclose(n[..., 2], 5 / slant, atol=1e-6)
    np.testing.assert_allclose(lengths(part), 10 * PI, rtol=1e-6)
    np.testing.assert_allclose(part.edge_dihedral, np.arccos(-5 / slant), atol=1e-6)
    assert (part.facts.seams, part.facts.degenerate) == (1, 1)


def test_a_frustum():
    part = part_of(BRepPrimAPI_MakeCone(5.0, 2.0, 10.0).Shape())
    side = types(part).index("cone")
    assert areas(part)[side] == pytest.approx(7 * PI * np.hypot(3, 10), rel=1e-6)
    assert part.facts.volume == pytest.approx(PI * 10 / 3 * (25 + 10 + 4), rel=1e-9)
    # A ring at height z weighs as its radius 5 - 0.3 z.
    height = (5 * 10**2 / 2 - 0.3 * 10**3 / 3) / (5 * 10 - 0.3 * 10**2 / 2)
    np.testing.assert_allclose(in_mm(part, part.face_centroid[side]), [0, 0, height], atol=1e-5)


def test_a_sphere_is_one_face_without_edges():
    part = part_of(BRepPrimAPI_MakeSphere(7.0).Shape())
    assert (part.n_faces, part.n_edges, types(part)) == (1, 0, ["sphere"])
    assert part.edge_grid.shape == (0, 10, 12)
    assert part.edge_type.shape == (0, 11)
    assert areas(part)[0] == pytest.approx(196 * PI, rel=1e-6)
    assert part.facts.volume == pytest.approx(4 / 3 * PI * 343, rel=1e-9)
    np.testing.assert_allclose(part.face_centroid, 0, atol=1e-6)
    np.testing.assert_allclose(normals(part), points(part), atol=1e-6)  # poles included
    assert (part.facts.seams, part.facts.degenerate) == (1, 2)


def test_a_torus_is_one_face_without_edges():
    part = part_of(BRepPrimAPI_MakeTorus(10.0, 3.0).Shape())
    assert (part.n_faces, part.n_edges, types(part)) == (1, 0, ["torus"])
    assert areas(part)[0] == pytest.approx(120 * PI**2, rel=1e-6)
    assert part.facts.volume == pytest.approx(180 * PI**2, rel=1e-9)
    p = in_mm(part, points(part)[0])
    ring = p * [1, 1, 0] / np.hypot(p[..., 0], p[..., 1])[..., None] * 10
    np.testing.assert_allclose(normals(part)[0], (p - ring) / 3, atol=1e-6)
    assert (part.facts.seams, part.facts.degenerate) == (2, 0)
    np.testing.assert_allclose(part.facts.box_max, (13, 13, 3), rtol=1e-9)


def test_a_step_has_one_concave_edge():
    """An L: five corners that stand out, one that falls in."""
    outline = [(0, 0), (20, 0), (20, 10), (10, 10), (10, 20), (0, 20)]
    part = part_of(prism(polygon(outline), 5.0))
    assert part.facts.volume == pytest.approx(1500, rel=1e-12)
    concave = np.flatnonzero(np.array(convexities(part)) == "concave")
    assert len(concave) == 1
    middle = in_mm(part, part.edge_grid[2 * concave[0], :, :3].mean(axis=0))
    np.testing.assert_allclose(middle, [10, 10, 2.5], atol=1e-5)
    angles = part.edge_dihedral[::2].copy()
    assert angles[concave[0]] == pytest.approx(-PI / 2, abs=1e-6)
    np.testing.assert_allclose(np.delete(angles, concave), PI / 2, atol=1e-6)


@pytest.mark.parametrize("degrees", [30, 60, 120, 150])
def test_the_dihedral_angle_of_a_wedge(degrees):
    """Between outward normals: a wedge of 30 degrees turns them by 150."""
    tip = np.radians(degrees)
    corners = [(0, 0), (10, 0), (10 * np.cos(tip), 10 * np.sin(tip))]
    part = part_of(prism(polygon(corners), 5.0))
    along = np.linalg.norm(in_mm(part, part.edge_grid[::2, :, :3])[..., :2], axis=-1).max(axis=1)
    ridge = int(np.argmin(along))
    assert part.edge_dihedral[2 * ridge] == pytest.approx(PI - tip, abs=1e-6)


def test_a_rounded_edge_meets_its_neighbours_smoothly():
    """A box of 20 with one edge rounded by 4: the volume loses (1 - pi / 4) 16 x 20."""
    shape = box(20, 20, 20)
    fillet = BRepFilletAPI_MakeFillet(shape)
    fillet.Add(4.0, TopoDS.Edge(TopExp_Explorer(shape, TopAbs_EDGE).Current()))
    part = part_of(fillet.Shape())
    assert part.facts.volume == pytest.approx(8000 - (1 - PI / 4) * 16 * 20, rel=1e-9)
    assert sorted(convexities(part)) == ["convex"] * 13 + ["smooth"] * 2
    round_face = types(part).index("cylinder")
    assert areas(part)[round_face] == pytest.approx(2 * PI * 20, rel=1e-6)
    smooth = np.flatnonzero(np.array(convexities(part)) == "smooth")
    np.testing.assert_allclose(part.edge_dihedral[2 * smooth], 0, atol=1e-6)


def test_a_slanted_cut_through_a_cylinder():
    """Radius 5, cut at z = 20 + x: the wall's outline is a sine in (u, v), from 15 to 25 high."""
    wedge = _block([(-6, 14), (6, 26), (6, 40), (-6, 40)])
    part = part_of(BRepAlgoAPI_Cut(BRepPrimAPI_MakeCylinder(5.0, 30.0).Shape(), wedge).Shape())
    side = types(part).index("cylinder")
    z = in_mm(part, points(part)[side])[..., 2]
    assert (z.min(), z.max()) == (pytest.approx(0, abs=1e-4), pytest.approx(25, abs=1e-4))
    assert part.facts.volume == pytest.approx(25 * PI * 20, rel=1e-7)
    assert areas(part)[side] == pytest.approx(10 * PI * 20, rel=1e-6)
    lid = int(np.argmax(part.face_centroid[:, 2]))
    assert areas(part)[lid] == pytest.approx(25 * PI * np.sqrt(2), rel=1e-6)
    around = in_mm(part, points(part)[side])
    below = z < 20 + around[..., 0] - 1e-3
    inner = (z > 1e-3) & below
    inner[[0, -1]] = False  # the seam is on the outline
    mask = part.face_grid[side, ..., 6] == 1
    sure = np.abs(z - 20 - around[..., 0]) > 1e-3
    np.testing.assert_array_equal(mask[sure], inner[sure])
    ellipse = edge_types(part).index("closed+elliptical")
    # The perimeter of an ellipse with half axes 5 sqrt(2) and 5.
    t = np.linspace(0, 2 * PI, 200_001)
    fine = np.hypot(5 * np.sqrt(2) * np.sin(t), 5 * np.cos(t))
    assert lengths(part)[ellipse] == pytest.approx(np.trapezoid(fine, t), rel=1e-7)


def test_an_upright_edge_whose_ends_are_one_vertex_in_two_places_is_not_closed():
    part = part_of(
        prism(face_of([arc((-5, 0, 0), (0, 5, 0), (5, 0, 0)), line((5, 0, 0), (-5, 0, 0))]), 4)
    )
    assert sorted(edge_types(part)) == ["circular"] * 2 + ["straight"] * 4


def _block(corners):
    """A block over corners in the plane y = -6, 12 deep."""
    at = [(x, -6, z) for x, z in corners]
    face = face_of([line(a, b) for a, b in zip(at, at[1:] + at[:1], strict=True)])
    return BRepPrimAPI_MakePrism(face, gp_Vec(0, 12, 0)).Shape()


def _bezier(*corners):
    array = Array1_gp_Pnt(1, len(corners))
    for i, (x, z) in enumerate(corners, 1):
        array.SetValue(i, gp_Pnt(x, 0, z))
    return Geom_BezierCurve(array)


def _half_ellipse():
    plane = gp_Ax2(gp_Pnt(0, 0, 0), gp_Dir(0, -1, 0), gp_Dir(0, 0, 1))
    return Geom_TrimmedCurve(Geom_Ellipse(plane, 6.0, 3.0), 0.0, PI)


# An arc of radius 5 about (-4, 0), from one point of the axis to another 6 higher: the square of
# sqrt(25 - z^2) - 4, summed over z.
LEMON = PI * (41 * 6 - 18 - 8 * (12 + 25 * np.arcsin(0.6)))
ECCENTRIC = np.sqrt(1 - 9 / 36)

TOUCHING = {
    "ball": (
        [arc((0, 0, -5), (5, 0, 0), (0, 0, 5)), line((0, 0, 5), (0, 0, -5))],
        500 / 3 * PI,
        100 * PI,
    ),
    "lemon": ([arc((0, 0, -3), (1, 0, 0), (0, 0, 3)), line((0, 0, 3), (0, 0, -3))], LEMON, None),
    "ellipsoid": (
        [_half_ellipse(), line((0, 0, -6), (0, 0, 6))],
        4 / 3 * PI * 6 * 9,
        2 * PI * 9 * (1 + 6 / (3 * ECCENTRIC) * np.arcsin(ECCENTRIC)),
    ),
    # x = 15 t (1 - t), dz = 30 t (1 - t) dt, and the integral of (t (1 - t))^3 is 1 / 140.
    "drop": (
        [_bezier((0, 0), (5, 0), (5, 5), (0, 5)), line((0, 0, 5), (0, 0, 0))],
        6750 / 140 * PI,
        None,
    ),
    # A half disc about (2, 0) of radius 2 that touches the axis in its corner: Pappus.
    "dimple": (
        [arc((0, 0, 0), (2, 0, 2), (4, 0, 0)), line((4, 0, 0), (0, 0, 0))],
        2 * PI * 2 * (PI * 4 / 2),
        2 * PI * 2 * (PI * 2) + 16 * PI,
    ),
}


@pytest.mark.parametrize("share", [1.0, 0.25])
@pytest.mark.parametrize("name", TOUCHING)
def test_what_is_turned_about_an_axis_it_touches(name, share):
    """Poles have no width: their cells are empty and their normals are those nearby."""
    curves, volume, area = TOUCHING[name]
    part = part_of(transformed(revolved(curves, 2 * PI * share), motion(1)))
    assert part.facts.volume == pytest.approx(volume * share, rel=1e-6)
    if area and share == 1:
        assert part.facts.area == pytest.approx(area, rel=1e-6)
    np.testing.assert_allclose(np.linalg.norm(normals(part), axis=-1), 1, atol=1e-6)
    assert part.facts.degenerate >= 1


def test_no_normal_points_inward():
    """A bell: cone, torus, sphere and plane; a step outward from any sample leaves the solid."""
    top = (6, 0, 12)
    profile = [
        line((0, 0, 0), (10, 0, 0)),
        line((10, 0, 0), (8, 0, 5)),
        arc((8, 0, 5), (6.5, 0, 5.5), (6, 0, 7)),
        line((6, 0, 7), top),
        arc(top, (6 * np.sqrt(0.5), 0, 12 + 6 * np.sqrt(0.5)), (0, 0, 18)),
        line((0, 0, 18), (0, 0, 0)),
    ]
    shape = revolved(profile)
    part = part_of(shape)
    judge = BRepClass3d_SolidClassifier(shape)
    for face in range(part.n_faces):
        inside = part.face_grid[face, ..., 6] == 1
        p = in_mm(part, points(part)[face][inside])
        n = normals(part)[face][inside]
        for at, state in ((p + 0.01 * n, TopAbs_OUT), (p - 0.01 * n, TopAbs_IN)):
            for x, y, z in at[::7]:
                judge.Perform(gp_Pnt(float(x), float(y), float(z)), 1e-6)
                assert judge.State() == state


def plate_below(top):
    """A plate 5 thick between a curve from (0, 0) to (100, 0) and the line y = -20."""
    corners = [(100, 0, 0), (100, -20, 0), (0, -20, 0), (0, 0, 0)]
    return prism(face_of([top, *map(line, corners, corners[1:])]), 5.0)


@pytest.mark.parametrize("gap", [0.1, 0.005])
def test_the_box_finds_a_peak_between_close_knots(gap):
    """All poles are at y = 0 but the middle one, whose cubic is 2 / 3 high at its own knot."""
    knots = [0, 0.41 - 2 * gap, 0.41 - gap, 0.41, 0.41 + gap, 0.41 + 2 * gap, 1]
    flat = np.repeat(knots, [4, 1, 1, 1, 1, 1, 4])
    # At the knots' means x runs evenly, from 0 to 100.
    poles = [(100 * flat[i + 1 : i + 4].mean(), 30 if i == 4 else 0) for i in range(9)]
    part = part_of(plate_below(spline(poles, knots, [4, 1, 1, 1, 1, 1, 4], 3)))
    assert part.facts.box_min == pytest.approx((0, -20, 0), abs=1e-9)
    assert part.facts.box_max == pytest.approx((100, 20, 5), rel=1e-9)


def test_the_box_of_a_kinked_spline_ends_at_its_kink():
    """Where it has two slopes, neither may be taken for the other side's."""
    zigzag = spline([(0, 0), (40, 20), (50, 0), (100, 0)], [0, 0.2, 0.5, 1], [2, 1, 1, 2], 1)
    part = part_of(plate_below(zigzag))
    assert part.facts.box_max == pytest.approx((100, 20, 5), rel=1e-9)


def _arc_length(speed, first, last):
    t = np.linspace(first, last, 2_000_001)
    return np.trapezoid(speed(t), t)


@pytest.mark.parametrize("focal", [1.0, 0.1])
def test_the_length_of_a_parabola(focal):
    """From y = -20 to 20, sharp at its vertex: x = y^2 / 4 f."""
    axes = gp_Ax2(gp_Pnt(0, 0, 0), gp_Dir(0, 0, 1))
    curve = Geom_TrimmedCurve(Geom_Parabola(axes, focal), -20, 20)
    x = 400 / (4 * focal)
    part = part_of(prism(face_of([curve, line((x, 20, 0), (x, -20, 0))]), 10.0))
    true = _arc_length(lambda t: np.hypot(t / (2 * focal), 1), -20, 20)
    at = [i for i, name in enumerate(edge_types(part)) if name == "parabolic"]
    np.testing.assert_allclose(lengths(part)[at], true, rtol=1e-6)
    assert part.facts.volume == pytest.approx(2 / 3 * x * 40 * 10, rel=1e-9)
    assert part.facts.box_min == pytest.approx((0, -20, 0), abs=1e-9)


def test_the_length_and_the_box_of_a_hyperbola():
    """Half axes 5 and 3, up to where it has come to 5 cosh 3."""
    axes = gp_Ax2(gp_Pnt(0, 0, 0), gp_Dir(0, 0, 1), gp_Dir(1, 0, 0))
    curve = Geom_TrimmedCurve(Geom_Hyperbola(axes, 5, 3), -3, 2.8)
    low, high = ((5 * np.cosh(t), 3 * np.sinh(t), 0) for t in (-3, 2.8))
    part = part_of(prism(face_of([curve, line(high, low)]), 10.0))
    true = _arc_length(lambda t: np.hypot(5 * np.sinh(t), 3 * np.cosh(t)), -3, 2.8)
    at = [i for i, name in enumerate(edge_types(part)) if name == "hyperbolic"]
    np.testing.assert_allclose(lengths(part)[at], true, rtol=1e-6)
    assert part.facts.box_min == pytest.approx((5, low[1], 0), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("offset", [1.0, -1.0])
def test_a_disc_inside_an_offset_of_a_circle(offset):
    axes = gp_Ax2(gp_Pnt(0, 0, 0), gp_Dir(0, 0, 1))
    rim = Geom_OffsetCurve(Geom_Circle(axes, 5.0), offset, gp_Dir(0, 0, 1))
    part = part_of(prism(face_of([rim]), 3.0))
    radius = 5 + offset
    assert sorted(types(part)) == ["extrusion", "plane", "plane"]
    for face, kind in enumerate(types(part)):
        true = PI * radius**2 if kind == "plane" else 2 * PI * radius * 3
        assert areas(part)[face] == pytest.approx(true, rel=1e-6)
    np.testing.assert_allclose(lengths(part), 2 * PI * radius, rtol=1e-6)
    assert part.facts.volume == pytest.approx(PI * radius**2 * 3, rel=1e-6)
    np.testing.assert_allclose(part.facts.box_max, (radius, radius, 3), rtol=1e-4)


def _crescent(as_curve):
    """Between half circles of radius 10 and 6 that touch at (10, 0): material between them."""
    outer, inner = (
        arc((10, 0, 0), (0, 10, 0), (-10, 0, 0)),
        arc((-2, 0, 0), (4, 6, 0), (10, 0, 0)),
    )
    return face_of([as_curve(outer), line((-10, 0, 0), (-2, 0, 0)), as_curve(inner)])


def _cleft(as_curve):
    """A block with a slit between a line and a circle of radius 6 that touch at (0, 0)."""
    s = 6 * np.sqrt(0.5)
    roof = as_curve(arc((0, 0, 0), (-s, 6 - s, 0), (-6, 6, 0)))
    corners = [(-6, 6, 0), (10, 6, 0), (10, -10, 0), (-10, -10, 0), (-10, 0, 0), (0, 0, 0)]
    return face_of([roof, *map(line, corners, corners[1:])])


@pytest.mark.parametrize("as_curve", [lambda curve: curve, GeomConvert.CurveToBSplineCurve_s])
@pytest.mark.parametrize(("outline", "kind"), [(_crescent, "convex"), (_cleft, "concave")])
def test_a_knife_edge_is_convex_and_a_cleft_concave_however_they_lie(outline, kind, as_curve):
    shape = prism(outline(as_curve), 5.0)
    for seed in range(8):
        part = part_of(transformed(shape, motion(seed)))
        (knife,) = np.flatnonzero(np.abs(part.edge_dihedral[::2]) > PI - 0.01)
        assert convexities(part)[knife] == kind
        sign = 1 if kind == "convex" else -1
        assert part.edge_dihedral[2 * knife] == pytest.approx(sign * PI, abs=1e-5)
