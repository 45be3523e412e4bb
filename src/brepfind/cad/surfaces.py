"""Surfaces of a part as one table, evaluated by the batch.

Plane, cylinder, cone, sphere and torus are one formula with a radius and a height that depend on
v alone, ``origin + radius(v) (cos u x + sin u y) + height(v) z`` (a plane: ``origin + u x + v y``);
swept surfaces lean on their basis curve, offsets on their basis surface, B-splines are grouped by
degree. Parameters are Open CASCADE's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from brepfind.cad.curves import Curves, CurveTable, divided, spline_breaks, turns
from brepfind.cad.splines import Axis, Floats, Ints, SurfaceGroup

# Open CASCADE's codes in its binary format.
PLANE, CYLINDER, CONE, SPHERE, TORUS, EXTRUSION, REVOLUTION, BEZIER, BSPLINE, TRIMMED, OFFSET = (
    range(1, 12)
)


@dataclass(slots=True)
class SurfaceTable:
    """The surfaces of a part; row i of each list is surface i.

    Attributes:
        kinds: one of the codes above; a trimmed surface is stored as its basis.
        frames: origin, z, x and y axes end to end (12 numbers), zeros where there is none.
        radii: (r1, r2): radius; radius, half angle; major, minor; offset distance; or zeros.
        curves: basis curves of swept surfaces, in space.
        basis: for a swept surface its row in ``curves``, for an offset its basis surface, else -1.
        splines: both axes and homogeneous poles of the B-spline and Bezier surfaces, by row.
        rational: rows of rational Bezier and B-spline surfaces.
    """

    curves: CurveTable
    kinds: list[int] = field(default_factory=list)
    frames: list[tuple[float, ...]] = field(default_factory=list)
    radii: list[tuple[float, float]] = field(default_factory=list)
    basis: list[int] = field(default_factory=list)
    splines: dict[int, tuple[Axis, Axis, Floats]] = field(default_factory=dict)
    rational: set[int] = field(default_factory=set)

    def add_moved(self, row: int, matrix: Floats) -> int:
        """Add the surface of ``row`` moved by a (3, 4) ``matrix``; returns its row."""
        turn, shift = matrix[:, :3], matrix[:, 3]
        scale = abs(float(np.linalg.det(turn))) ** (1 / 3)
        kind = self.kinds[row]
        frame = np.array(self.frames[row]).reshape(4, 3)
        axes = frame[1:] @ turn.T / scale
        r1, r2 = self.radii[row]
        basis = self.basis[row]
        if kind in (EXTRUSION, REVOLUTION):
            basis = self.curves.add_moved(basis, matrix)
        elif kind == OFFSET:
            basis = self.add_moved(basis, matrix)
        self.kinds.append(kind)
        self.frames.append((*(turn @ frame[0] + shift), *axes.ravel()))
        self.radii.append((r1 * scale, r2 if kind == CONE else r2 * scale))
        self.basis.append(basis)
        new = len(self.kinds) - 1
        if row in self.splines:
            u, v, poles = self.splines[row]
            moved = poles.copy()
            moved[..., :3] = poles[..., :3] @ turn.T + poles[..., 3:] * shift
            self.splines[new] = (u, v, moved)
            if row in self.rational:
                self.rational.add(new)
        return new


class Surfaces:
    """A finished table, ready to be evaluated."""

    def __init__(self, table: SurfaceTable) -> None:
        n = len(table.kinds)
        self.table = table
        self.kind = np.array(table.kinds, dtype=np.uint8)
        frames = np.array(table.frames, dtype=np.float64).reshape(n, 4, 3)
        self.origin, self.z, self.x, self.y = (frames[:, i] for i in range(4))
        self.radius = np.array(table.radii, dtype=np.float64).reshape(n, 2)
        self.basis = np.array(table.basis, dtype=np.int64)
        # +1 where (x, y, z) is right-handed, -1 where left-handed; 0 where there is no frame.
        self.hand = np.sign(np.einsum("ij,ij->i", np.cross(self.x, self.y), self.z))
        self.curves = Curves(table.curves)
        self._degrees = np.zeros((n, 2), dtype=np.int64)
        self._slot = np.zeros(n, dtype=np.int64)
        rows: dict[tuple[int, int], list[int]] = {}
        for row, (u, v, _) in table.splines.items():
            group = rows.setdefault((u.degree, v.degree), [])
            self._slot[row] = len(group)
            self._degrees[row] = u.degree, v.degree
            group.append(row)
        self._groups = {
            degrees: SurfaceGroup(
                [table.splines[row][0] for row in group],
                [table.splines[row][1] for row in group],
                [table.splines[row][2] for row in group],
            )
            for degrees, group in rows.items()
        }

    def profile(self, index: Ints, v: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Radius and height over v of cylinders, cones, spheres and tori, and their derivatives."""
        kind = self.kind[index]
        r1, r2 = self.radius[index, 0], self.radius[index, 1]
        r1, r2, kind = (np.broadcast_to(_column(a, v), v.shape) for a in (r1, r2, kind))
        cos, sin = np.cos(v), np.sin(v)
        round_v = kind >= SPHERE
        big = np.where(kind == TORUS, r2, r1)
        cone = kind == CONE
        tilt_cos = np.where(cone, np.cos(r2), 1.0)
        tilt_sin = np.where(cone, np.sin(r2), 0.0)
        radius = np.where(round_v, big * cos + np.where(kind == TORUS, r1, 0.0), r1 + v * tilt_sin)
        height = np.where(round_v, big * sin, v * tilt_cos)
        d_radius = np.where(round_v, -big * sin, tilt_sin)
        d_height = np.where(round_v, big * cos, tilt_cos)
        return radius, d_radius, height, d_height

    def evaluate(self, index: Ints, u: Floats, v: Floats) -> tuple[Floats, Floats, Floats]:
        """Points and first derivatives at (u, v) (n,) of surfaces ``index`` (n,): three (n, 3)."""
        kind = self.kind[index]
        out = np.empty((3, len(u), 3))
        for at, part in (
            (np.flatnonzero(kind == PLANE), self._plane),
            (np.flatnonzero((kind > PLANE) & (kind <= TORUS)), self._round),
            (np.flatnonzero(kind == EXTRUSION), self._extrusion),
            (np.flatnonzero(kind == REVOLUTION), self._revolution),
            (np.flatnonzero((kind == BEZIER) | (kind == BSPLINE)), self._spline),
            (np.flatnonzero(kind == OFFSET), self._offset),
        ):
            if at.size == len(u):
                return part(index, u, v)
            if at.size:
                out[0, at], out[1, at], out[2, at] = part(index[at], u[at], v[at])
        return out[0], out[1], out[2]

    def _plane(self, index: Ints, u: Floats, v: Floats) -> tuple[Floats, Floats, Floats]:
        x, y = self.x[index], self.y[index]
        return self.origin[index] + u[:, None] * x + v[:, None] * y, x, y

    def _round(self, index: Ints, u: Floats, v: Floats) -> tuple[Floats, Floats, Floats]:
        radius, d_radius, height, d_height = self.profile(index, v)
        x, y, z = self.x[index], self.y[index], self.z[index]
        cos, sin = np.cos(u)[:, None], np.sin(u)[:, None]
        out = cos * x + sin * y
        around = cos * y - sin * x
        point = self.origin[index] + radius[:, None] * out + height[:, None] * z
        return point, radius[:, None] * around, d_radius[:, None] * out + d_height[:, None] * z

    def _extrusion(self, index: Ints, u: Floats, v: Floats) -> tuple[Floats, Floats, Floats]:
        point, slope = self.curves.evaluate(self.basis[index], u)
        along = self.z[index]
        return point + v[:, None] * along, slope, along

    def _revolution(self, index: Ints, u: Floats, v: Floats) -> tuple[Floats, Floats, Floats]:
        point, slope = self.curves.evaluate(self.basis[index], v)
        axis, origin = self.z[index], self.origin[index]
        cos, sin = np.cos(u)[:, None], np.sin(u)[:, None]

        def turned(vector: Floats) -> Floats:
            along = np.einsum("ij,ij->i", vector, axis)[:, None] * axis
            return along + cos * (vector - along) + sin * np.cross(axis, vector)

        arm = turned(point - origin)
        return origin + arm, np.cross(axis, arm), turned(slope)

    def _spline(self, index: Ints, u: Floats, v: Floats) -> tuple[Floats, Floats, Floats]:
        degrees = self._degrees[index]
        out = np.empty((3, len(u), 3))
        for (p, q), group in self._groups.items():
            at = np.flatnonzero((degrees[:, 0] == p) & (degrees[:, 1] == q))
            if at.size:
                out[0, at], out[1, at], out[2, at] = group.evaluate(
                    self._slot[index[at]], u[at], v[at]
                )
        return out[0], out[1], out[2]

    def on_grids(self, index: Ints, grids: Sequence[tuple[Floats, Floats]]) -> list[Floats]:
        """Points and first derivatives on tensor grids of parameters, one on each of surfaces.

        Args:
            index: surfaces (n,).
            grids: parameters in u (a,) and in v (b,) on each.

        Returns:
            For each float64 (3, 3, a, b): point, u and v derivative; x, y, z.
        """
        out: list[Floats] = [np.empty(0)] * len(index)
        kind = self.kind[index]
        spline = (kind == BEZIER) | (kind == BSPLINE)
        degrees = self._degrees[index]
        for (p, q), group in self._groups.items():
            at = np.flatnonzero(spline & (degrees[:, 0] == p) & (degrees[:, 1] == q)).tolist()
            if at:
                of_group = group.on_grids(self._slot[index[at]], [grids[i] for i in at])
                for i, one in zip(at, of_group, strict=True):
                    out[i] = one
        rest = np.flatnonzero(~spline).tolist()
        if rest:
            u = [np.repeat(grids[i][0], len(grids[i][1])) for i in rest]
            v = [np.tile(grids[i][1], len(grids[i][0])) for i in rest]
            sizes = [len(one) for one in u]
            row = np.repeat(index[rest], sizes)
            found = np.stack(self.evaluate(row, np.concatenate(u), np.concatenate(v)))
            for i, one in zip(rest, np.split(found, np.cumsum(sizes)[:-1], axis=1), strict=True):
                shape = (3, 3, len(grids[i][0]), len(grids[i][1]))
                out[i] = one.transpose(0, 2, 1).reshape(shape)
        return out

    def _offset(self, index: Ints, u: Floats, v: Floats) -> tuple[Floats, Floats, Floats]:
        basis, distance = self.basis[index], self.radius[index, 0][:, None]

        def shifted(a: Floats, b: Floats) -> Floats:
            point, by_u, by_v = self.evaluate(basis, a, b)
            normal = np.cross(by_u, by_v)
            length = np.linalg.norm(normal, axis=1, keepdims=True)
            return point + distance * normal / np.where(length > 0, length, 1.0)

        # Offset surfaces are rare, and their exact derivatives need the basis' second ones.
        du = 1e-6 * np.maximum(1.0, np.abs(u))
        dv = 1e-6 * np.maximum(1.0, np.abs(v))
        by_u = (shifted(u + du, v) - shifted(u - du, v)) / (2 * du[:, None])
        by_v = (shifted(u, v + dv) - shifted(u, v - dv)) / (2 * dv[:, None])
        return shifted(u, v), by_u, by_v

    def breaks(self, row: int, box: tuple[float, float, float, float]) -> tuple[Floats, Floats]:
        """Parameters in u and in v between which the surface is smooth and not too curved.

        Args:
            row: the surface.
            box: u and v bounds of the face, (u0, u1, v0, v1).
        """
        u0, u1, v0, v1 = box
        kind = int(self.kind[row])
        if kind == OFFSET:
            return self.breaks(int(self.basis[row]), box)
        if kind in (BEZIER, BSPLINE):
            along_u, along_v, _ = self.table.splines[row]
            return (
                _finer(spline_breaks(along_u, u0, u1), along_u.degree),
                _finer(spline_breaks(along_v, v0, v1), along_v.degree),
            )
        if kind == EXTRUSION:
            return self._curve_breaks(row, u0, u1), np.array([v0, v1])
        if kind == REVOLUTION:
            return turns(u0, u1), self._curve_breaks(row, v0, v1)
        return turns(u0, u1), turns(v0, v1) if kind >= SPHERE else np.array([v0, v1])

    def _curve_breaks(self, row: int, first: float, last: float) -> Floats:
        curve = int(self.basis[row])
        if self.curves.kind[curve] in (2, 3):
            return turns(first, last)
        return _finer(self.curves.breaks(curve, first, last), 3)


def _finer(breaks: Floats, degree: int) -> Floats:
    """At least three cells where the surface is not straight: one span may hold a sharp bend."""
    if degree == 1 or len(breaks) > 3:
        return breaks
    return divided(breaks, 3 if len(breaks) == 2 else 2)


def _column(a: NDArray, like: Floats) -> NDArray:
    return a.reshape(a.shape + (1,) * (like.ndim - a.ndim))
