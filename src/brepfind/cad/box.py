"""The bounding box of a part: tight, and exact where the geometry has a closed form."""

from __future__ import annotations

import numpy as np

from brepfind.cad import curves as c
from brepfind.cad import surfaces as s
from brepfind.cad.boundary import Boundary, bounds
from brepfind.cad.splines import Floats
from brepfind.cad.topology import Topology
from brepfind.cad.trim import contains

_HAIR = 1e-10  # of the piece of a curve between two samples


def bounding_box(part: Topology, outline: Boundary, inside: Floats) -> tuple[Floats, Floats]:
    """Corners (3,), (3,) in mm.

    Planes, cylinders and cones are widest on their edges; spheres and tori may bulge between them,
    at points known in closed form. Free-form faces add ``inside`` (n, 3), points on them.
    """
    chunks = [_edge_extremes(part), inside, _bulges(part, outline), _tips(part)]
    points = np.concatenate([chunk for chunk in chunks if len(chunk)])
    return points.min(axis=0), points.max(axis=0)


def _edge_extremes(part: Topology) -> Floats:
    """Both corners of the box of all edges, (2, 3); empty without edges."""
    edge = np.flatnonzero(~part.edge_degenerate)
    if not edge.size:
        return np.zeros((0, 3))
    curve = part.edge_curve[edge]
    first, last = part.edge_range[edge].T
    kind = part.curves.kind[curve]
    # Enough samples that a cubic between two follows the curve; lines need their ends only.
    count = np.ones(len(edge), dtype=np.int64)
    arc = (kind == c.CIRCLE) | (kind == c.ELLIPSE)
    count[arc] = np.maximum(1, np.ceil(np.abs(last - first)[arc] / (np.pi / 8)))
    custom: dict[int, Floats] = {}
    for k in np.flatnonzero(kind > c.ELLIPSE).tolist():
        custom[k] = c.divided(part.curves.breaks(int(curve[k]), first[k], last[k]), 3)
        count[k] = len(custom[k]) - 1
    owner = np.repeat(np.arange(len(edge)), count)
    begins = np.cumsum(count) - count
    step = np.arange(len(owner)) - np.repeat(begins, count)
    width = ((last - first) / count)[owner]
    low = first[owner] + step * width
    for k, breaks in custom.items():
        mine = slice(begins[k], begins[k] + count[k])
        # By a hair within, for at a knot the curve may have a kink and two slopes.
        width[mine] = np.diff(breaks) * (1 - 2 * _HAIR)
        low[mine] = breaks[:-1] + np.diff(breaks) * _HAIR
    t = np.stack([low, low + width], axis=1)
    point, slope = part.curves.evaluate(np.repeat(curve[owner], 2), t.ravel())
    ends = point.reshape(-1, 2, 3)
    slopes = slope.reshape(-1, 2, 3) * width[:, None, None]
    box = bounds(1, np.zeros(len(owner), dtype=np.int64), ends, slopes)[0]
    return box.reshape(3, 2).T.copy()


def _bulges(part: Topology, outline: Boundary) -> Floats:
    """Extreme points of spheres and tori that lie inside their faces, (n, 3)."""
    kind = part.surfaces.kind[part.face_surface]
    face = np.flatnonzero((kind == s.SPHERE) | (kind == s.TORUS))
    if not face.size:
        return np.zeros((0, 3))
    row = part.face_surface[face]
    table = part.surfaces
    spots = []
    for k in range(3):
        # The direction e_k in the surface's frame: in-plane part and part along the axis.
        ex, ey, ez = table.x[row, k], table.y[row, k], table.z[row, k]
        flat = np.hypot(ex, ey)
        for turn in (0.0, np.pi):
            # Along the axis all u are extreme alike; the middle is not on a seam.
            middle = outline.box[face, :2].mean(axis=1)
            u = np.where(flat < 1e-9, middle, np.arctan2(ey, ex) + turn)
            for sign in (1.0, -1.0):
                v = np.arctan2(sign * ez, sign * flat * np.cos(turn))
                spots.append((face, u, v))
    owner = np.concatenate([spot[0] for spot in spots])
    u = _into(np.concatenate([spot[1] for spot in spots]), outline.box[owner, 0])
    v = np.concatenate([spot[2] for spot in spots])
    is_torus = kind[owner] == s.TORUS
    v = np.where(is_torus, _into(v, outline.box[owner, 2]), v)
    keep = np.flatnonzero(is_torus | (np.abs(v) <= np.pi / 2 + 1e-12))
    owner, u, v = owner[keep], u[keep], v[keep]
    inner = contains(outline, owner, np.stack([u, v], axis=1))
    point, _, _ = table.evaluate(part.face_surface[owner[inner]], u[inner], v[inner])
    return point


def _tips(part: Topology) -> Floats:
    """Poles and apexes, (n, 3): edges without a curve in space shrink to them."""
    at = np.flatnonzero(part.edge_degenerate[part.coedge_edge] & (part.coedge_pcurve >= 0))
    uv, _ = part.pcurves.evaluate(part.coedge_pcurve[at], part.coedge_range[at, 0])
    surface = part.face_surface[part.coedge_face[at]]
    return part.surfaces.evaluate(surface, uv[:, 0], uv[:, 1])[0]


def _into(angle: Floats, start: Floats) -> Floats:
    """The same angles within one turn from ``start``."""
    return start + np.mod(angle - start, 2 * np.pi)
