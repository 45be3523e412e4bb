"""Edges between faces: pairing, samples along the curve, convexity, dihedral angle, length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from brepfind.cad import curves as c
from brepfind.cad import normals
from brepfind.cad.arrays import EDGE_TYPES
from brepfind.cad.boundary import Boundary, gauss
from brepfind.cad.splines import Floats, Ints
from brepfind.cad.topology import Topology

# Below this angle two faces meet smoothly (radians); brepgraph and BRepFormer's authors use it too.
SMOOTH = 0.01

# How far off a knife edge its faces are looked at, of the edge's length; and up to where what
# differs between them is rounding.
_STEP = 1e-3
_LEVEL = 1e-9

_CONCAVE, _CONVEX, _SMOOTH = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """Which coedges meet along which edges.

    Attributes:
        edge: (K,) the edge of each pair of faces.
        left, right: (K,) coedges; the edge's curve runs with ``left``'s face on its left, seen
            from outside.
        seams, degenerate, free, nonmanifold: edges counted and, the last apart, left out.
    """

    edge: Ints
    left: Ints
    right: Ints
    seams: int
    degenerate: int
    free: int
    nonmanifold: int


def pair(part: Topology) -> Pairing:
    """Pairs of coedges in the order of the file's edges.

    An edge between two faces gives one pair. One whose sides are the same face is a seam. Along an
    edge of more than two faces every two of its faces make a pair.
    """
    reversed_outside = part.coedge_reversed ^ (part.face_sign[part.coedge_face] < 0)
    order = np.argsort(part.coedge_edge, kind="stable")
    count = np.bincount(part.coedge_edge, minlength=part.n_edges)
    begin = np.cumsum(count) - count
    solid = ~part.edge_degenerate
    two = np.flatnonzero(solid & (count == 2))
    a, b = order[begin[two]], order[begin[two] + 1]
    apart = part.coedge_face[a] != part.coedge_face[b]
    seams = int((~apart).sum())
    edges, a, b = two[apart], a[apart], b[apart]
    free = int((solid & (count == 1)).sum())
    nonmanifold = 0
    more: list[tuple[int, int, int]] = []
    for edge in np.flatnonzero(solid & (count > 2)):
        uses = order[begin[edge] : begin[edge] + count[edge]]
        faces = part.coedge_face[uses]
        _, first = np.unique(faces, return_index=True)
        one_each = uses[np.sort(first)]
        if len(one_each) < len(uses):
            seams += 1  # it is a seam of one of its faces, beside what it is to the others
        nonmanifold += len(one_each) > 2
        more += [
            (int(edge), int(p), int(q)) for i, p in enumerate(one_each) for q in one_each[i + 1 :]
        ]
    if more:
        extra = np.array(more, dtype=np.int64)
        edges = np.concatenate([edges, extra[:, 0]])
        a, b = np.concatenate([a, extra[:, 1]]), np.concatenate([b, extra[:, 2]])
        by_edge = np.argsort(edges, kind="stable")
        edges, a, b = edges[by_edge], a[by_edge], b[by_edge]
    swap = reversed_outside[a] & ~reversed_outside[b]
    return Pairing(
        edge=edges,
        left=np.where(swap, b, a),
        right=np.where(swap, a, b),
        seams=seams,
        degenerate=int(part.edge_degenerate.sum()),
        free=free,
        nonmanifold=nonmanifold,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeSamples:
    """What is measured along K pairs, each in the direction of the edge's curve, lengths in mm.

    Attributes:
        point, tangent, left, right: (K, G, 3); unit tangents and outward unit normals.
        angle: (K,), signed dihedral angle at mid-edge, radians.
        convexity: uint8 (K,). A knife edge, where the faces' normals are opposite within
            ``SMOOTH``, is convex if the material lies between the faces a little way off the edge,
            concave if the void does, and convex where that cannot be told.
        length: (K,).
        kind: uint8 (K, 11), flags in the order of ``EDGE_TYPES``.
    """

    point: Floats
    tangent: Floats
    left: Floats
    right: Floats
    angle: Floats
    convexity: NDArray[np.uint8]
    length: Floats
    kind: NDArray[np.uint8]


def sample(part: Topology, outline: Boundary, pairs: Pairing, grid: int) -> EdgeSamples:
    """Sample all pairs at ``grid`` even parameters and at mid-edge."""
    k = len(pairs.edge)
    first, last = part.edge_range[pairs.edge].T
    fraction = np.append(np.linspace(0.0, 1.0, grid), 0.5)
    t = first[:, None] + (last - first)[:, None] * fraction
    curve = np.repeat(part.edge_curve[pairs.edge], grid + 1)
    point, slope = part.curves.evaluate(curve, t.ravel())
    tangent = _unit(slope)
    left = _along(part, outline, pairs.left, point, fraction)
    right = _along(part, outline, pairs.right, point, fraction)
    length = lengths(part, pairs.edge)
    shape = (k, grid + 1, 3)
    point, tangent, left, right = (a.reshape(shape) for a in (point, tangent, left, right))
    turn = np.cross(left[:, -1], right[:, -1])
    size = np.arctan2(
        np.linalg.norm(turn, axis=1), np.einsum("ij,ij->i", left[:, -1], right[:, -1])
    )
    convex = np.einsum("ij,ij->i", turn, tangent[:, -1]) >= 0
    knife = np.flatnonzero(size > np.pi - SMOOTH)
    if knife.size:
        convex[knife] = _is_blade(
            part,
            outline,
            pairs.left[knife],
            pairs.right[knife],
            point[knife, -1],
            np.cross(left[knife, -1], tangent[knife, -1]),
            length[knife],
        )
    smooth = size < SMOOTH
    return EdgeSamples(
        point=point[:, :-1],
        tangent=tangent[:, :-1],
        left=left[:, :-1],
        right=right[:, :-1],
        angle=np.where(convex, size, -size),
        convexity=np.where(smooth, _SMOOTH, np.where(convex, _CONVEX, _CONCAVE)).astype(np.uint8),
        length=length,
        kind=_kinds(part, pairs.edge),
    )


def _is_blade(
    part: Topology,
    outline: Boundary,
    left: Ints,
    right: Ints,
    point: Floats,
    inward: Floats,
    length: Floats,
) -> NDArray[np.bool_]:
    """Bool (n,): whether the material lies between the faces of edges whose angle is about pi.

    Both faces set out in one direction, and only their bends tell which one is above. A step that
    way the outward normals of a blade lean back, those of a cleft lean on.

    Args:
        left, right: (n,) coedges.
        point: (n, 3), mid-edge.
        inward: (n, 3), unit, along both faces away from the edge.
        length: (n,), of the edges.
    """
    step = inward * (_STEP * length)[:, None]
    lean = sum(
        np.einsum("ij,ij->i", _off_edge(part, outline, coedge, point, step), inward)
        for coedge in (left, right)
    )
    return lean < _LEVEL


def _off_edge(
    part: Topology, outline: Boundary, coedge: Ints, point: Floats, step: Floats
) -> Floats:
    """Outward normals of each coedge's face a ``step`` (n, 3) away from mid-edge, (n, 3)."""
    face = part.coedge_face[coedge]
    normal = normals.at_points(part, face, point + step)
    free = np.flatnonzero(~normals.from_points(part)[face])
    if free.size:
        mine, face = coedge[free], face[free]
        middle = part.coedge_range[mine].mean(axis=1)
        uv, _ = part.pcurves.evaluate(part.coedge_pcurve[mine], middle)
        _, by_u, by_v = part.surfaces.evaluate(part.face_surface[face], uv[:, 0], uv[:, 1])
        # The pseudo-inverse, for the derivatives may be parallel at a pole.
        uv += np.einsum("ijk,ik->ij", np.linalg.pinv(np.stack([by_u, by_v], axis=2)), step[free])
        _, normal[free] = normals.at_parameters(part, outline, face, uv[:, 0], uv[:, 1])
    return normal


def _along(
    part: Topology, outline: Boundary, coedge: Ints, point: Floats, fraction: Floats
) -> Floats:
    """Outward normals of each coedge's face along its edge, (K * (G + 1), 3)."""
    m = len(fraction)
    face = part.coedge_face[coedge]
    normal = normals.at_points(part, np.repeat(face, m), point)
    free = np.flatnonzero(~normals.from_points(part)[face])
    if free.size:
        mine = coedge[free]
        first, last = part.coedge_range[mine].T
        t = first[:, None] + (last - first)[:, None] * fraction
        pcurve = np.repeat(part.coedge_pcurve[mine], m)
        uv, _ = part.pcurves.evaluate(pcurve, t.ravel())
        _, found = normals.at_parameters(
            part, outline, np.repeat(face[free], m), uv[:, 0], uv[:, 1]
        )
        normal.reshape(-1, m, 3)[free] = found.reshape(-1, m, 3)
    return normal


_NODES, _WEIGHTS = gauss(8)


def lengths(part: Topology, edge: Ints) -> Floats:
    """Arc lengths of edges, mm (K,)."""
    curve = part.edge_curve[edge]
    first, last = part.edge_range[edge].T
    kind = part.curves.kind[curve]
    span = np.abs(last - first)
    length = np.where(kind == c.CIRCLE, part.curves.radius[curve, 0] * span, span)
    rest = np.flatnonzero(kind > c.CIRCLE)
    if not rest.size:
        return length
    owner, low, high = [], [], []
    for k in rest:
        breaks = part.curves.breaks(int(curve[k]), first[k], last[k])
        owner.append(np.full(len(breaks) - 1, k))
        low.append(breaks[:-1])
        high.append(breaks[1:])
    which, a, b = np.concatenate(owner), np.concatenate(low), np.concatenate(high)
    t = a[:, None] + (b - a)[:, None] * _NODES
    _, slope = part.curves.evaluate(np.repeat(curve[which], len(_NODES)), t.ravel())
    speed = np.linalg.norm(slope, axis=1).reshape(t.shape)
    total = np.bincount(which, (speed * _WEIGHTS).sum(axis=1) * (b - a), minlength=len(edge))
    length[rest] = total[rest]
    return length


_FLAG = {
    c.LINE: "straight",
    c.CIRCLE: "circular",
    c.ELLIPSE: "elliptical",
    c.PARABOLA: "parabolic",
    c.HYPERBOLA: "hyperbolic",
    c.BEZIER: "bezier",
    c.BSPLINE: "bspline",
    c.OFFSET: "offset",
}
_COLUMN = np.full(16, EDGE_TYPES.index("other"))
for _kind, _name in _FLAG.items():
    _COLUMN[_kind] = EDGE_TYPES.index(_name)


def _kinds(part: Topology, edge: Ints) -> NDArray[np.uint8]:
    curve = part.edge_curve[edge]
    kind = part.curves.kind[curve]
    column = _COLUMN[kind]
    column[(kind == c.BSPLINE) & part.curves.rational[curve]] = EDGE_TYPES.index("rational_bspline")
    flags = np.zeros((len(edge), len(EDGE_TYPES)), dtype=np.uint8)
    flags[np.arange(len(edge)), column] = 1
    flags[part.edge_closed[edge], EDGE_TYPES.index("closed")] = 1
    return flags


def _unit(vector: Floats) -> Floats:
    length = np.linalg.norm(vector, axis=1, keepdims=True)
    return vector / np.where(length > 0, length, 1.0)
