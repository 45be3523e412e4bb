"""Integrals over the inside of an outline on surfaces that have no closed form.

The integrand is taken to be a polynomial between Gauss nodes, cell by cell. Its antiderivative in u
is then a polynomial too, and Green's theorem turns the outline into one weight per node.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from brepfind.cad.boundary import gauss
from brepfind.cad.splines import Floats, Ints

_NODES, _WEIGHTS = gauss(6)
_M = len(_NODES)

# Lagrange polynomials through the nodes, as powers: row k holds polynomial k, lowest power first.
_LAGRANGE = np.linalg.inv(np.vander(_NODES, increasing=True)).T
_LAGRANGE_INTEGRAL = np.hstack([np.zeros((_M, 1)), _LAGRANGE / np.arange(1, _M + 1)])

# Cells of a face: the parameters in u and in v between which the integrand is smooth.
Breaks = tuple[Floats, Floats]


def nodes(breaks: Floats) -> Floats:
    """The Gauss nodes of all cells, in ascending order."""
    return (breaks[:-1, None] + (breaks[1:] - breaks[:-1])[:, None] * _NODES).ravel()


def trimmed_weights(cells: Sequence[Breaks], owner: Ints, uv: Floats, dv: Floats) -> list[Floats]:
    """Weights on tensor grids of Gauss nodes that integrate over the inside of outlines.

    Args:
        cells: of each face.
        owner: (n,) ascending, the face that each node of an outline belongs to.
        uv, dv: nodes of the outlines (n, 2), and their dv (n,).

    Returns:
        For each face float64 (a, b), on the :func:`nodes` of its u and v breaks.
    """
    stops = np.searchsorted(owner, np.arange(len(cells)), side="right").tolist()
    shapes = [(len(u) - 1, len(v) - 1) for u, v in cells]
    bases = np.cumsum([0] + [a * b for a, b in shapes]).tolist()
    block = np.empty(len(owner), dtype=np.int64)
    place, width = np.empty((2, len(owner))), np.empty(len(owner))
    begin = 0
    for (u, v), (_, across), base, stop in zip(cells, shapes, bases, stops, strict=False):
        mine = slice(begin, stop)
        cell, place[0, mine], width[mine] = _locate(u, uv[mine, 0])
        row, place[1, mine], _ = _locate(v, uv[mine, 1])
        block[mine] = base + cell * across + row
        begin = stop
    at_v = (np.vander(place[1], _M, increasing=True) @ _LAGRANGE.T) * dv[:, None]
    over_u = (np.vander(place[0], _M + 1, increasing=True) @ _LAGRANGE_INTEGRAL.T) * width[:, None]
    # What the cell that an outline's node lies in contributes up to the node ...
    partly = _sums(block, over_u[:, :, None] * at_v[:, None, :], bases[-1])
    # ... and what all cells before it contribute as a whole.
    passed = _sums(block, at_v, bases[-1])
    weights = []
    for (u, _), (a, b), base in zip(cells, shapes, bases, strict=False):
        mine = slice(base, base + a * b)
        beyond = np.zeros((a, b * _M))
        rows = passed[mine].reshape(a, b * _M)
        beyond[:-1] = np.cumsum(rows[:0:-1], axis=0)[::-1]
        whole = ((u[1:] - u[:-1])[:, None] * _WEIGHTS)[:, :, None] * beyond[:, None, :]
        part = partly[mine].reshape(a, b, _M, _M).transpose(0, 2, 1, 3)
        weights.append(whole.reshape(a * _M, b * _M) + part.reshape(a * _M, b * _M))
    return weights


def _locate(breaks: Floats, x: Floats) -> tuple[Ints, Floats, Floats]:
    """The cell of each x, its place in it (outside 0..1 only beyond the ends), the cell's width.

    A face may be so narrow that a cell of it has no width; whatever its place, it adds nothing.
    """
    cell = np.clip(breaks.searchsorted(x, side="right") - 1, 0, len(breaks) - 2)
    low = breaks[cell]
    width = breaks[cell + 1] - low
    return cell, (x - low) / np.where(width > 0, width, 1.0), width


def _sums(block: Ints, values: Floats, blocks: int) -> Floats:
    """(blocks, ...): the sum of ``values`` (n, ...) of each block."""
    size = values[0].size if len(values) else 1
    at = block[:, None] * size + np.arange(size)
    total = np.bincount(at.ravel(), values.ravel(), minlength=blocks * size)
    return total.reshape(blocks, *values.shape[1:]).astype(np.float64, copy=False)
