"""Caps of surfaces of revolution that a file bounds by a single ring.

STEP lets a face that ends in a pole, where its surface meets the axis it was turned about, be told
by its other end alone: one ring of edges, its inside on the left. Open CASCADE adds the pole and
the seam where the pole lies at an end of the surface's parameters, as on a sphere; where the turned
curve is a whole circle or ellipse, of which the face takes an arc, it leaves the face open, and its
own healing does not help. Here such faces are made anew, from the ring to the next pole, and sewn
to their neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from OCP.BRep import BRep_Tool
from OCP.BRepAdaptor import BRepAdaptor_Curve2d
from OCP.BRepBuilderAPI import (
    BRepBuilderAPI_MakeFace,
    BRepBuilderAPI_MakeSolid,
    BRepBuilderAPI_Sewing,
)
from OCP.BRepLib import BRepLib
from OCP.BRepTools import BRepTools, BRepTools_ReShape
from OCP.Geom import Geom_RectangularTrimmedSurface, Geom_SurfaceOfRevolution
from OCP.TopAbs import (
    TopAbs_EDGE,
    TopAbs_FACE,
    TopAbs_FORWARD,
    TopAbs_REVERSED,
    TopAbs_SHELL,
    TopAbs_SOLID,
)
from OCP.TopExp import TopExp_Explorer
from OCP.TopoDS import TopoDS, TopoDS_Face, TopoDS_Shape

_STEPS = 720  # along the turned curve, in search of its poles
_FLAT = 1e-6  # of the period: a ring runs at one height
_SEWN = 1e-5  # mm


def close_caps(shape: TopoDS_Shape) -> TopoDS_Shape:
    """The shape with its open caps closed; itself where it has none."""
    exchange = BRepTools_ReShape()
    found = False
    for solid in _each(shape, TopAbs_SOLID):
        faces = [TopoDS.Face(face) for face in _each(solid, TopAbs_FACE)]
        closed = [_closed(face) or face for face in faces]
        if all(new is old for new, old in zip(closed, faces, strict=True)):
            continue
        sewing = BRepBuilderAPI_Sewing(_SEWN)
        for face in closed:
            sewing.Add(face)
        sewing.Perform()
        sewn = sewing.SewedShape()
        if sewn.IsNull() or sewn.ShapeType() != TopAbs_SHELL:
            continue  # it stays invalid, and is refused as such
        whole = BRepBuilderAPI_MakeSolid(TopoDS.Shell(sewn)).Solid()
        BRepLib.OrientClosedSolid_s(whole)
        exchange.Replace(solid, whole)
        found = True
    return exchange.Apply(shape) if found else shape


def _each(shape: TopoDS_Shape, kind: object) -> Iterator[TopoDS_Shape]:
    walk = TopExp_Explorer(shape, kind)
    while walk.More():
        yield walk.Current()
        walk.Next()


def _closed(face: TopoDS_Face) -> TopoDS_Face | None:
    """The cap that an open face stands for, or None where it is none."""
    surface = BRep_Tool.Surface_s(face)
    if not (isinstance(surface, Geom_SurfaceOfRevolution) and surface.IsVPeriodic()):
        return None
    period = surface.VPeriod()
    _, _, low, high = BRepTools.UVBounds_s(face)
    turn = _turn(face)
    if not (high - low < _FLAT * period and abs(abs(turn) - 2 * np.pi) < _FLAT):
        return None
    # Seen in (u, v) the inside is on the left: above a ring that runs towards greater u.
    above = (poles - low) % period if (poles := _poles(surface)).size else poles
    above = above[(above > _FLAT * period) & (above < (1 - _FLAT) * period)]
    if not above.size:
        return None
    span = (low, low + above.min()) if turn > 0 else (low + above.max() - period, low)
    cap = Geom_RectangularTrimmedSurface(surface, float(span[0]), float(span[1]), False, True)
    made = BRepBuilderAPI_MakeFace(cap, _SEWN).Face()
    return made if face.Orientation() == TopAbs_FORWARD else TopoDS.Face(made.Reversed())


def _turn(face: TopoDS_Face) -> float:
    """How far u goes along the outline of a face taken forward, once around."""
    ahead = TopoDS.Face(face.Oriented(TopAbs_FORWARD))
    total = 0.0
    for edge in _each(ahead, TopAbs_EDGE):
        curve = BRepAdaptor_Curve2d(TopoDS.Edge(edge), ahead)
        rise = curve.Value(curve.LastParameter()).X() - curve.Value(curve.FirstParameter()).X()
        total += -rise if edge.Orientation() == TopAbs_REVERSED else rise
    return total


def _poles(surface: Geom_SurfaceOfRevolution) -> np.ndarray:
    """Parameters in v at which the turned curve crosses the axis."""
    curve, axis = surface.BasisCurve(), surface.Axis()
    foot = np.array([getattr(axis.Location(), name)() for name in "XYZ"])
    along = np.array([getattr(axis.Direction(), name)() for name in "XYZ"])

    def arm(v: float) -> np.ndarray:
        at = curve.Value(float(v))
        point = np.array([at.X(), at.Y(), at.Z()]) - foot
        return point - point @ along * along

    steps = np.linspace(curve.FirstParameter(), curve.LastParameter(), _STEPS + 1)
    arms = np.array([arm(v) for v in steps])
    widest = arms[np.argmax(np.linalg.norm(arms, axis=1))]
    side = arms @ widest
    found = []
    for k in np.flatnonzero(side[:-1] * side[1:] <= 0):
        low, high = steps[k], steps[k + 1]
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if arm(middle) @ widest * side[k] > 0 else (low, middle)
        if np.linalg.norm(arm(high)) < 1e-9 * np.linalg.norm(widest):
            found.append(high)
    return np.array(found)
