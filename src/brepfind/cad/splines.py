"""B-splines by the batch: curves and surfaces of one degree are evaluated together.

Letters: n points, d space dimensions, p and q degrees. Poles are kept homogeneous, (.., d + 1) with
the weight last, 1 where the spline is polynomial. Knots are *flat*: repeated by multiplicity, and
continued past both ends where the spline is periodic, so that one rule serves both kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Axis:
    """One parameter direction of a spline.

    Attributes:
        degree: polynomial degree p.
        flat: float64 (poles + p + 1,), flat knots.
        pole_index: which stored pole each flat pole is; longer than the poles where periodic.
        start, stop: the parameter domain.
        period: its length where the spline is periodic, else 0.
        distinct: the knots of the domain, both ends included, each once, ascending.
    """

    degree: int
    flat: Floats
    pole_index: Ints
    start: float
    stop: float
    period: float
    distinct: Floats


def axis(degree: int, knots: Floats, multiplicities: Ints, periodic: bool) -> Axis:
    """The flat form of knots with multiplicities."""
    flat = np.repeat(knots, multiplicities)
    start, stop = float(knots[0]), float(knots[-1])
    if not periodic:
        n = len(flat) - degree - 1
        start, stop = float(flat[degree]), float(flat[n])
        within = knots[(knots >= start) & (knots <= stop)]
        return Axis(degree, flat, np.arange(n), start, stop, 0.0, within)
    period = stop - start
    n_poles = int(multiplicities[:-1].sum())
    before = degree + 1 - int(multiplicities[0])
    body = flat[:n_poles]  # one period, without the closing knot
    # Whole periods are laid side by side until there are enough knots on both ends.
    turns = np.arange(-(before // n_poles) - 1, before // n_poles + 3)
    long = (body[None, :] + period * turns[:, None]).ravel()
    origin = int(-turns[0]) * n_poles
    n = n_poles + before
    flat = long[origin - before : origin - before + n + degree + 1]
    return Axis(degree, flat, np.arange(n) % n_poles, start, stop, period, knots)


class AxisGroup:
    """The knots of several splines of one degree, laid end to end.

    ``keys`` holds every interior knot as 2 * slot + its place in the domain (0 to 1), so that one
    search finds the spans of points on all splines at once.
    """

    def __init__(self, axes: Sequence[Axis]) -> None:
        p = axes[0].degree
        self.degree = p
        lengths = np.array([len(a.flat) for a in axes])
        self.knots = np.concatenate([a.flat for a in axes])
        self.offset = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        self.start = np.array([a.start for a in axes])
        self.period = np.array([a.period for a in axes])
        self.periodic = bool(self.period.any())
        self.inverse = 1.0 / np.array([a.stop - a.start for a in axes])
        self.last = lengths - 2 * p - 2  # the last span, counted from the first
        keys = [
            2.0 * slot + (a.flat[p : len(a.flat) - p] - a.start) * self.inverse[slot]
            for slot, a in enumerate(axes)
        ]
        self.keys = np.concatenate(keys)
        self.key_offset = np.concatenate([[0], np.cumsum(lengths - 2 * p)[:-1]])

    def basis(self, slot: Ints, t: Floats) -> tuple[Ints, list[Floats], list[Floats]]:
        """First pole, basis functions and their derivatives at ``t`` on spline ``slot``.

        Returns the place of the first of p + 1 poles, counted within the spline's flat poles, and
        p + 1 arrays (n,) of each.
        """
        p = self.degree
        if self.periodic:
            period = self.period[slot]
            turns = np.floor((t - self.start[slot]) / np.where(period > 0, period, np.inf))
            t = t - turns * period
        place = np.clip((t - self.start[slot]) * self.inverse[slot], 0.0, 1.0)
        span = np.searchsorted(self.keys, 2.0 * slot + place, side="right") - 1
        span = np.clip(span - self.key_offset[slot], 0, self.last[slot])
        at = span + p + self.offset[slot]
        left = [t] + [t - self.knots[at + 1 - j] for j in range(1, p + 1)]
        right = [t] + [self.knots[at + j] - t for j in range(1, p + 1)]
        values = [np.ones(len(t))]
        lower = values
        for j in range(1, p + 1):
            lower = values
            values = []
            saved = np.zeros(len(t))
            for r in range(j):
                share = lower[r] / (right[r + 1] + left[j - r])
                values.append(saved + right[r + 1] * share)
                saved = left[j - r] * share
            values.append(saved)
        slopes = []
        for i in range(p + 1):
            slope = np.zeros(len(t))
            if i > 0:
                slope += lower[i - 1] / (right[i] + left[p + 1 - i])
            if i < p:
                slope -= lower[i] / (right[i + 1] + left[p - i])
            slopes.append(p * slope)
        return span, values, slopes

    def matrices(self, slot: Ints, ts: Sequence[Floats]) -> list[tuple[int, Floats]]:
        """What turns poles into values and derivatives at ``ts[i]`` on spline ``slot[i]``.

        Returns for each the place of the first pole that counts, and float64 (2, len(t), poles).
        """
        sizes = [len(t) for t in ts]
        first, values, slopes = self.basis(np.repeat(slot, sizes), np.concatenate(ts))
        both = np.stack([np.stack(values, axis=1), np.stack(slopes, axis=1)])
        steps = np.arange(self.degree + 1)
        out = []
        begin = 0
        for size in sizes:
            mine = slice(begin, begin + size)
            begin += size
            low = int(first[mine].min())
            at = first[mine] - low
            matrix = np.zeros((2, size, int(at.max()) + self.degree + 1))
            matrix[:, np.arange(size)[:, None], at[:, None] + steps] = both[:, mine]
            out.append((low, matrix))
        return out


class CurveGroup:
    """B-spline curves of one degree."""

    def __init__(self, axes: Sequence[Axis], poles: Sequence[Floats]) -> None:
        self.axes = AxisGroup(axes)
        spread = [pole[a.pole_index] for a, pole in zip(axes, poles, strict=True)]
        self.poles = np.concatenate(spread)
        self.offset = np.concatenate([[0], np.cumsum([len(s) for s in spread])[:-1]])
        self.rational = bool((self.poles[:, -1] != 1.0).any())

    def evaluate(self, slot: Ints, t: Floats) -> tuple[Floats, Floats]:
        """Points and derivatives, each (n, d)."""
        first, values, slopes = self.axes.basis(slot, t)
        first = first + self.offset[slot]
        point = np.zeros((len(t), self.poles.shape[1]))
        slope = np.zeros_like(point)
        for i, (value, ds) in enumerate(zip(values, slopes, strict=True)):
            pole = self.poles[first + i]
            point += value[:, None] * pole
            slope += ds[:, None] * pole
        if not self.rational:
            return point[:, :-1], slope[:, :-1]
        weight = point[:, -1:]
        position = point[:, :-1] / weight
        return position, (slope[:, :-1] - slope[:, -1:] * position) / weight


class SurfaceGroup:
    """B-spline surfaces of one pair of degrees."""

    def __init__(self, us: Sequence[Axis], vs: Sequence[Axis], poles: Sequence[Floats]) -> None:
        self.u = AxisGroup(us)
        self.v = AxisGroup(vs)
        spread = [
            pole[u.pole_index[:, None], v.pole_index[None, :]]
            for u, v, pole in zip(us, vs, poles, strict=True)
        ]
        self.stride = np.array([s.shape[1] for s in spread])
        self.poles = np.concatenate([s.reshape(-1, 4) for s in spread])
        sizes = [s.shape[0] * s.shape[1] for s in spread]
        self.offset = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self.rational = bool((self.poles[:, -1] != 1.0).any())

    def evaluate(self, slot: Ints, u: Floats, v: Floats) -> tuple[Floats, Floats, Floats]:
        """Points and both first derivatives, each (n, 3)."""
        first_u, value_u, slope_u = self.u.basis(slot, u)
        first_v, value_v, slope_v = self.v.basis(slot, v)
        stride = self.stride[slot]
        first = self.offset[slot] + first_u * stride + first_v
        point = np.zeros((len(u), 4))
        by_u = np.zeros_like(point)
        by_v = np.zeros_like(point)
        for i in range(self.u.degree + 1):
            row = np.zeros_like(point)
            row_v = np.zeros_like(point)
            at = first + i * stride
            for j in range(self.v.degree + 1):
                pole = self.poles[at + j]
                row += value_v[j][:, None] * pole
                row_v += slope_v[j][:, None] * pole
            point += value_u[i][:, None] * row
            by_u += slope_u[i][:, None] * row
            by_v += value_u[i][:, None] * row_v
        if not self.rational:
            return point[:, :3], by_u[:, :3], by_v[:, :3]
        weight = point[:, 3:]
        position = point[:, :3] / weight
        return (
            position,
            (by_u[:, :3] - by_u[:, 3:] * position) / weight,
            (by_v[:, :3] - by_v[:, 3:] * position) / weight,
        )

    def on_grids(self, slot: Ints, grids: Sequence[tuple[Floats, Floats]]) -> list[Floats]:
        """As :meth:`Surfaces.on_grids`: a product of two thin matrices with the poles for each."""
        us = self.u.matrices(slot, [u for u, _ in grids])
        vs = self.v.matrices(slot, [v for _, v in grids])
        out = []
        for k, (low_u, along_u), (low_v, along_v) in zip(slot.tolist(), us, vs, strict=True):
            (_, a, m), (_, b, n) = along_u.shape, along_v.shape
            stride = int(self.stride[k])
            begin = int(self.offset[k]) + low_u * stride
            poles = self.poles[begin : begin + m * stride].reshape(m, stride, 4)
            poles = poles[:, low_v : low_v + n, : 4 if self.rational else 3]
            channels = poles.shape[2]
            half = poles.transpose(0, 2, 1).reshape(m * channels, n) @ along_v.reshape(2 * b, n).T
            full = along_u.reshape(2 * a, m) @ half.reshape(m, channels * 2 * b)
            full = full.reshape(2, a, channels, 2, b).transpose(0, 3, 2, 1, 4)
            found = np.stack([full[0, 0], full[1, 0], full[0, 1]])
            if self.rational:
                weight = found[0, 3]
                found[0, :3] /= weight
                found[1:, :3] = (found[1:, :3] - found[1:, 3:] * found[0, :3]) / weight
            out.append(found[:, :3])
        return out
