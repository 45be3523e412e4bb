"""The fields of a part's graph as they lie in files: name, dtype, shape, and whose rows they are.

One table serves the shard store, the content hash and the check on arrival, so that a field added
to :class:`~brepfind.cad.arrays.PartArrays` cannot be forgotten in one of them. What each field
means is documented there. ``G`` stands for the grid size.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from brepfind.cad.arrays import CONVEXITIES, EDGE_TYPES, FACE_TYPES, PartArrays
from brepfind.errors import RejectedPart

GRID = "G"


@dataclass(frozen=True, slots=True)
class ArrayField:
    """One array of a part.

    Attributes:
        name: the attribute of ``PartArrays``.
        rows: whether it has a row per face or per directed edge.
        dtype: NumPy's name of it.
        tail: the shape of a row; ``G`` stands for the grid size.
    """

    name: str
    rows: Literal["face", "edge"]
    dtype: str
    tail: tuple[int | str, ...] = ()

    def shape(self, rows: int, grid: int) -> tuple[int, ...]:
        """The shape of ``rows`` rows at a grid size."""
        return (rows, *(grid if size == GRID else int(size) for size in self.tail))


# The order is that of the content hash: changing it changes every hash.
FIELDS: tuple[ArrayField, ...] = (
    ArrayField("face_grid", "face", "float32", (GRID, GRID, 7)),
    ArrayField("face_type", "face", "uint8"),
    ArrayField("face_area", "face", "float32"),
    ArrayField("face_rational", "face", "uint8"),
    ArrayField("face_centroid", "face", "float32", (3,)),
    ArrayField("face_loops", "face", "uint8"),
    ArrayField("edge_src", "edge", "int32"),
    ArrayField("edge_dst", "edge", "int32"),
    ArrayField("edge_grid", "edge", "float32", (GRID, 12)),
    ArrayField("edge_type", "edge", "uint8", (len(EDGE_TYPES),)),
    ArrayField("edge_length", "edge", "float32"),
    ArrayField("edge_convexity", "edge", "uint8"),
    ArrayField("edge_dihedral", "edge", "float32"),
)

_CODE_LIMITS = {
    "face_type": len(FACE_TYPES),
    "face_rational": 2,
    "edge_type": 2,
    "edge_convexity": len(CONVEXITIES),
}


def grid_of(arrays: PartArrays) -> int:
    """The grid size of a part."""
    return arrays.face_grid.shape[1]


def content_hash(arrays: PartArrays) -> str:
    """The SHA-256 of a part's arrays, in hexadecimal; its facts are not in it."""
    digest = hashlib.sha256()
    for item in FIELDS:
        value = getattr(arrays, item.name)
        digest.update(f"{item.name}{value.shape}".encode())
        little = np.dtype(item.dtype).newbyteorder("<")
        digest.update(np.ascontiguousarray(value, dtype=little).data)
    return digest.hexdigest()


def check_arrays(arrays: PartArrays, where: str) -> None:
    """See that a part is a graph that can be kept.

    Args:
        where: the path or id that the message names.

    Raises:
        RejectedPart: with reason ``not_finite`` where a number is NaN or infinite, and ``empty``
            where there is no face.
        ValueError: where a dtype, a shape, a code or an edge's end is not what ``PartArrays``
            documents; that is an error of the program, not of the file.
    """
    if arrays.n_faces < 1:
        raise RejectedPart("empty", f"{where}: has no face")
    grid, counts = grid_of(arrays), {"face": arrays.n_faces, "edge": arrays.n_edges}
    for item in FIELDS:
        value = getattr(arrays, item.name)
        shape = item.shape(counts[item.rows], grid)
        if value.dtype != item.dtype or value.shape != shape:
            raise ValueError(
                f"{where}: {item.name} is {value.dtype} {value.shape}, must be {item.dtype} {shape}"
            )
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            first = int(np.flatnonzero(~np.isfinite(value).reshape(len(value), -1).all(axis=1))[0])
            raise RejectedPart(
                "not_finite", f"{where}: {item.name} is not finite, first at {item.rows} {first}"
            )
        limit = _CODE_LIMITS.get(item.name)
        if limit is not None and value.size and int(value.max()) >= limit:
            raise ValueError(f"{where}: {item.name} holds {value.max()}, must be below {limit}")
    _check_ends(arrays, where)
    _check_facts(arrays, where)


def _check_ends(arrays: PartArrays, where: str) -> None:
    ends = np.concatenate([arrays.edge_src, arrays.edge_dst])
    if ends.size and not (ends.min() >= 0 and ends.max() < arrays.n_faces):
        raise ValueError(f"{where}: an edge leads to a face outside 0..{arrays.n_faces - 1}")


def _check_facts(arrays: PartArrays, where: str) -> None:
    facts = arrays.facts
    numbers: NDArray[Any] = np.concatenate(
        [facts.box_min, facts.box_max, [facts.volume, facts.area], facts.signature]
    )
    if not np.isfinite(numbers).all():
        raise RejectedPart(
            "not_finite", f"{where}: box, volume, area or signature is not finite ({facts})"
        )
