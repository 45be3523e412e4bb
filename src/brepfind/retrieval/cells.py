"""Approximate search for a million vectors and more: cells around centres (faiss ``IndexIVFFlat``).

Of faiss' kinds this one gives every vector back as it was put in, takes more without learning
anew, can be searched exactly (all cells), and needs a few per cent more memory than the vectors;
a graph (HNSW) is quicker but forgets nothing it was told, so that a deletion means a new one.

How many cells a query looks into is found by measuring: so many that it finds at least
:data:`MIN_RECALL` of the true nearest ten. The queries of this measurement lie halfway between two
parts, further from any part than a sentence is from those it tells of.
"""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

MIN_RECALL = 0.99

_K = 10
_QUERIES = 256
_LEARN_FROM = 64  # vectors per cell that the centres are learnt from
_FIRST_PROBES = 8


def cells_for(parts: int) -> int:
    """How many cells: a power of two around four times the square root of the parts."""
    return 2 ** max(0, round(np.log2(4 * np.sqrt(parts))))


def make(unit: NDArray[np.float32], like: Any = None) -> tuple[Any, float]:
    """Vectors in cells, and the recall of a search among them.

    Args:
        unit: float32 (P, E), unit rows.
        like: an older index; if it is of cells as many as these vectors need, its centres serve.
    """
    n, dim = unit.shape
    count = cells_for(n)
    if isinstance(like, faiss.IndexIVFFlat) and like.nlist == count:
        vectors: Any = faiss.clone_index(like)
        vectors.reset()
    else:
        vectors = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, count, faiss.METRIC_INNER_PRODUCT)
        vectors.cp.seed = 1
        vectors.cp.min_points_per_centroid = 1  # few vectors learn few centres, without a warning
        vectors.cp.max_points_per_centroid = _LEARN_FROM
        vectors.train(unit)
    vectors.add(unit)
    vectors.make_direct_map()  # which cell holds a row, to give it back
    return vectors, _tune(vectors, unit)


def _tune(vectors: Any, unit: NDArray[np.float32]) -> float:
    """Set how many cells a query looks into; returns the recall that this gives."""
    draw = np.random.default_rng(0)
    one, other = draw.integers(0, len(unit), (2, _QUERIES))
    queries = unit[one] + unit[other]
    queries /= np.maximum(np.linalg.norm(queries, axis=1, keepdims=True), 1e-9)
    k = min(_K, len(unit))
    true, _ = search_all(vectors, queries, k)
    vectors.nprobe = min(_FIRST_PROBES, vectors.nlist)
    while True:
        found, _ = vectors.search(queries, k)
        recall = recall_at(found, true)
        if recall >= MIN_RECALL or vectors.nprobe == vectors.nlist:
            return recall
        vectors.nprobe = min(2 * vectors.nprobe, vectors.nlist)


def recall_at(found: NDArray[np.float32], true: NDArray[np.float32]) -> float:
    """The share of ``found`` scores (Q, k) that are as good as the k-th of the ``true`` ones.

    By score and not by row, so that equal vectors may stand for each other.
    """
    return float((found >= true[:, -1:] - 1e-6).mean())


def search_all(
    vectors: Any, unit: NDArray[np.float32], k: int, chosen: Any = None
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Search all cells, exactly, among the ``chosen`` (an ``IDSelector``) or all."""
    options = faiss.SearchParametersIVF(nprobe=vectors.nlist, sel=chosen)  # type: ignore[call-arg]
    return vectors.search(unit, k, params=options)
