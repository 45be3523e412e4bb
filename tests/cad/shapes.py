"""Shapes made with Open CASCADE, whose sizes are known by hand, and what becomes of them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from OCP.BRepBuilderAPI import (
    BRepBuilderAPI_MakeEdge,
    BRepBuilderAPI_MakeFace,
    BRepBuilderAPI_MakeWire,
    BRepBuilderAPI_Transform,
)
from OCP.BRepPrimAPI import BRepPrimAPI_MakeBox, BRepPrimAPI_MakePrism, BRepPrimAPI_MakeRevol
from OCP.collections import Array1_double, Array1_gp_Pnt, Array1_int
from OCP.GC import GC_MakeArcOfCircle, GC_MakeSegment
from OCP.Geom import Geom_BSplineCurve
from OCP.gp import gp_Ax1, gp_Ax2, gp_Dir, gp_Pnt, gp_Trsf, gp_Vec
from OCP.IFSelect import IFSelect_RetDone
from OCP.Interface import Interface_Static
from OCP.STEPControl import STEPControl_AsIs, STEPControl_Writer
from OCP.TopoDS import TopoDS_Face, TopoDS_Shape

from brepfind.cad.arrays import CONVEXITIES, FACE_TYPES, PartArrays
from brepfind.cad.extract import ExtractConfig, extract_shape

CONFIG = ExtractConfig(
    grid=10,
    max_faces=1000,
    multi_solid="merge",
    timeout_s=60.0,
    memory_gb=4.0,
    max_reject_rate=1.0,
    shards=1,
)


def part_of(shape: TopoDS_Shape, **settings: object) -> PartArrays:
    """The one part of a shape."""
    (part,) = extract_shape(shape, "mm", CONFIG.model_copy(update=settings))
    return part


def scale_of(part: PartArrays) -> float:
    """Millimetres per box unit."""
    return float(np.subtract(part.facts.box_max, part.facts.box_min).max()) / 2


def in_mm(part: PartArrays, points: np.ndarray) -> np.ndarray:
    """Points in box units (.., 3), back where the file has them."""
    return points * scale_of(part) + np.add(part.facts.box_min, part.facts.box_max) / 2


def types(part: PartArrays) -> list[str]:
    return [FACE_TYPES[code] for code in part.face_type]


def convexities(part: PartArrays) -> list[str]:
    """Of each edge once."""
    return [CONVEXITIES[code] for code in part.edge_convexity[::2]]


def box(x: float, y: float, z: float, at: Sequence[float] = (0, 0, 0)) -> TopoDS_Shape:
    return BRepPrimAPI_MakeBox(gp_Pnt(*map(float, at)), x, y, z).Shape()


def line(a: Sequence[float], b: Sequence[float]) -> object:
    return GC_MakeSegment(gp_Pnt(*map(float, a)), gp_Pnt(*map(float, b))).Value()


def arc(a: Sequence[float], middle: Sequence[float], b: Sequence[float]) -> object:
    ends = (gp_Pnt(*map(float, p)) for p in (a, middle, b))
    return GC_MakeArcOfCircle(*ends).Value()


def spline(
    poles: Sequence[Sequence[float]], knots: Sequence[float], times: Sequence[int], degree: int
) -> Geom_BSplineCurve:
    """A B-spline curve through the plane z = 0, from poles (x, y) and knots and their counts."""
    corners = Array1_gp_Pnt(1, len(poles))
    for i, (x, y) in enumerate(poles, 1):
        corners.SetValue(i, gp_Pnt(float(x), float(y), 0))
    places, counts = Array1_double(1, len(knots)), Array1_int(1, len(knots))
    for i, (knot, count) in enumerate(zip(knots, times, strict=True), 1):
        places.SetValue(i, knot)
        counts.SetValue(i, count)
    return Geom_BSplineCurve(corners, places, counts, degree, False)


def face_of(curves: Sequence[object]) -> TopoDS_Face:
    """The flat face inside curves that follow each other."""
    wire = BRepBuilderAPI_MakeWire()
    for curve in curves:
        wire.Add(BRepBuilderAPI_MakeEdge(curve).Edge())
    return BRepBuilderAPI_MakeFace(wire.Wire(), True).Face()


def polygon(points: Sequence[Sequence[float]]) -> TopoDS_Face:
    """A flat face with corners (x, y) at z = 0."""
    corners = [(*point, 0) for point in points]
    return face_of([line(a, b) for a, b in zip(corners, corners[1:] + corners[:1], strict=True)])


def prism(face: TopoDS_Face, height: float) -> TopoDS_Shape:
    return BRepPrimAPI_MakePrism(face, gp_Vec(0, 0, height)).Shape()


def revolved(curves: Sequence[object], angle: float = 2 * np.pi) -> TopoDS_Shape:
    """What lies between curves in the plane y = 0, turned about the z axis."""
    axis = gp_Ax1(gp_Pnt(0, 0, 0), gp_Dir(0, 0, 1))
    return BRepPrimAPI_MakeRevol(face_of(curves), axis, angle).Shape()


def transformed(shape: TopoDS_Shape, transform: gp_Trsf) -> TopoDS_Shape:
    return BRepBuilderAPI_Transform(shape, transform, True).Shape()


def motion(seed: int = 0) -> gp_Trsf:
    """A rotation about a slanted axis, then a move by up to 300 mm."""
    rng = np.random.default_rng(seed)
    direction = gp_Dir(*(float(x) for x in rng.normal(size=3)))
    turn, move = gp_Trsf(), gp_Trsf()
    turn.SetRotation(gp_Ax1(gp_Pnt(0, 0, 0), direction), float(rng.uniform(0.3, 2.5)))
    move.SetTranslation(gp_Vec(*(float(x) for x in rng.uniform(-300, 300, size=3))))
    return move * turn


def shift(x: float, y: float, z: float) -> gp_Trsf:
    move = gp_Trsf()
    move.SetTranslation(gp_Vec(x, y, z))
    return move


def mirror() -> gp_Trsf:
    image = gp_Trsf()
    image.SetMirror(gp_Ax2(gp_Pnt(0, 0, 0), gp_Dir(0.3, 0.5, 0.8)))
    return image


def resize(factor: float) -> gp_Trsf:
    larger = gp_Trsf()
    larger.SetScale(gp_Pnt(0, 0, 0), factor)
    return larger


def write_step(shape: TopoDS_Shape, path: Path, unit: str = "MM") -> Path:
    Interface_Static.SetCVal_s("write.step.unit", unit)
    writer = STEPControl_Writer()
    assert writer.Transfer(shape, STEPControl_AsIs) == IFSelect_RetDone
    writer.Write(str(path))
    Interface_Static.SetCVal_s("write.step.unit", "MM")
    return path
