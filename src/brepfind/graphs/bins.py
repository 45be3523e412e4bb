"""``.bin`` graph files of DGL: BRepFormer's, UV-Net's and BrepMFR's in, BRepFormer's out.

DGL 1.1.3 writes a header of 4,096 bytes of which it fills 32 and leaves the rest as the memory was;
files written here have zeros there, so that the same part gives the same bytes. DGL loads a file
that lost its last bytes, or whose bytes were flipped, and says nothing: what can be checked is
checked here (the frame of the file, every shape, every number finite, every index in range), and a
SHA-256 is compared where the caller has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brepfind.cad.arrays import PartArrays
from brepfind.errors import InputError
from brepfind.files import atomic_path, sha256
from brepfind.graphs.backend import dgl
from brepfind.graphs.bin_fields import Fields
from brepfind.graphs.bin_frame import HEADER_BYTES, HEADER_USED, check_frame
from brepfind.graphs.bin_layouts import Layout, layout_of, part_of
from brepfind.graphs.dgl_graph import tensor, to_dgl
from brepfind.graphs.pairwise import AngleRule, Pairwise, pairwise

_MATRICES = (
    "angle_matrix",
    "centroid_distance_matrix",
    "shortest_distance_matrix",
    "edge_path_matrix",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BinGraph:
    """One graph file.

    Attributes:
        arrays: the part. Edges stand in the file's order, which need not put the two directions of
            an edge beside each other. ``face_loops`` is 0 where the file does not say. Types and
            other fields that UV-Net and BrepMFR lack are estimates; see the layouts module.
        pairs: the file's own matrices if it is BRepFormer's and has them, else computed ones.
        labels: float32 (F,), the label of each face, or None.
        layout: whose file it is.
    """

    arrays: PartArrays
    pairs: Pairwise
    labels: NDArray[np.float32] | None
    layout: Layout


def write_bin(
    path: Path, arrays: PartArrays, pairs: Pairwise, labels: NDArray[Any] | None = None
) -> str:
    """Write a part in BRepFormer's layout, atomically; the same part gives the same bytes.

    Returns:
        The SHA-256 of the file, in hexadecimal; :func:`read_bin` takes it.
    """
    hops = pairs.hops.astype(np.float32)
    hops[pairs.hops < 0] = np.inf
    matrices = {
        "angle_matrix": tensor(pairs.angle),
        "centroid_distance_matrix": tensor(pairs.distance),
        "shortest_distance_matrix": tensor(hops),
        "edge_path_matrix": tensor(pairs.path),
    }
    with atomic_path(path.absolute()) as aside:
        dgl.save_graphs(str(aside), [to_dgl(arrays, labels)], matrices)
        with aside.open("r+b") as file:
            file.seek(HEADER_USED)
            file.write(bytes(HEADER_BYTES - HEADER_USED))
        digest = sha256(aside)
    return digest


def read_bin(
    path: Path,
    *,
    sha256_hex: str | None = None,
    recompute: bool = False,
    angle_rule: AngleRule = "inside",
) -> BinGraph:
    """Read a graph file.

    Args:
        sha256_hex: what the file's SHA-256 must be, if known.
        recompute: do not read the file's matrices but compute them by ``angle_rule``; for files
            whose matrices hold NaN, as the authors' scripts may leave them.
        angle_rule: for matrices that are computed, asked for or because the file has none.

    Raises:
        InputError: if the file cannot be read, is cut or damaged, or is of no known layout.
    """
    with _loaded(path, sha256_hex) as fields:
        return _from_dgl(fields, recompute, angle_rule)


def read_part(path: Path) -> PartArrays:
    """The part of a graph file alone; errors as for :func:`read_bin`."""
    with _loaded(path) as fields:
        return part_of(fields, layout_of(fields))[0]


@contextmanager
def _loaded(path: Path, sha256_hex: str | None = None) -> Iterator[Fields]:
    """The file's fields; what DGL says while they are read is told of the file."""
    check_frame(path)
    if sha256_hex is not None and sha256(path) != sha256_hex.lower():
        raise InputError(f"{path}: its SHA-256 is not {sha256_hex}; the file is damaged or another")
    try:
        (graph,), saved = dgl.load_graphs(str(path.absolute()))
        yield Fields(graph, saved, path)
    except (dgl.DGLError, RuntimeError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path}: DGL cannot read it ({reason})") from None


def _from_dgl(fields: Fields, recompute: bool, angle_rule: AngleRule) -> BinGraph:
    layout = layout_of(fields)
    arrays, labels = part_of(fields, layout)
    own = [name for name in _MATRICES if name in fields.saved]
    if own and len(own) < len(_MATRICES) and not recompute:
        missing = ", ".join(sorted(set(_MATRICES) - set(own)))
        raise InputError(f"{fields.path}: has some pairwise matrices but lacks {missing}")
    pairs = _matrices(fields) if own and not recompute else pairwise(arrays, angle_rule)
    return BinGraph(arrays=arrays, pairs=pairs, labels=labels, layout=layout)


def _matrices(fields: Fields) -> Pairwise:
    n_faces, path = fields.n_faces, fields.path
    far = fields.array("saved", "shortest_distance_matrix", n_faces, infinite=True)
    reached = np.isfinite(far)
    hops = np.where(reached, far, -1.0)
    if not ((hops == np.rint(hops)) & (hops >= -1) & (hops < n_faces)).all() or hops.trace() != 0:
        raise InputError(f"{path}: 'shortest_distance_matrix' is no matrix of hop counts")
    steps = fields.array("saved", "edge_path_matrix", n_faces, -1)
    if steps.size and not (steps.min() >= -1 and steps.max() < fields.n_edges):
        raise InputError(
            f"{path}: 'edge_path_matrix' names an edge outside 0..{fields.n_edges - 1}"
        )
    return Pairwise(
        hops=hops.astype(np.int16),
        angle=fields.floats("saved", "angle_matrix", n_faces),
        distance=fields.floats("saved", "centroid_distance_matrix", n_faces),
        path=steps.astype(np.int32, copy=False),
    )
