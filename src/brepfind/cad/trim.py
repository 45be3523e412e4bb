"""Which grid points lie inside their face: the outline as a polygon in (u, v), one row at a time.

Every side of every outline is crossed with the rows of its face's grid; an odd number of crossings
to the left means inside. Sides of curved outlines are cubics, not chords. The work grows with the
number of crossings, not with points times sides, and a classifier is never called.

Rows are lifted by a hair, so that sides that run along a row, or end on it, are not judged by
rounding. Points on an outline are told by their distance instead, and count as outside, as
BRepFormer has it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from brepfind.cad.boundary import Boundary, hermite
from brepfind.cad.splines import Floats, Ints

_LIFT = 1e-5  # of a grid cell
_NEAR = 3e-5


def inside_mask(outline: Boundary, grid: int) -> NDArray[np.bool_]:
    """Bool (F, G, G): True where a grid point lies inside its face and not on its outline."""
    n = len(outline.box)
    face = outline.segment_face
    low = outline.box[:, [0, 2]]
    size = outline.box[:, [1, 3]] - low
    scale = (grid - 1) / np.where(size > 0, size, 1.0)
    # Sides in grid units: point i of row j stands at (i, j).
    ends = (outline.segment_ends - low[face][:, None]) * scale[face][:, None]
    slopes = outline.segment_slopes * scale[face][:, None]
    side, row, at = _crossings(ends, slopes, 1, grid, _LIFT)
    first = np.clip(np.ceil(at), 0, grid).astype(np.int64)
    at_point = (face[side] * grid + row) * (grid + 1) + first
    toggles = np.bincount(at_point, minlength=n * grid * (grid + 1)).reshape(n, grid, grid + 1)
    inside = np.cumsum(toggles, axis=2)[:, :, :grid] % 2 == 1
    inside = inside.transpose(0, 2, 1)  # rows are v; the mask's axis 1 is u
    _clear_outline(inside, face, ends, slopes, grid)
    return inside


def contains(outline: Boundary, face: Ints, uv: Floats) -> NDArray[np.bool_]:
    """Bool (n,): whether points ``uv`` (n, 2) lie inside the outline of ``face`` (n,)."""
    order = np.argsort(outline.segment_face, kind="stable")
    owner = outline.segment_face[order]
    begin = np.searchsorted(owner, face)
    count = np.searchsorted(owner, face, side="right") - begin
    point = np.repeat(np.arange(len(face)), count)
    begins = np.cumsum(count) - count
    side = order[np.arange(len(point)) - np.repeat(begins - begin, count)]
    ends = outline.segment_ends[side] - uv[point][:, None]
    slopes = outline.segment_slopes[side]
    crosses = (ends[:, 0, 1] <= 0) != (ends[:, 1, 1] <= 0)
    at = np.flatnonzero(crosses)
    t = _solve(ends[at, :, 1], slopes[at, :, 1], np.zeros(len(at)))
    left = hermite(ends[at, :, 0], slopes[at, :, 0], t) < 0
    return np.bincount(point[at[left]], minlength=len(face)) % 2 == 1


def _crossings(
    ends: Floats, slopes: Floats, along: int, grid: int, lift: float
) -> tuple[Ints, Ints, Floats]:
    """Where sides cross ``coordinate[along] = j + lift``: the side, j, the other coordinate."""
    a, b = ends[:, 0, along] - lift, ends[:, 1, along] - lift
    first = np.clip(np.ceil(np.minimum(a, b)), 0, grid).astype(np.int64)
    stop = np.clip(np.ceil(np.maximum(a, b)), 0, grid).astype(np.int64)
    count = stop - first
    side = np.repeat(np.arange(len(ends)), count)
    begins = np.cumsum(count) - count
    line = np.arange(len(side)) - np.repeat(begins - first, count)
    t = _solve(ends[side, :, along], slopes[side, :, along], line + lift)
    other = 1 - along
    return side, line, hermite(ends[side, :, other], slopes[side, :, other], t)


def _solve(ends: Floats, slopes: Floats, target: Floats) -> Floats:
    """Where cubics with ends on both sides of ``target`` reach it, in 0..1."""
    rise = ends[:, 1] - ends[:, 0]
    t = np.clip((target - ends[:, 0]) / np.where(rise != 0, rise, 1.0), 0.0, 1.0)
    bent = np.flatnonzero(
        np.abs(slopes - rise[:, None]).max(axis=1, initial=0.0) > 1e-9 * np.abs(rise)
    )
    if bent.size:
        p, m, goal = ends[bent], slopes[bent], target[bent]
        low, high = np.zeros(len(bent)), np.ones(len(bent))
        rising = p[:, 1] > p[:, 0]
        x = t[bent]
        for _ in range(4):
            miss = hermite(p, m, x) - goal
            below = (miss < 0) == rising
            low, high = np.where(below, x, low), np.where(below, high, x)
            step = x - miss / _nonzero(_hermite_slope(p, m, x))
            # Newton where it stays between what is known, the middle where it would leave.
            x = np.where((step >= low) & (step <= high), step, (low + high) / 2)
        t[bent] = x
    return t


def _hermite_slope(ends: Floats, slopes: Floats, t: Floats) -> Floats:
    rise = ends[:, 1] - ends[:, 0]
    return (
        6 * t * (1 - t) * rise
        + (1 - t) * (1 - 3 * t) * slopes[:, 0]
        + t * (3 * t - 2) * slopes[:, 1]
    )


def _nonzero(x: Floats) -> Floats:
    return np.where(x == 0, 1e-300, x)


def _clear_outline(
    inside: NDArray[np.bool_], face: Ints, ends: Floats, slopes: Floats, grid: int
) -> None:
    """Take points that lie on an outline out of the mask."""
    # A side passes near a grid point if it crosses the point's row or column close to it. Sides
    # are looked at from the direction they run across, and lengthened by a hair at both ends.
    step = ends[:, 1] - ends[:, 0]
    for along in range(2):
        at = np.flatnonzero(np.abs(step[:, along]) >= np.abs(step[:, 1 - along]))
        a, b = ends[at, 0, along], ends[at, 1, along]
        first = np.clip(np.ceil(np.minimum(a, b) - _NEAR), 0, grid).astype(np.int64)
        stop = np.clip(np.floor(np.maximum(a, b) + _NEAR) + 1, 0, grid).astype(np.int64)
        count = np.maximum(stop - first, 0)
        side = np.repeat(at, count)
        begins = np.cumsum(count) - count
        line = np.arange(len(side)) - np.repeat(begins - first, count)
        t = _solve(ends[side, :, along], slopes[side, :, along], line.astype(np.float64))
        other = hermite(ends[side, :, 1 - along], slopes[side, :, 1 - along], t)
        nearest = np.rint(other)
        hit = (np.abs(other - nearest) < _NEAR) & (nearest >= 0) & (nearest < grid)
        across = nearest[hit].astype(np.int64)
        place = (across, line[hit]) if along == 1 else (line[hit], across)
        inside[face[side[hit]], place[0], place[1]] = False
