"""A STEP file as triangles, to be looked at: never for measuring."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from OCP.BRep import BRep_Tool
from OCP.BRepAdaptor import BRepAdaptor_Surface
from OCP.BRepMesh import BRepMesh_IncrementalMesh
from OCP.GeomAbs import GeomAbs_SurfaceType
from OCP.TopAbs import TopAbs_EDGE, TopAbs_FACE, TopAbs_Orientation, TopAbs_SOLID
from OCP.TopExp import TopExp_Explorer
from OCP.TopLoc import TopLoc_Location
from OCP.TopoDS import TopoDS, TopoDS_Face, TopoDS_Shape

from brepfind.cad import reading
from brepfind.cad.arrays import FACE_TYPES
from brepfind.cad.extract import ExtractConfig
from brepfind.errors import RejectedPart

_DEFLECTION = 0.002  # of the longest side of the box: a tenth of a pixel in a picture
_ANGLE = 0.3  # radians between neighbouring triangles

_TYPE_NAMES = {
    GeomAbs_SurfaceType.GeomAbs_Plane: "plane",
    GeomAbs_SurfaceType.GeomAbs_Cylinder: "cylinder",
    GeomAbs_SurfaceType.GeomAbs_Cone: "cone",
    GeomAbs_SurfaceType.GeomAbs_Sphere: "sphere",
    GeomAbs_SurfaceType.GeomAbs_Torus: "torus",
    GeomAbs_SurfaceType.GeomAbs_SurfaceOfRevolution: "revolution",
    GeomAbs_SurfaceType.GeomAbs_SurfaceOfExtrusion: "extrusion",
    GeomAbs_SurfaceType.GeomAbs_OffsetSurface: "offset",
    GeomAbs_SurfaceType.GeomAbs_OtherSurface: "other",
    GeomAbs_SurfaceType.GeomAbs_BezierSurface: "bezier",
    GeomAbs_SurfaceType.GeomAbs_BSplineSurface: "bspline",
}


@dataclass(frozen=True, slots=True)
class PartMesh:
    """Triangles of the faces of all solids, and the outlines of the faces.

    Attributes:
        points: float64 (P, 3), mm.
        triangles: int64 (T, 3), rows of ``points``, anticlockwise seen from outside.
        triangle_face: int64 (T,), the face each belongs to.
        face_type: uint8 (F,), an index into ``FACE_TYPES``.
        outlines: polylines, rows of ``points``; an edge of two faces is there twice.
    """

    points: NDArray[np.float64]
    triangles: NDArray[np.int64]
    triangle_face: NDArray[np.int64]
    face_type: NDArray[np.uint8]
    outlines: list[NDArray[np.int64]]


def mesh_file(path: Path, config: ExtractConfig) -> list[PartMesh]:
    """The one mesh of a STEP file; call it in a worker, as :func:`~brepfind.cad.pool.work_on` does.

    Args:
        config: not asked; all solids are drawn.

    Raises:
        RejectedPart: if it cannot be read, or no face of a solid could be meshed.
    """
    reading.look(path)
    shape, _ = reading.read(path)
    return [mesh_shape(shape)]


def mesh_shape(shape: TopoDS_Shape) -> PartMesh:
    """The mesh of a shape in memory; it keeps its triangulation."""
    faces = [face for solid in _inside(shape, TopAbs_SOLID) for face in _inside(solid, TopAbs_FACE)]
    # Relative to the size of each edge, so that small features keep their form.
    BRepMesh_IncrementalMesh(shape, _DEFLECTION, True, _ANGLE, False)
    points: list[NDArray[np.float64]] = []
    triangles: list[NDArray[np.int64]] = []
    outlines: list[NDArray[np.int64]] = []
    start = 0
    for shape_face in faces:
        face = TopoDS.Face(shape_face)
        own_points, own_triangles, own_outlines = _mesh_face(face)
        points.append(own_points)
        triangles.append(own_triangles + start)
        outlines += [line + start for line in own_outlines]
        start += len(own_points)
    if not start:
        raise RejectedPart("no_mesh", "Open CASCADE finds no triangles for its solids")
    return PartMesh(
        points=np.concatenate(points),
        triangles=np.concatenate(triangles),
        triangle_face=np.repeat(np.arange(len(faces)), [len(rows) for rows in triangles]),
        face_type=np.array([_type_of(TopoDS.Face(face)) for face in faces], dtype=np.uint8),
        outlines=outlines,
    )


def _mesh_face(
    face: TopoDS_Face,
) -> tuple[NDArray[np.float64], NDArray[np.int64], list[NDArray[np.int64]]]:
    location = TopLoc_Location()
    mesh = BRep_Tool.Triangulation_s(face, location)
    if mesh is None:  # one face that cannot be meshed leaves a hole, and the rest to be seen
        return np.zeros((0, 3)), np.zeros((0, 3), dtype=np.int64), []
    move = location.Transformation()
    nodes = (mesh.Node(k).Transformed(move) for k in range(1, mesh.NbNodes() + 1))
    points = np.array([(node.X(), node.Y(), node.Z()) for node in nodes])
    corners = np.array(
        [
            [mesh.Triangle(k).Value(corner) - 1 for corner in (1, 2, 3)]
            for k in range(1, mesh.NbTriangles() + 1)
        ],
        dtype=np.int64,
    )
    if face.Orientation() == TopAbs_Orientation.TopAbs_REVERSED:
        corners = corners[:, ::-1]
    outlines = []
    for shape_edge in _inside(face, TopAbs_EDGE):
        edge = TopoDS.Edge(shape_edge)
        if BRep_Tool.Degenerated_s(edge) or BRep_Tool.IsClosed_s(edge, face):  # a pole, a seam
            continue
        polygon = BRep_Tool.PolygonOnTriangulation_s(edge, mesh, location)
        if polygon is not None:
            nodes_of_edge = [polygon.Node(k) - 1 for k in range(1, polygon.NbNodes() + 1)]
            outlines.append(np.array(nodes_of_edge, dtype=np.int64))
    return points, corners, outlines


def _type_of(face: TopoDS_Face) -> int:
    return FACE_TYPES.index(_TYPE_NAMES[BRepAdaptor_Surface(face, False).GetType()])


def _inside(shape: TopoDS_Shape, kind: object) -> list[TopoDS_Shape]:
    found = []
    explorer = TopExp_Explorer(shape, kind)
    while explorer.More():
        found.append(explorer.Current())
        explorer.Next()
    return found
