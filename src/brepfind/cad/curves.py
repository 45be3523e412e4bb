"""Curves of a part as one table, evaluated by the batch; in the plane (d = 2) and in space (d = 3).

Lines and conics are one formula, ``origin + a(t) x + b(t) y``; B-splines are grouped by degree.
Parameters are Open CASCADE's, so that a curve and its image in a face's parameters agree.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from brepfind.cad.splines import Axis, CurveGroup, Floats, Ints

LINE, CIRCLE, ELLIPSE, PARABOLA, HYPERBOLA, BEZIER, BSPLINE, TRIMMED, OFFSET = range(1, 10)


@dataclass(slots=True)
class CurveTable:
    """The curves of a part; row i of each list is curve i.

    Attributes:
        dimension: 2 or 3.
        kinds: one of the codes above; a trimmed curve is stored as its basis.
        frames: origin, x axis and y axis end to end (3 d numbers), zeros for splines.
        radii: (r1, r2): radius; major, minor; focal length; or zeros.
        splines: axis and homogeneous poles of the B-spline and Bezier curves, by row.
        offsets: basis row, distance and reference direction of the offset curves, by row.
    """

    dimension: int
    kinds: list[int] = field(default_factory=list)
    frames: list[tuple[float, ...]] = field(default_factory=list)
    radii: list[tuple[float, float]] = field(default_factory=list)
    splines: dict[int, tuple[Axis, Floats]] = field(default_factory=dict)
    offsets: dict[int, tuple[int, float, tuple[float, ...]]] = field(default_factory=dict)

    def add_moved(self, row: int, matrix: Floats) -> int:
        """Add the curve of ``row`` moved by a (3, 4) ``matrix``; returns its row."""
        d = self.dimension
        turn, shift = matrix[:, :3], matrix[:, 3]
        scale = abs(float(np.linalg.det(turn))) ** (1 / 3)
        frame = np.array(self.frames[row]).reshape(3, d)
        straight = self.kinds[row] == LINE
        # A line's parameter is a length; a conic's axes stay unit and its radii scale.
        axes = frame[1:] @ turn.T / (1.0 if straight else scale)
        self.kinds.append(self.kinds[row])
        self.frames.append((*(turn @ frame[0] + shift), *axes.ravel()))
        self.radii.append((self.radii[row][0] * scale, self.radii[row][1] * scale))
        new = len(self.kinds) - 1
        if row in self.splines:
            along, poles = self.splines[row]
            moved = poles.copy()
            moved[..., :3] = poles[..., :3] @ turn.T + poles[..., 3:] * shift
            self.splines[new] = (along, moved)
        if row in self.offsets:
            basis, distance, direction = self.offsets[row]
            self.offsets[new] = (
                self.add_moved(basis, matrix),
                distance * scale,
                tuple(turn @ np.array(direction) / scale),
            )
        return new


class Curves:
    """A finished table, ready to be evaluated."""

    def __init__(self, table: CurveTable) -> None:
        d = table.dimension
        n = len(table.kinds)
        self.dimension = d
        self.kind = np.array(table.kinds, dtype=np.uint8)
        frames = np.array(table.frames, dtype=np.float64).reshape(n, 3, d)
        self.origin, self.x, self.y = frames[:, 0], frames[:, 1], frames[:, 2]
        self.radius = np.array(table.radii, dtype=np.float64).reshape(n, 2)
        self.splines = table.splines
        self.offsets = table.offsets
        self.rational = np.zeros(n, dtype=bool)
        self._slot = np.zeros(n, dtype=np.int64)
        self._degree = np.zeros(n, dtype=np.int64)
        rows: dict[int, list[int]] = {}
        for row, (along, poles) in table.splines.items():
            group = rows.setdefault(along.degree, [])
            self._slot[row] = len(group)
            self._degree[row] = along.degree
            self.rational[row] = bool((poles[:, -1] != poles[0, -1]).any())
            group.append(row)
        self._groups = {
            degree: CurveGroup(
                [table.splines[row][0] for row in group], [table.splines[row][1] for row in group]
            )
            for degree, group in rows.items()
        }

    def evaluate(self, index: Ints, t: Floats) -> tuple[Floats, Floats]:
        """Points and first derivatives at parameters ``t`` (n,) of curves ``index`` (n,).

        Returns two float64 arrays (n, d).
        """
        kind = self.kind[index]
        if not self.splines and not self.offsets:
            return self._analytic(index, kind, t)
        point = np.empty((len(t), self.dimension))
        slope = np.empty_like(point)
        at = np.flatnonzero(kind <= HYPERBOLA)
        if at.size:
            point[at], slope[at] = self._analytic(index[at], kind[at], t[at])
        degree = self._degree[index]
        for p, group in self._groups.items():
            at = np.flatnonzero(degree == p)
            if at.size:
                point[at], slope[at] = group.evaluate(self._slot[index[at]], t[at])
        if self.offsets:
            at = np.flatnonzero(kind == OFFSET)
            if at.size:
                point[at], slope[at] = self._offset(index[at], t[at])
        return point, slope

    def _analytic(self, index: Ints, kind: NDArray[np.uint8], t: Floats) -> tuple[Floats, Floats]:
        """Lines and conics."""
        x = self.x[index]
        point = self.origin[index] + t[:, None] * x
        slope = x + 0.0  # a copy, without negative zeros
        at = np.flatnonzero(kind > LINE)
        if at.size:
            which = index[at]
            x, y = x[at], self.y[which]
            a, b, da, db = _conic(kind[at], self.radius[which], t[at])
            point[at] = self.origin[which] + a[:, None] * x + b[:, None] * y
            slope[at] = da[:, None] * x + db[:, None] * y
        return point, slope

    def _offset(self, index: Ints, t: Floats) -> tuple[Floats, Floats]:
        basis = np.array([self.offsets[i][0] for i in index])
        distance = np.array([self.offsets[i][1] for i in index])[:, None]

        def shifted(at: Floats) -> Floats:
            point, slope = self.evaluate(basis, at)
            if self.dimension == 2:
                across = np.stack([slope[:, 1], -slope[:, 0]], axis=1)
            else:
                across = np.cross(slope, np.array([self.offsets[i][2] for i in index]))
            length = np.linalg.norm(across, axis=1, keepdims=True)
            return point + distance * across / np.where(length > 0, length, 1.0)

        # Offset curves are rare, and their exact derivative needs the basis' second one.
        step = 1e-6 * np.maximum(1.0, np.abs(t))
        slope = (shifted(t + step) - shifted(t - step)) / (2 * step[:, None])
        return shifted(t), slope

    def breaks(self, row: int, first: float, last: float) -> Floats:
        """Parameters, the ends included, between which the curve is smooth and not too curved."""
        if row in self.offsets:
            return self.breaks(self.offsets[row][0], first, last)
        if row not in self.splines:
            return self._conic_breaks(row, first, last)
        along = self.splines[row][0]
        # High degrees, and weights, wind more than a few nodes can follow.
        finer = -(-along.degree // 3) * (2 if self.rational[row] else 1)
        return divided(spline_breaks(along, first, last), finer)

    def _conic_breaks(self, row: int, first: float, last: float) -> Floats:
        if self.kind[row] == LINE:
            return np.array([first, last])
        if self.kind[row] != PARABOLA:
            return turns(first, last)
        # Its parameter is a length, and only near the vertex does it bend: steps are even in the
        # angle whose hyperbolic sine is the slope.
        wide = 2 * self.radius[row, 0]
        breaks = wide * np.sinh(turns(np.arcsinh(first / wide), np.arcsinh(last / wide)))
        breaks[0], breaks[-1] = first, last
        return breaks


def turns(first: float, last: float) -> Floats:
    """Equal steps of at most an eighth of a turn."""
    return np.linspace(first, last, max(1, int(np.ceil((last - first) / (np.pi / 4) - 1e-9))) + 1)


def spline_breaks(along: Axis, first: float, last: float) -> Floats:
    """The ends, and the knots strictly between them, in ascending order."""
    knots = along.distinct
    if along.period > 0 and (first < along.start or last > along.stop):
        low = np.floor((first - along.start) / along.period)
        high = np.floor((last - along.start) / along.period)
        turns = np.arange(low, high + 1)
        knots = np.unique((knots[None, :] + along.period * turns[:, None]).ravel())
    slack = 1e-9 * (last - first)
    begin = int(knots.searchsorted(first + slack, side="right"))
    end = max(begin, int(knots.searchsorted(last - slack)))
    breaks = np.empty(end - begin + 2)
    breaks[0], breaks[1:-1], breaks[-1] = first, knots[begin:end], last
    return breaks


def divided(breaks: Floats, parts: int) -> Floats:
    """Each interval between ``breaks`` in ``parts`` equal ones."""
    if parts == 1:
        return breaks
    out = np.empty((len(breaks) - 1) * parts + 1)
    widths = breaks[1:] - breaks[:-1]
    out[:-1] = (breaks[:-1, None] + widths[:, None] * (np.arange(parts) / parts)).ravel()
    out[-1] = breaks[-1]
    return out


def _conic(
    kind: NDArray[np.uint8], radius: Floats, t: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """The factors of both axes and their derivatives: circle, ellipse, parabola, hyperbola."""
    r1 = radius[:, 0]
    r2 = np.where(kind == CIRCLE, r1, radius[:, 1])
    cos, sin = np.cos(t), np.sin(t)
    a, b, da, db = r1 * cos, r2 * sin, -r1 * sin, r2 * cos
    open_ended = np.flatnonzero(kind >= PARABOLA)
    if open_ended.size:
        for i in open_ended:
            if kind[i] == PARABOLA:
                focal = r1[i]
                a[i], b[i], da[i], db[i] = t[i] ** 2 / (4 * focal), t[i], t[i] / (2 * focal), 1.0
            else:
                ch, sh = np.cosh(t[i]), np.sinh(t[i])
                a[i], b[i], da[i], db[i] = r1[i] * ch, r2[i] * sh, r1[i] * sh, r2[i] * ch
    return a, b, da, db
