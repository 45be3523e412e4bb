"""What a rigid motion, a unit and a mirror change, and what they must not."""

import numpy as np
import pytest
from OCP.BRepAlgoAPI import BRepAlgoAPI_Cut, BRepAlgoAPI_Fuse
from OCP.BRepPrimAPI import (
    BRepPrimAPI_MakeCone,
    BRepPrimAPI_MakeCylinder,
    BRepPrimAPI_MakeSphere,
    BRepPrimAPI_MakeTorus,
)
from OCP.gp import gp_Ax2, gp_Dir, gp_Pnt
from OCP.Interface import Interface_Static

from brepfind.cad.extract import extract_file
from brepfind.cad.signature import SIGNATURE_RTOL
from brepfind.graphs.twins import twin_groups
from tests.cad.shapes import (
    CONFIG,
    box,
    in_mm,
    mirror,
    motion,
    part_of,
    resize,
    shift,
    transformed,
    write_step,
)

FIELDS = ("face_type", "face_loops", "face_rational", "edge_src", "edge_dst", "edge_type",
          "edge_convexity")  # fmt: skip
X = (1, 0, 0)
MEASURES = ("face_area", "face_centroid", "face_grid", "edge_length", "edge_dihedral", "edge_grid")


def cut(shape, *tools):
    for tool in tools:
        shape = BRepAlgoAPI_Cut(shape, tool).Shape()
    return shape


def fuse(shape, *others):
    for other in others:
        shape = BRepAlgoAPI_Fuse(shape, other).Shape()
    return shape


def rod(radius, length, at, along=(0, 0, 1)):
    axes = gp_Ax2(gp_Pnt(*map(float, at)), gp_Dir(*map(float, along)))
    return BRepPrimAPI_MakeCylinder(axes, radius, length).Shape()


def mixed():
    """A block with a boss, a cone, a ball, half a ring and a drilled hole; no two sides alike."""
    block = box(40, 30, 10)
    cone = BRepPrimAPI_MakeCone(gp_Ax2(gp_Pnt(30, 22, 10), gp_Dir(0, 0, 1)), 5.0, 2.0, 8.0)
    ball = BRepPrimAPI_MakeSphere(gp_Pnt(8, 22, 10), 5.0)
    ring = BRepPrimAPI_MakeTorus(gp_Ax2(gp_Pnt(30, 8, 10), gp_Dir(0, 0, 1)), 5.0, 1.5)
    solid = fuse(block, rod(4, 12, (10, 8, 10)), cone.Shape(), ball.Shape(), ring.Shape())
    return cut(solid, rod(2, 40, (18, -1, 5), (0, 1, 0)))


def enclosure():
    """An open box with a window in one wall and slots in the next: only the whole is handed."""
    shell = cut(box(60, 40, 25), box(54, 34, 25, at=(3, 3, 3)))
    window = rod(5, 10, (55, 20, 14), (1, 0, 0))
    return cut(shell, window, *(box(4, 10, 12, at=(x, -5, 8)) for x in (18, 28, 38)))


def pinwheel():
    """A plate turned into itself by half a turn, with slots that lean one way."""
    slots = [box(6, 20, 4, at=(6, 15, 6)), box(6, 20, 4, at=(48, -5, 6))]
    return cut(box(60, 30, 10), *slots)


def windmill():
    """A square plate with four shallow slots that lean one way: no axis in its plane is its own."""
    corners = ((6, 25, 6, 20), (25, 28, 20, 6), (28, -5, 6, 20), (-5, 6, 20, 6))
    return cut(box(40, 40, 8), *(box(dx, dy, 4, at=(x, y, 5)) for x, y, dx, dy in corners))


@pytest.fixture(scope="module")
def original():
    return part_of(mixed())


def same(one, other, **tolerance):
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for name in MEASURES:
        first, second = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose(first, second, err_msg=name, **tolerance)


def twins(*parts):
    return twin_groups(np.stack([part.facts.signature for part in parts])).tolist()


def test_the_part_has_every_kind_of_face(original):
    assert set(original.face_type) >= {0, 1, 2, 3, 4}
    assert set(original.edge_convexity) == {0, 1}
    assert original.face_loops.max() > 2


def test_a_move_changes_nothing_but_the_box(original):
    moved = part_of(transformed(mixed(), shift(1000.0, -2000.0, 500.0)))
    same(original, moved, atol=2e-6)
    np.testing.assert_allclose(
        np.subtract(moved.facts.box_min, original.facts.box_min), [1000, -2000, 500], atol=1e-6
    )
    assert twins(original, moved) == [0, 0]


def test_a_turned_part_is_the_turned_part(original):
    """The box changes, so points are compared in mm, and vectors after the same turn."""
    transform = motion(3)
    part = part_of(transformed(mixed(), transform))
    turn = np.array([[transform.Value(i, j) for j in (1, 2, 3)] for i in (1, 2, 3)])
    move = np.array([transform.Value(i, 4) for i in (1, 2, 3)])
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(original, name), getattr(part, name), err_msg=name)
    for grid in ("face_grid", "edge_grid"):
        a, b = getattr(original, grid).astype(float), getattr(part, grid).astype(float)
        np.testing.assert_allclose(
            in_mm(part, b[..., :3]), in_mm(original, a[..., :3]) @ turn.T + move, atol=1e-4
        )
        for at in range(3, a.shape[-1] - 2, 3):
            vectors = slice(at, at + 3)
            np.testing.assert_allclose(b[..., vectors], a[..., vectors] @ turn.T, atol=1e-5)
    np.testing.assert_array_equal(part.face_grid[..., 6], original.face_grid[..., 6])
    np.testing.assert_allclose(part.edge_dihedral, original.edge_dihedral, atol=1e-5)
    assert part.facts.volume == pytest.approx(original.facts.volume, rel=1e-9)
    assert part.facts.area == pytest.approx(original.facts.area, rel=1e-9)


@pytest.mark.parametrize("unit", ["MM", "CM", "M", "INCH", "FT"])
def test_a_unit_changes_nothing_but_its_name(unit, tmp_path):
    """Whatever an earlier reader left in the process's settings."""
    (reference,) = extract_file(write_step(mixed(), tmp_path / "mm.step"), CONFIG)
    path = write_step(mixed(), tmp_path / "other.step", unit)
    Interface_Static.SetCVal_s("xstep.cascade.unit", "M")
    (part,) = extract_file(path, CONFIG)
    same(reference, part, atol=5e-6)
    names = {"MM": "mm", "CM": "cm", "M": "m", "INCH": "inch", "FT": "foot"}
    assert part.facts.unit == names[unit]
    np.testing.assert_allclose(part.facts.box_max, reference.facts.box_max, rtol=1e-6)
    assert twins(reference, part) == [0, 0]


@pytest.mark.parametrize("shape", [mixed, enclosure, pinwheel, windmill])
def test_the_signature_tells_copies_from_images_and_sizes(shape):
    part = part_of(shape())
    copies = [part_of(transformed(shape(), motion(seed))) for seed in (1, 2)]
    image = part_of(transformed(shape(), mirror()))
    again = part_of(transformed(transformed(shape(), mirror()), motion(5)))
    larger = part_of(transformed(shape(), resize(1.0005)))
    assert twins(part, *copies, image, again, larger) == [0, 0, 0, 1, 1, 2]


def test_each_kind_of_handedness_is_needed():
    """The enclosure's neighbours see no hand, and the pinwheel's whole has none but in x y z.

    The windmill's whole has none at all: its principal axes are not its own.
    """
    tolerance = SIGNATURE_RTOL * 10
    walls, wheel, mill = (
        part_of(shape()).facts.signature for shape in (enclosure, pinwheel, windmill)
    )
    assert np.abs(mill[9:]).max() < tolerance * mill[1] < np.abs(mill[7:9]).max()
    assert np.abs(walls[7:9]).max() < tolerance * walls[1] < np.abs(walls[9:]).max()
    assert np.abs(wheel[10]) < tolerance * wheel[1] < np.abs(wheel[9])


@pytest.mark.parametrize(
    "shape",
    [
        lambda: box(10, 20, 30),
        lambda: box(10, 10, 10),
        lambda: cut(box(60, 40, 25), box(54, 34, 25, at=(3, 3, 3)), rod(5, 9, (53, 20, 14), X)),
        lambda: BRepPrimAPI_MakeTorus(10.0, 3.0).Shape(),
        lambda: fuse(rod(5, 30, (0, 0, 0)), rod(2, 14, (-7, 0, 8), X)),
    ],
)
def test_a_part_that_equals_its_image_is_its_twin(shape):
    """Pseudo-scalars are 0 where there is a mirror plane, so none keeps such twins apart."""
    part = part_of(shape())
    image = part_of(transformed(transformed(shape(), mirror()), motion(4)))
    assert np.abs(part.facts.signature[7:]).max() < 1e-9 * part.facts.signature[1]
    assert twins(part, image) == [0, 0]


def test_a_thin_shell_is_known_by_its_size_not_by_its_little_volume():
    """Loose outlines cost 1e-5 of the size; of a shell's volume that is far more."""
    shell = cut(box(100, 80, 60), box(99, 79, 60, at=(0.5, 0.5, 0.5)))
    found = part_of(shell).facts.signature
    other = found.copy()
    other[0] += 0.5 * SIGNATURE_RTOL * found[1]
    assert abs(other[0] / found[0] - 1) > SIGNATURE_RTOL
    assert twin_groups(np.stack([found, other])).tolist() == [0, 0]
