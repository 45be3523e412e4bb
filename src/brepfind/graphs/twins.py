"""Which parts are the same shape: moved, turned or written in another unit.

Two signatures match where each of their numbers is within its tolerance of the other's, and parts
are twins if a chain of matches joins them. No number is rounded into a hash: two values on both
sides of a border between bins match all the same.

What the numbers are and how large the tolerance is, the signature's own module says.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from brepfind.cad.signature import SIGNATURE_RTOL, SIGNATURE_SCALE

# Cells are half a tolerance wide, so that all within one match for sure.
_CELL = 0.5

# Pairs compared at once.
_BLOCK = 100_000

_SMALLEST = 1e-300  # what a number of 0 is taken for, under a logarithm


def twin_groups(signatures: NDArray[np.float64]) -> NDArray[np.int64]:
    """The twin group of each part.

    Args:
        signatures: float64 (N, k) of :func:`brepfind.cad.signature.signature`. A row that is not
            finite matches none; where k is 0, no part is known to be a twin.

    Returns:
        int64 (N,), numbered from 0 in the order in which groups first appear.

    Raises:
        ValueError: if k is neither 0 nor that of the signature.
    """
    n, k = signatures.shape
    if k == 0:
        return np.arange(n)
    if k != len(SIGNATURE_SCALE):
        raise ValueError(f"signatures have {k} numbers, must have {len(SIGNATURE_SCALE)}")
    return groups_within(comparable(signatures), SIGNATURE_RTOL)


def comparable(signatures: NDArray[np.float64]) -> NDArray[np.float64]:
    """Signatures in numbers that all have the tolerance ``SIGNATURE_RTOL``.

    A number that is its own scale becomes its logarithm, any other its ratio to its scale.
    """
    scale = np.array(SIGNATURE_SCALE)
    own = scale == np.arange(len(scale))
    rows = np.array(signatures, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        rows[:, ~own] /= np.abs(signatures[:, scale[~own]])
    rows[:, own] = np.log(np.maximum(rows[:, own], _SMALLEST))
    return rows


def groups_within(rows: NDArray[np.float64], tolerance: float) -> NDArray[np.int64]:
    """Groups of rows joined by chains in which no column steps further than ``tolerance``.

    Seconds for 100,000 rows: equal ones are merged, those in one cell of a grid are joined unseen,
    and only cells that lie next to each other are compared. Rows that are not finite stay alone.

    Returns:
        int64 (N,), numbered from 0 in the order in which groups first appear.
    """
    n = len(rows)
    group = np.arange(n)
    sound = np.flatnonzero(np.isfinite(rows).all(axis=1))
    if len(sound):
        distinct, which = np.unique(rows[sound] / tolerance, axis=0, return_inverse=True)
        group[sound] = n + _components(distinct)[which.ravel()]
    _, first, number = np.unique(group, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[number.ravel()]


def _components(rows: NDArray[np.float64]) -> NDArray[np.int64]:
    """The component of each of some distinct, finite rows whose tolerance is 1."""
    cells, cell_of = np.unique(np.floor(rows / _CELL), axis=0, return_inverse=True)
    cell_of = cell_of.ravel()
    reach = (1.0 + _CELL) * (1 + 1e-9)
    near = cKDTree(cells * _CELL).query_pairs(reach, p=np.inf, output_type="ndarray")
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
        joined[both] = (np.abs(ends[:, 0] - ends[:, 1]) <= 1.0).all(axis=1)
        for pair in np.flatnonzero(~both):
            joined[pair] = _any_match(*(members[cell] for cell in block[pair]))
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


def _any_match(first: NDArray[np.float64], second: NDArray[np.float64]) -> bool:
    step = max(_BLOCK // len(second), 1)
    return any(
        bool((np.abs(first[at : at + step, None] - second[None]) <= 1.0).all(axis=2).any())
        for at in range(0, len(first), step)
    )
