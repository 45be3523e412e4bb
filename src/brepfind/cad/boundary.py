"""The outlines of all faces in their own (u, v), sampled once for everything that needs them.

Each coedge is cut into pieces on which its image is smooth. A piece carries Gauss-Legendre nodes
(for integrals along the outline) between its two ends (for the polygon that trims the face).
Straight pieces, where two nodes integrate exactly, are kept apart from curved ones.

For a plane the image is the curve in space seen in the plane's frame: exact, and there is often no
other. Elsewhere it is the edge's own curve on the surface.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from brepfind.cad import curves as c
from brepfind.cad import surfaces as s
from brepfind.cad.splines import Floats, Ints
from brepfind.cad.topology import Topology

_STEP = np.pi / 4  # longest piece of an arc, or of an angle on the surface


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Outlines of F faces.

    Attributes:
        node_face: (N,) the face of each Gauss node.
        node_uv: float64 (N, 2).
        node_dv: float64 (N,), dv times the node's weight, signed so that outlines run with the
            face on their left: a sum of f(u, v) dv over a face's nodes is the line integral.
        node_du: float64 (N,), the same for du.
        segment_face: (S,) the face of each polygon side.
        segment_ends: float64 (S, 2, 2), both ends, (u, v) each.
        segment_slopes: float64 (S, 2, 2), derivatives at both ends over the side's own 0..1; for
            straight sides the difference of the ends.
        box: float64 (F, 4), u0, u1, v0, v1 of each face.
    """

    node_face: Ints
    node_uv: Floats
    node_dv: Floats
    node_du: Floats
    segment_face: Ints
    segment_ends: Floats
    segment_slopes: Floats
    box: Floats


def gauss(n: int) -> tuple[Floats, Floats]:
    """Gauss-Legendre nodes and weights on 0..1."""
    x, w = np.polynomial.legendre.leggauss(n)
    return (x + 1) / 2, w / 2


_STRAIGHT = gauss(2)
_CURVED = gauss(5)


def build(part: Topology) -> Boundary:
    """Sample the outlines of all faces of a part."""
    image = _Image(part)
    straight, pieces = image.pieces()
    chunks = [
        _Chunk(image, straight, *_STRAIGHT, curved=False),
        _Chunk(image, pieces, *_CURVED, curved=True),
    ]
    face = np.concatenate([chunk.segment_face for chunk in chunks])
    ends = np.concatenate([chunk.segment_ends for chunk in chunks])
    slopes = np.concatenate([chunk.segment_slopes for chunk in chunks])
    return Boundary(
        node_face=np.concatenate([chunk.node_face for chunk in chunks]),
        node_uv=np.concatenate([chunk.node_uv for chunk in chunks]),
        node_du=np.concatenate([chunk.node_slope[:, 0] for chunk in chunks]),
        node_dv=np.concatenate([chunk.node_slope[:, 1] for chunk in chunks]),
        segment_face=face,
        segment_ends=ends,
        segment_slopes=slopes,
        box=bounds(part.n_faces, face, ends, slopes),
    )


class _Image:
    """The image of each coedge in its face's parameters."""

    def __init__(self, part: Topology) -> None:
        self.part = part
        surface = part.face_surface[part.coedge_face]
        self.surface = surface
        self.kind = part.surfaces.kind[surface]
        self.flat = self.kind == s.PLANE
        curve = part.edge_curve[part.coedge_edge]
        self.curve = np.where(self.flat, curve, part.coedge_pcurve)
        span = part.edge_range[part.coedge_edge]
        self.range = np.where(self.flat[:, None], span, part.coedge_range)

    def evaluate(self, coedge: Ints, t: Floats) -> tuple[Floats, Floats]:
        """(u, v) and its derivative over t; both (n, 2)."""
        part = self.part
        flat = self.flat[coedge]
        uv = np.empty((len(t), 2))
        slope = np.empty((len(t), 2))
        at = np.flatnonzero(flat)
        if at.size:
            surface = self.surface[coedge[at]]
            point, tangent = part.curves.evaluate(self.curve[coedge[at]], t[at])
            point = point - part.surfaces.origin[surface]
            for k, along in enumerate((part.surfaces.x[surface], part.surfaces.y[surface])):
                uv[at, k] = np.einsum("ij,ij->i", point, along)
                slope[at, k] = np.einsum("ij,ij->i", tangent, along)
        at = np.flatnonzero(~flat)
        if at.size:
            uv[at], slope[at] = part.pcurves.evaluate(self.curve[coedge[at]], t[at])
        return uv, slope

    def pieces(self) -> tuple[tuple[Ints, Floats, Floats], tuple[Ints, Floats, Floats]]:
        """Straight and curved pieces: coedge and both parameters of each."""
        part = self.part
        usable = self.curve >= 0
        curve = np.where(usable, self.curve, 0)
        kind = np.zeros(len(curve), dtype=np.uint8)
        kind[self.flat] = part.curves.kind[curve[self.flat]]
        kind[~self.flat] = part.pcurves.kind[curve[~self.flat]]
        first, last = self.range[:, 0], self.range[:, 1]
        count = np.ones(len(curve), dtype=np.int64)
        is_line = kind == c.LINE
        straight = is_line & (self.kind <= s.TORUS)

        arc = ~is_line & (kind <= c.HYPERBOLA)
        count[arc] = _steps(np.abs(last - first)[arc])
        # A line on a round surface is straight in (u, v), but what is integrated along it is not.
        at = np.flatnonzero(straight & (self.kind > s.PLANE))
        if at.size:
            du, dv = np.abs(part.pcurves.x[curve[at]] * (last - first)[at, None]).T
            tilted = np.where(self.kind[at] >= s.SPHERE, np.maximum(du, dv), du)
            bent = (dv > 1e-12) & (tilted > 1e-12)
            straight[at[bent]] = False
            count[at] = np.where(bent, _steps(tilted), 1)

        special = usable & ((kind > c.HYPERBOLA) | (self.kind > s.TORUS))
        custom = self._breaks(np.flatnonzero(special))
        for k, breaks in custom.items():
            count[k] = len(breaks) - 1
        one = np.flatnonzero(straight & usable)
        many = np.flatnonzero(~straight & usable)
        coedge = np.repeat(many, count[many])
        begins = np.cumsum(count[many]) - count[many]
        local = np.arange(len(coedge)) - np.repeat(begins, count[many])
        step = ((last - first) / count)[coedge]
        low = first[coedge] + local * step
        high = low + step
        where = dict(zip(many.tolist(), begins.tolist(), strict=True))
        for k, breaks in custom.items():
            if k in where:
                i = where[k]
                low[i : i + len(breaks) - 1] = breaks[:-1]
                high[i : i + len(breaks) - 1] = breaks[1:]
        return (one, first[one], last[one]), (coedge, low, high)

    def _breaks(self, coedges: Ints) -> dict[int, Floats]:
        """Where the images of these coedges, or the surfaces under them, are not smooth."""
        part = self.part
        found: dict[int, Floats] = {}
        for k, flat, curve, (first, last) in zip(
            coedges.tolist(),
            self.flat[coedges].tolist(),
            self.curve[coedges].tolist(),
            self.range[coedges].tolist(),
            strict=True,
        ):
            found[k] = (part.curves if flat else part.pcurves).breaks(curve, first, last)
        free = coedges[self.kind[coedges] > s.TORUS]
        if not free.size:
            return found
        sizes = [len(found[k]) for k in free.tolist()]
        places, _ = self.evaluate(
            np.repeat(free, sizes), np.concatenate([found[k] for k in free.tolist()])
        )
        stops: Ints = np.cumsum(sizes)
        starts: Ints = stops - np.array(sizes)
        low = np.minimum.reduceat(places, starts)
        high = np.maximum.reduceat(places, starts)
        boxes = np.stack([low[:, 0], high[:, 0], low[:, 1], high[:, 1]], axis=1)
        straight = part.pcurves.kind[self.curve[free]] == c.LINE
        for i, (k, surface) in enumerate(
            zip(free.tolist(), self.surface[free].tolist(), strict=True)
        ):
            knots = part.surfaces.breaks(surface, boxes[i].tolist())
            if straight[i]:
                ends = places[starts[i]], places[stops[i] - 1]
                found[k] = _crossed(found[k], knots, *ends)
            else:
                spans = max(len(knots[0]), len(knots[1])) - 1
                found[k] = c.divided(found[k], max(1, -(-spans // (len(found[k]) - 1))))
        return found


def _crossed(breaks: Floats, knots: tuple[Floats, Floats], begin: Floats, end: Floats) -> Floats:
    """The parameters of a line in (u, v), from ``begin`` to ``end``, and where it crosses knots."""
    first, last = breaks[0], breaks[-1]
    more = [breaks]
    for k in range(2):
        rise = end[k] - begin[k]
        if abs(rise) > 1e-9:
            more.append(first + (knots[k] - begin[k]) / rise * (last - first))
    inner = np.sort(np.concatenate(more))
    inner = inner[(inner > first) & (inner < last)]
    keep = np.diff(inner, prepend=first) > 1e-9 * (last - first)
    return np.concatenate([[first], inner[keep], [last]])


class _Chunk:
    """Points of pieces that share one rule."""

    def __init__(
        self,
        image: _Image,
        pieces: tuple[Ints, Floats, Floats],
        nodes: Floats,
        weights: Floats,
        *,
        curved: bool,
    ) -> None:
        coedge, low, high = pieces
        n, m = len(coedge), len(nodes) + 2
        places = np.concatenate([[0.0], nodes, [1.0]])
        t = low[:, None] + (high - low)[:, None] * places
        owner = np.repeat(coedge, m)
        uv, slope = image.evaluate(owner, t.ravel())
        uv, slope = uv.reshape(n, m, 2), slope.reshape(n, m, 2)
        slope = slope * (high - low)[:, None, None]
        sign = np.where(image.part.coedge_reversed[coedge], -1.0, 1.0)
        face = image.part.coedge_face[coedge]
        self.node_face = np.repeat(face, m - 2)
        self.node_uv = uv[:, 1:-1].reshape(-1, 2)
        self.node_slope = (slope[:, 1:-1] * weights[:, None] * sign[:, None, None]).reshape(-1, 2)
        if not curved:
            self.segment_face = face
            self.segment_ends = uv[:, [0, -1]]
            self.segment_slopes = np.repeat(uv[:, -1:] - uv[:, :1], 2, axis=1)
            return
        self.segment_face = np.repeat(face, m - 1)
        self.segment_ends = np.stack([uv[:, :-1], uv[:, 1:]], axis=2).reshape(-1, 2, 2)
        both = np.stack([slope[:, :-1], slope[:, 1:]], axis=2)
        self.segment_slopes = (both * np.diff(places)[:, None, None]).reshape(-1, 2, 2)


def bounds(n: int, face: Ints, ends: Floats, slopes: Floats) -> Floats:
    """Bounds of cubic sides by owner, extremes between their ends included.

    Args:
        n: number of owners.
        face: (S,) owner of each side.
        ends, slopes: float64 (S, 2, d), as in :class:`Boundary`: short sides, which turn at most
            once in each coordinate.

    Returns:
        float64 (n, 2 d): lower and upper bound of each coordinate in turn.
    """
    d = ends.shape[2]
    box = np.empty((n, 2 * d))
    for k in range(d):
        low, high = (
            np.minimum(ends[:, 0, k], ends[:, 1, k]),
            np.maximum(ends[:, 0, k], ends[:, 1, k]),
        )
        turning = np.flatnonzero(slopes[:, 0, k] * slopes[:, 1, k] < 0)
        if turning.size:
            peak = _peak(ends[turning, :, k], slopes[turning, :, k])
            low[turning] = np.minimum(low[turning], peak)
            high[turning] = np.maximum(high[turning], peak)
        box[:, 2 * k] = np.inf
        box[:, 2 * k + 1] = -np.inf
        np.minimum.at(box[:, 2 * k], face, low)
        np.maximum.at(box[:, 2 * k + 1], face, high)
    return box


def _peak(ends: Floats, slopes: Floats) -> Floats:
    """Where cubics turn whose ends (n, 2) have slopes (n, 2) of opposite sign; the value there."""
    p0, p1 = ends.T
    m0, m1 = slopes.T
    # Derivative of the Hermite cubic: a t^2 + b t + m0.
    a = 3 * (2 * (p0 - p1) + m0 + m1)
    b = 2 * (3 * (p1 - p0) - 2 * m0 - m1)
    root = np.sign(m0) * np.sqrt(np.maximum(b * b - 4 * a * m0, 0.0))
    # Of the two forms of the root between 0 and 1 the one that subtracts nothing from its like: a
    # side that sets off along its extreme (m0 next to nothing) has its bump elsewhere.
    alike = b * m0 > 0
    t = np.where(alike, -(b + root), 2 * m0) / np.where(alike, 2 * a, root - b)
    return hermite(ends, slopes, np.clip(t, 0.0, 1.0))


def hermite(ends: Floats, slopes: Floats, t: Floats) -> Floats:
    """Cubics given by ends and slopes (n, 2) at ``t`` (n,)."""
    s1 = 1 - t
    return (
        (1 + 2 * t) * s1 * s1 * ends[:, 0]
        + t * s1 * s1 * slopes[:, 0]
        + t * t * (3 - 2 * t) * ends[:, 1]
        - t * t * s1 * slopes[:, 1]
    )


def _steps(angle: NDArray[np.float64]) -> Ints:
    return np.maximum(1, np.ceil(angle / _STEP - 1e-9)).astype(np.int64)
