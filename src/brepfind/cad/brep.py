"""The whole boundary representation in one call.

Asking Open CASCADE for one number at a time costs more than computing with it: most of a
microsecond a call, dozens of calls a face. Its own binary format (``BinTools``) gives all
geometry and topology of a shape in one call, in a hundredth of the time the STEP file took to
read. This module reads that format, version 1 (little-endian; integers of 4 bytes, reals of 8).

The format's sections come in this order: locations, curves in the plane, curves in space, polygons
(none asked for), surfaces, triangulations (none), shapes (sub-shapes first), the root.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass, field

import numpy as np
from OCP.BinTools import BinTools, BinTools_FormatVersion
from OCP.TopoDS import TopoDS_Shape

from brepfind.cad import curves as c
from brepfind.cad import surfaces as s
from brepfind.cad.curves import CurveTable
from brepfind.cad.splines import Axis, Floats, axis
from brepfind.cad.surfaces import SurfaceTable

COMPOUND, COMPSOLID, SOLID, SHELL, FACE, WIRE, EDGE, VERTEX = range(8)
FORWARD, REVERSED = 0, 1

# (orientation, shape, location) of a child; shapes and locations count from 1, 0 is identity.
Child = tuple[int, int, int]
# (pcurve, second pcurve or 0, surface, location, first, last) of an edge on a face.
Pcurve = tuple[int, int, int, int, float, float]


@dataclass(slots=True)
class EdgeRecord:
    """Geometry of an edge: its curve in space and its images on surfaces."""

    tolerance: float
    degenerate: bool
    curve: int = 0
    location: int = 0
    first: float = 0.0
    last: float = 0.0
    pcurves: list[Pcurve] = field(default_factory=list)


@dataclass(slots=True)
class Brep:
    """A shape as tables. Rows of geometry count from 0, as the tables do; shapes count from 1.

    Attributes:
        pcurves, curves, surfaces: geometry.
        locations: (3, 4) matrices; row 0 is identity.
        types: what each shape is; index 0 is unused.
        children: the sub-shapes of each shape.
        faces: (surface row, location) by shape.
        edges: edge geometry by shape.
        points: coordinates and tolerance of vertices by shape.
        root: the shape itself.
    """

    pcurves: CurveTable
    curves: CurveTable
    surfaces: SurfaceTable
    locations: list[Floats]
    types: list[int]
    children: list[list[Child]]
    faces: dict[int, tuple[int, int]]
    edges: dict[int, EdgeRecord]
    points: dict[int, tuple[float, float, float, float]]
    root: Child


def dump(shape: TopoDS_Shape) -> bytes:
    """A shape in Open CASCADE's binary format, version 1, without triangles."""
    stream = io.BytesIO()
    version = BinTools_FormatVersion.BinTools_FormatVersion_VERSION_1
    BinTools.Write_s(shape, stream, False, False, version)
    return stream.getvalue()


def load(shape: TopoDS_Shape) -> Brep:
    """A shape as tables."""
    return parse(dump(shape))


_INT = struct.Struct("<i").unpack_from
_INT2 = struct.Struct("<ii").unpack_from
_D2 = struct.Struct("<2d").unpack_from
_D4 = struct.Struct("<4d").unpack_from
_D6 = struct.Struct("<6d").unpack_from
_D12 = struct.Struct("<12d").unpack_from
_VERTEX = struct.Struct("<4d").unpack_from
_EDGE = struct.Struct("<d???").unpack_from
_ON_CURVE = struct.Struct("<iidd").unpack_from
_PCURVE = struct.Struct("<iiidd").unpack_from
_PCURVE2 = struct.Struct("<iibiidd").unpack_from
_FACE = struct.Struct("<?dii").unpack_from
_CHILD = struct.Struct("<bii").unpack_from
_KNOT = np.dtype([("knot", "<f8"), ("times", "<i4")])


def parse(data: bytes) -> Brep:
    """Read Open CASCADE's binary format, version 1."""
    at = data.index(b"Locations ")
    locations, at = _locations(data, at)
    pcurves, curves = CurveTable(2), CurveTable(3)
    at = _curves(data, at, b"Curve2ds ", pcurves)
    at = _curves(data, at, b"Curves ", curves)
    _, at = _heading(data, at, b"Polygon3D ")
    _, at = _heading(data, at, b"PolygonOnTriangulations ")
    count, at = _heading(data, at, b"Surfaces ")
    surfaces = SurfaceTable(CurveTable(3))
    # Rows 0 .. count - 1 are the file's; what they lean on is added behind them.
    trees = []
    for _ in range(count):
        tree, at = _surface(data, at)
        trees.append(tree)
    _add_surfaces(surfaces, trees)
    _, at = _heading(data, at, b"Triangulations ")
    return _shapes(data, at, pcurves, curves, surfaces, locations)


def _heading(data: bytes, at: int, name: bytes) -> tuple[int, int]:
    """The count behind a section's name, and where its content begins."""
    at = data.index(name, at) + len(name)
    end = data.index(b"\n", at)
    return int(data[at:end]), end + 1


def _locations(data: bytes, at: int) -> tuple[list[Floats], int]:
    count, at = _heading(data, at, b"Locations ")
    found = [np.eye(4)[:3]]
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 1:
            found.append(np.array(_D12(data, at)).reshape(3, 4))
            at += 96
            continue
        matrix = np.eye(4)
        (index,) = _INT(data, at)
        at += 4
        while index:
            (power,) = _INT(data, at)
            step = np.vstack([found[index], [0, 0, 0, 1]])
            # The factor applied first, the rightmost one, comes first in the file.
            matrix = np.linalg.matrix_power(step, power) @ matrix
            (index,) = _INT(data, at + 4)
            at += 8
        found.append(matrix[:3])
    return found, at


def _curves(data: bytes, at: int, name: bytes, table: CurveTable) -> int:
    count, at = _heading(data, at, name)
    if table.dimension == 2:
        line, size = _D4, 32
    else:
        line, size = _D6, 48
    tail = (0.0,) * table.dimension
    kinds, frames, radii = table.kinds, table.frames, table.radii
    later = []
    for row in range(count):
        kind = data[at]
        if kind == c.LINE:
            kinds.append(kind)
            frames.append(line(data, at + 1) + tail)
            radii.append((0.0, 0.0))
            at += 1 + size
        else:
            tree, at = _curve(data, at, table.dimension)
            later.append((row, tree))
            kinds.append(0)
            frames.append((0.0,) * (3 * table.dimension))
            radii.append((0.0, 0.0))
    for row, tree in later:
        _add_curve(table, tree, row)
    return at


# A curve or surface read but not yet in a table: its kind and what belongs to it.
_Tree = tuple


def _curve(data: bytes, at: int, d: int) -> tuple[_Tree, int]:
    """One curve record; trimmed curves become their basis, whose parameter they share."""
    kind = data[at]
    at += 1
    if kind == c.TRIMMED:
        return _curve(data, at + 16, d)
    if kind == c.LINE:
        values = struct.unpack_from(f"<{2 * d}d", data, at)
        return (kind, values + (0.0,) * d, (0.0, 0.0)), at + 16 * d
    if kind <= c.HYPERBOLA:
        # In space the axis direction stands before both others.
        n = 6 if d == 2 else 12
        radii = 2 if kind in (c.ELLIPSE, c.HYPERBOLA) else 1
        values = struct.unpack_from(f"<{n + radii}d", data, at)
        frame = values[:6] if d == 2 else values[:3] + values[6:12]
        return (kind, frame, (values[n], values[n + 1] if radii == 2 else 0.0)), at + 8 * (
            n + radii
        )
    if kind == c.OFFSET:
        values = struct.unpack_from("<d" if d == 2 else "<4d", data, at)
        basis, at = _curve(data, at + 8 * len(values), d)
        return (kind, basis, values[0], values[1:]), at
    if kind == c.BEZIER:
        rational = data[at]
        degree = data[at + 1] | data[at + 2] << 8
        poles, at = _poles(data, at + 3, degree + 1, d, rational)
        return (kind, _bezier_axis(degree), poles), at
    rational, periodic = data[at], data[at + 1]
    degree = data[at + 2] | data[at + 3] << 8
    n_poles, n_knots = _INT2(data, at + 4)
    poles, at = _poles(data, at + 12, n_poles, d, rational)
    along, at = _axis(data, at, degree, n_knots, bool(periodic))
    return (kind, along, poles), at


def _add_curve(table: CurveTable, tree: _Tree, row: int | None = None) -> int:
    """Put a read curve into ``row`` of a table, or behind it."""
    d = table.dimension
    if row is None:
        row = len(table.kinds)
        table.kinds.append(0)
        table.frames.append((0.0,) * (3 * d))
        table.radii.append((0.0, 0.0))
    kind = tree[0]
    table.kinds[row] = kind
    if kind <= c.HYPERBOLA:
        table.frames[row], table.radii[row] = tree[1], tree[2]
    elif kind == c.OFFSET:
        table.offsets[row] = (_add_curve(table, tree[1]), tree[2], tree[3])
    else:
        table.splines[row] = (tree[1], tree[2])
    return row


def _poles(data: bytes, at: int, n: int, d: int, rational: int) -> tuple[Floats, int]:
    """Homogeneous poles (n, d + 1)."""
    width = d + 1 if rational else d
    raw = np.frombuffer(data, "<f8", n * width, at).reshape(n, width)
    poles = np.ones((n, d + 1))
    if rational:
        poles[:] = raw
        poles[:, :d] *= raw[:, d:]
    else:
        poles[:, :d] = raw
    return poles, at + 8 * n * width


def _axis(data: bytes, at: int, degree: int, n: int, periodic: bool) -> tuple[Axis, int]:
    knots = np.frombuffer(data, _KNOT, n, at)
    return axis(degree, knots["knot"].copy(), knots["times"], periodic), at + 12 * n


def _bezier_axis(degree: int) -> Axis:
    return axis(degree, np.array([0.0, 1.0]), np.array([degree + 1, degree + 1]), False)


def _surface(data: bytes, at: int) -> tuple[_Tree, int]:
    """One surface record; trimmed surfaces become their basis, whose parameters they share."""
    kind = data[at]
    at += 1
    if kind == s.TRIMMED:
        return _surface(data, at + 32)
    if kind <= s.TORUS:
        radii = (0, 0, 1, 2, 1, 2)[kind]
        values = struct.unpack_from(f"<{12 + radii}d", data, at)
        both = values[12:] + (0.0,) * (2 - radii)
        return (kind, values[:12], both), at + 8 * (12 + radii)
    if kind == s.EXTRUSION:
        values = struct.unpack_from("<3d", data, at)
        basis, at = _curve(data, at + 24, 3)
        return (kind, (0.0, 0.0, 0.0, *values) + (0.0,) * 6, basis), at
    if kind == s.REVOLUTION:
        values = _D6(data, at)
        basis, at = _curve(data, at + 48, 3)
        return (kind, values + (0.0,) * 6, basis), at
    if kind == s.OFFSET:
        (distance,) = struct.unpack_from("<d", data, at)
        basis, at = _surface(data, at + 8)
        return (kind, distance, basis), at
    rational = data[at] or data[at + 1]
    if kind == s.BEZIER:
        p, q = struct.unpack_from("<HH", data, at + 2)
        poles, at = _poles(data, at + 6, (p + 1) * (q + 1), 3, rational)
        grid = poles.reshape(p + 1, q + 1, 4)
        return (kind, _bezier_axis(p), _bezier_axis(q), grid, bool(rational)), at
    p, q, nu, nv, ku, kv = struct.unpack_from("<HHiiii", data, at + 4)
    periodic_u, periodic_v = bool(data[at + 2]), bool(data[at + 3])
    poles, at = _poles(data, at + 24, nu * nv, 3, rational)
    along_u, at = _axis(data, at, p, ku, periodic_u)
    along_v, at = _axis(data, at, q, kv, periodic_v)
    return (kind, along_u, along_v, poles.reshape(nu, nv, 4), bool(rational)), at


def _add_surfaces(table: SurfaceTable, trees: list[_Tree]) -> None:
    """Fill rows 0 .. n - 1, and put the bases of offsets behind them."""
    queue = list(trees)
    row = 0
    while row < len(queue):
        tree = queue[row]
        kind = tree[0]
        frame, radii, basis = (0.0,) * 12, (0.0, 0.0), -1
        if kind <= s.TORUS:
            frame, radii = tree[1], tree[2]
        elif kind in (s.EXTRUSION, s.REVOLUTION):
            frame, basis = tree[1], _add_curve(table.curves, tree[2])
        elif kind == s.OFFSET:
            radii, basis = (tree[1], 0.0), len(queue)
            queue.append(tree[2])
        else:
            table.splines[row] = tree[1:4]
            if tree[4]:
                table.rational.add(row)
        table.kinds.append(kind)
        table.frames.append(frame)
        table.radii.append(radii)
        table.basis.append(basis)
        row += 1


def _shapes(
    data: bytes,
    at: int,
    pcurves: CurveTable,
    curves: CurveTable,
    surfaces: SurfaceTable,
    locations: list[Floats],
) -> Brep:
    count, at = _heading(data, at, b"TShapes ")
    types = [-1]
    children: list[list[Child]] = [[]]
    faces: dict[int, tuple[int, int]] = {}
    edges: dict[int, EdgeRecord] = {}
    points: dict[int, tuple[float, float, float, float]] = {}
    for shape in range(1, count + 1):
        kind = data[at]
        at += 1
        if kind == VERTEX:
            tolerance, x, y, z = _VERTEX(data, at)
            points[shape] = (x, y, z, tolerance)
            at = _skip_point_images(data, at + 32)
        elif kind == EDGE:
            edges[shape], at = _edge(data, at)
        elif kind == FACE:
            _, _, surface, location = _FACE(data, at)
            faces[shape] = (surface - 1, location)
            # One byte tells of a triangulation; with 2 its index follows.
            at += 22 if data[at + 17] == 2 else 18
        at += 7  # flags
        below: list[Child] = []
        while data[at] != 42:  # an asterisk ends the list
            orientation, index, location = _CHILD(data, at)
            below.append((orientation, count - index + 1, location))
            at += 9
        at += 1
        types.append(kind)
        children.append(below)
    orientation, index, location = _CHILD(data, at)
    root = (orientation, count - index + 1, location)
    return Brep(pcurves, curves, surfaces, locations, types, children, faces, edges, points, root)


def _skip_point_images(data: bytes, at: int) -> int:
    """Vertices may lie on curves and surfaces; nobody here asks where."""
    while kind := data[at]:
        at += 1 + (16, 20, 24)[kind - 1]
    return at + 1


def _edge(data: bytes, at: int) -> tuple[EdgeRecord, int]:
    tolerance, _, _, degenerate = _EDGE(data, at)
    edge = EdgeRecord(tolerance, degenerate)
    at += 11
    while kind := data[at]:
        at += 1
        if kind == 1:
            curve, edge.location, edge.first, edge.last = _ON_CURVE(data, at)
            edge.curve = curve
            at += 24
        elif kind == 2:
            pcurve, surface, location, first, last = _PCURVE(data, at)
            edge.pcurves.append((pcurve, 0, surface - 1, location, first, last))
            at += 28
        elif kind == 3:
            pcurve, second, _, surface, location, first, last = _PCURVE2(data, at)
            edge.pcurves.append((pcurve, second, surface - 1, location, first, last))
            at += 33
        elif kind == 4:  # how smoothly two surfaces meet here
            at += 17
        else:
            raise ValueError(f"edge representation {kind} in a shape without triangles")
    return edge, at + 1
