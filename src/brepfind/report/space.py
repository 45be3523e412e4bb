"""The space that parts and captions share: who is like whom, and a map of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from brepfind.metrics.rows import unit_rows
from brepfind.retrieval.embeddings import Embeddings

MOST_CELLS = 240  # of a side of the matrix
MOST_MAPPED = 300  # parts on the map


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """Mean cosines between the captions of parts (rows) and parts (columns).

    Attributes:
        values: float64 (N, N).
        groups: families and how many rows each has.
        per_cell: parts that one row stands for, at most.
        own, other: mean cosine of a part's captions to itself, and to other parts.
    """

    values: NDArray[np.float64]
    groups: Sequence[tuple[str, int]]
    per_cell: int
    own: float
    other: float


@dataclass(frozen=True, kw_only=True)
class Map:
    """Parts and their captions' means in a plane.

    Attributes:
        parts: rows of the parts that are there.
        cad, text: float64 (M, 2).
        share: of the variance that the plane keeps.
    """

    parts: NDArray[np.int64]
    cad: NDArray[np.float64]
    text: NDArray[np.float64]
    share: float


def towers(embeddings: Embeddings) -> tuple[NDArray[np.int64], NDArray, NDArray]:
    """Rows of the parts with a caption, their unit vectors, and their captions' mean unit vectors:
    int64 (M,), float64 (M, E) twice.
    """
    cad = unit_rows("CAD", embeddings.cad).astype(np.float64)
    text = unit_rows("text", embeddings.text).astype(np.float64)
    of = embeddings.caption_part
    count = np.bincount(of, minlength=len(cad))
    total = np.zeros_like(cad)
    np.add.at(total, of, text)
    told = np.flatnonzero(count)
    return told, cad[told], total[told] / count[told, None]


def likeness(embeddings: Embeddings) -> Likeness:
    """The matrix of similarity, ordered by family; of many parts, means of neighbours."""
    told, cad, text = towers(embeddings)
    families = embeddings.parts["family"].to_numpy(object)[told]
    order = np.lexsort((told, families.astype(str)))
    cad, text, families = cad[order], text[order], families[order]
    own = np.einsum("me,me->m", text, cad)
    everyone = float(text.sum(0) @ cad.sum(0))
    others = len(told) * (len(told) - 1)
    per_cell = max(1, -(-len(told) // MOST_CELLS))
    cells, groups = [], []
    for family in dict.fromkeys(families.tolist()):
        rows = np.flatnonzero(families == family)
        cut = [rows[start : start + per_cell] for start in range(0, len(rows), per_cell)]
        cells += cut
        groups.append((str(family) or "unknown", len(cut)))
    # The mean of cosines is the product of means.
    wide = np.stack([cad[rows].mean(0) for rows in cells])
    tall = np.stack([text[rows].mean(0) for rows in cells])
    return Likeness(
        values=tall @ wide.T,
        groups=groups,
        per_cell=per_cell,
        own=float(own.mean()),
        other=(everyone - float(own.sum())) / others if others else float("nan"),
    )


def plane(embeddings: Embeddings) -> Map:
    """The first two principal components of both towers together."""
    told, cad, text = towers(embeddings)
    step = max(1, -(-len(told) // MOST_MAPPED))
    told, cad, text = told[::step], cad[::step], text[::step]
    both = np.concatenate([cad, text])
    both = both - both.mean(0)
    _, values, axes = np.linalg.svd(both, full_matrices=False)
    axes = axes[:2]
    # The sign of a component is arbitrary: its largest entry points up.
    axes = axes * np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(1)])[:, None]
    flat = both @ axes.T
    if flat.shape[1] < 2:
        flat = np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))
    total = float((values**2).sum())
    share = float((values[:2] ** 2).sum()) / total if total > 0 else 1.0
    return Map(parts=told, cad=flat[: len(cad)], text=flat[len(cad) :], share=share)
