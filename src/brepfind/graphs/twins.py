"""Which parts are the same shape: moved, turned or written in another unit.

Two signatures match where every number of one is within its tolerance of the other's,

    |a - b| <= absolute + relative * max(|a|, |b|),

and parts are twins if a chain of matches joins them. No number is rounded into a hash: two values
on both sides of a border between bins match all the same.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

# Cells are half a tolerance wide, so that all within one match for sure.
_CELL = 0.5

# Pairs of members compared at once.
_BLOCK = 100_000


def twin_groups(
    signatures: NDArray[np.float64],
    *,
    relative: ArrayLike = 1e-4,
    absolute: ArrayLike = 1e-6,
) -> NDArray[np.int64]:
    """The twin group of each part.

    A signature that holds NaN matches none. Takes seconds for 100,000 parts: equal rows are merged,
    rows of one cell of a grid joined unseen, and only cells that lie next to each other compared.

    Args:
        signatures: (N, k).
        relative: for all numbers, or (k,) for each; 0 to 0.1.
        absolute: likewise; above 0.

    Returns:
        int64 (N,), numbered from 0 in the order in which groups first appear.

    Raises:
        ValueError: if a tolerance is out of range.
    """
    signatures = np.asarray(signatures, dtype=np.float64)
    n, k = signatures.shape
    relative = np.broadcast_to(np.asarray(relative, dtype=np.float64), k)
    absolute = np.broadcast_to(np.asarray(absolute, dtype=np.float64), k)
    if not ((relative >= 0).all() and (relative <= 0.1).all() and (absolute > 0).all()):
        raise ValueError("tolerances must be 0 <= relative <= 0.1 and absolute > 0")
    if n == 0 or k == 0:
        return np.arange(n)
    sound = np.flatnonzero(np.isfinite(signatures).all(axis=1))
    rows, row_of = np.unique(signatures[sound], axis=0, return_inverse=True)
    group = np.arange(n) + len(rows)  # each unsound part on its own
    group[sound] = _components(rows, relative, absolute)[row_of.ravel()]
    return _by_appearance(group)


def match(
    a: NDArray[np.float64],
    b: NDArray[np.float64],
    relative: NDArray[np.float64],
    absolute: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Whether signatures match, along the last axis."""
    limit = absolute + relative * np.maximum(np.abs(a), np.abs(b))
    return np.asarray((np.abs(a - b) <= limit).all(axis=-1))


def _components(
    rows: NDArray[np.float64], relative: NDArray[np.float64], absolute: NDArray[np.float64]
) -> NDArray[np.int64]:
    """The component of each of some distinct, finite rows."""
    scaled = _scale(rows, relative, absolute)
    cells, cell_of = np.unique(np.floor(scaled / _CELL), axis=0, return_inverse=True)
    cell_of = cell_of.ravel()
    # In scaled numbers a match is at most this far; see _scale.
    reach = 1.0 / (1.0 - float(relative.max())) + _CELL
    near = cKDTree(cells * _CELL).query_pairs(reach * (1 + 1e-9), p=np.inf, output_type="ndarray")
    order = np.argsort(cell_of, kind="stable")
    starts = np.searchsorted(cell_of[order], np.arange(len(cells) + 1))
    members = [rows[order[begin:end]] for begin, end in pairwise(starts)]
    single = np.diff(starts) == 1
    lone = np.stack([member[0] for member in members])
    component = np.arange(len(cells))
    for at in range(0, len(near), _BLOCK):
        block = near[at : at + _BLOCK]
        block = block[component[block[:, 0]] != component[block[:, 1]]]
        both = single[block].all(axis=1)
        joined = np.zeros(len(block), dtype=bool)
        ends = lone[block[both]]
        joined[both] = match(ends[:, 0], ends[:, 1], relative, absolute)
        for pair in np.flatnonzero(~both):
            first, second = (members[cell] for cell in block[pair])
            joined[pair] = _any_match(first, second, relative, absolute)
        component = _join(component, block[joined])
    return component[cell_of]


def _join(component: NDArray[np.int64], links: NDArray[np.int64]) -> NDArray[np.int64]:
    """The components after the ends of each link are joined."""
    if not len(links):
        return component
    ends = component[links]
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), (len(component),) * 2)
    joined: NDArray[np.int64] = connected_components(graph, directed=False)[1].astype(np.int64)
    return joined[component]


def _scale(
    rows: NDArray[np.float64], relative: NDArray[np.float64], absolute: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The rows in numbers whose tolerance is about 1 everywhere.

    With ``u(x) = log(1 + relative x / absolute) / relative``, odd in x, a match of two numbers
    means that their u differ by at most ``1 / (1 - relative)``, and u of one sign that differ by at
    most 1/2 mean a match.
    """
    size = np.abs(rows) / absolute
    safe = np.where(relative > 0, relative, 1.0)
    return np.sign(rows) * np.where(relative > 0, np.log1p(safe * size) / safe, size)


def _any_match(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    relative: NDArray[np.float64],
    absolute: NDArray[np.float64],
) -> bool:
    step = max(_BLOCK // len(second), 1)
    return any(
        match(first[at : at + step, None], second[None], relative, absolute).any()
        for at in range(0, len(first), step)
    )


def _by_appearance(group: NDArray[np.int64]) -> NDArray[np.int64]:
    _, first, number = np.unique(group, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[number.ravel()]
