"""``.bin`` graph files of DGL in BRepFormer's layout, in and out.

DGL 1.1.3 writes a header of 4,096 bytes of which it fills 32 and leaves the rest as the memory was;
files written here have zeros there, so that the same part gives the same bytes. DGL loads a file
that lost its last bytes, or whose bytes were flipped, and says nothing: what can be checked is
checked here (the frame of the file, every shape, every number finite, every index in range), and a
SHA-256 is compared where the caller has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from brepfind.cad.arrays import CONVEXITIES, EDGE_TYPES, FACE_TYPES, PartArrays, PartFacts
from brepfind.errors import InputError
from brepfind.files import atomic_path, sha256
from brepfind.graphs.backend import DGLGraph, dgl
from brepfind.graphs.bin_frame import HEADER_BYTES, HEADER_USED, check_frame
from brepfind.graphs.dgl_graph import tensor, to_dgl
from brepfind.graphs.pairwise import AngleRule, Pairwise, pairwise

Layout = Literal["brepformer", "uvnet", "brepmfr"]

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
            an edge beside each other. ``face_loops`` is 0 where the file does not say.
        pairs: the file's own matrices, or computed ones where it has none.
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
    check_frame(path)
    if sha256_hex is not None and sha256(path) != sha256_hex.lower():
        raise InputError(f"{path}: its SHA-256 is not {sha256_hex}; the file is damaged or another")
    try:
        (graph,), saved = dgl.load_graphs(str(path.absolute()))
        return _from_dgl(_Fields(graph, saved, path), recompute, angle_rule)
    except (dgl.DGLError, RuntimeError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path}: DGL cannot read it ({reason})") from None


class _Fields:
    """The fields of a loaded file, each checked when it is asked for."""

    def __init__(self, graph: DGLGraph, saved: Mapping[str, Tensor], path: Path) -> None:
        self.graph = graph
        self.face = dict(graph.ndata)
        self.edge = dict(graph.edata)
        self.saved = dict(saved)
        self.path = path
        self.n_faces = int(graph.num_nodes())
        self.n_edges = int(graph.num_edges())

    def array(
        self, of: Literal["face", "edge", "saved"], name: str, *tail: int, infinite: bool = False
    ) -> NDArray[Any]:
        """A field as an array; -1 in ``tail`` stands for any size.

        Raises:
            InputError: if it is missing, has another shape, or holds NaN (or infinity).
        """
        fields: dict[str, Tensor] = getattr(self, of)
        what = {"face": "ndata", "edge": "edata", "saved": "label"}[of]
        if name not in fields:
            raise InputError(f"{self.path}: has no {what} {name!r}")
        value = fields[name].numpy()
        rows = self.n_edges if of == "edge" else self.n_faces
        shape = (rows, *tail)
        if value.ndim != len(shape) or any(
            want not in (-1, got) for got, want in zip(value.shape, shape, strict=True)
        ):
            asked = tuple("any" if want == -1 else want for want in shape)
            raise InputError(f"{self.path}: {what} {name!r} is {value.shape}, must be {asked}")
        good = ~np.isnan(value) if infinite else np.isfinite(value)
        if not good.all():
            bad = np.argwhere(~good)[0].tolist()
            hint = "; read it with recompute=True to leave its matrices" if of == "saved" else ""
            raise InputError(f"{self.path}: {what} {name!r} is not finite at {bad}{hint}")
        return value

    def ends(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Source and target face of each edge."""
        src, dst = (ends.numpy().astype(np.int64) for ends in self.graph.edges())
        both = np.concatenate([src, dst])
        if both.size and not (both.min() >= 0 and both.max() < self.n_faces):
            raise InputError(f"{self.path}: an edge leads to a face outside 0..{self.n_faces - 1}")
        return src.astype(np.int32), dst.astype(np.int32)

    def codes(
        self, of: Literal["face", "edge"], name: str, slots: int, otherwise: int | None
    ) -> NDArray[np.uint8]:
        """A one-hot field as codes; ``otherwise`` is the code of a row of zeros, if one may be."""
        hot = self.flags(of, name, slots)
        total = hot.sum(axis=1)
        bad = np.flatnonzero((total > 1) | ((total < 1) & (otherwise is None)))
        if len(bad):
            raise InputError(f"{self.path}: row {bad[0]} of {of} field {name!r} is not one-hot")
        codes = hot.argmax(axis=1).astype(np.uint8)
        if otherwise is not None:
            codes[total == 0] = otherwise
        return codes

    def flags(self, of: Literal["face", "edge"], name: str, *tail: int) -> NDArray[np.uint8]:
        """A field of zeros and ones."""
        value = self.array(of, name, *tail)
        if not np.isin(value, (0, 1)).all():
            raise InputError(f"{self.path}: {of} field {name!r} holds other numbers than 0 and 1")
        return value.astype(np.uint8)

    def floats(
        self, of: Literal["face", "edge", "saved"], name: str, *tail: int
    ) -> NDArray[np.float32]:
        """A field of numbers."""
        return self.array(of, name, *tail).astype(np.float32, copy=False)


def _from_dgl(fields: _Fields, recompute: bool, angle_rule: AngleRule) -> BinGraph:
    if fields.n_faces < 1:
        raise InputError(f"{fields.path}: has no face")
    face, edge = fields.face.keys(), fields.edge.keys()
    if face >= {"x", "t", "a", "r", "c"} and edge >= {"x", "t", "l", "c"}:
        arrays = _brepformer(fields)
    else:
        raise InputError(
            f"{fields.path}: is of no known layout (faces have {sorted(face)}, edges "
            f"{sorted(edge)}); BRepFormer's files are read"
        )
    own = [name for name in _MATRICES if name in fields.saved]
    if own and len(own) < len(_MATRICES) and not recompute:
        missing = ", ".join(sorted(set(_MATRICES) - set(own)))
        raise InputError(f"{fields.path}: has some pairwise matrices but lacks {missing}")
    pairs = _matrices(fields) if own and not recompute else pairwise(arrays, angle_rule)
    labels = fields.floats("face", "l") if "l" in face else None
    return BinGraph(arrays=arrays, pairs=pairs, labels=labels, layout="brepformer")


def _brepformer(fields: _Fields) -> PartArrays:
    src, dst = fields.ends()
    face_grid = fields.floats("face", "x", -1, -1, 7)
    edge_grid = fields.floats("edge", "x", -1, 12)
    if not face_grid.shape[1] == face_grid.shape[2] == edge_grid.shape[1]:
        raise InputError(
            f"{fields.path}: its grids differ in size: faces {face_grid.shape[1:3]}, "
            f"edges {edge_grid.shape[1]}"
        )
    area = fields.floats("face", "a")
    convexity = fields.codes("edge", "c", len(CONVEXITIES), CONVEXITIES.index("smooth"))
    return PartArrays(
        face_grid=face_grid,
        # A row of zeros is a Bezier or a B-spline face; the file does not say which.
        face_type=fields.codes("face", "t", 9, FACE_TYPES.index("bspline")),
        face_area=area,
        face_rational=fields.flags("face", "r"),
        face_centroid=fields.floats("face", "c", 3),
        face_loops=np.zeros(fields.n_faces, dtype=np.uint8),
        edge_src=src,
        edge_dst=dst,
        edge_grid=edge_grid,
        edge_type=fields.flags("edge", "t", len(EDGE_TYPES)),
        edge_length=fields.floats("edge", "l"),
        edge_convexity=convexity,
        edge_dihedral=_dihedral(edge_grid, convexity),
        facts=_facts(face_grid, area),
    )


def _matrices(fields: _Fields) -> Pairwise:
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


def _dihedral(edge_grid: NDArray[np.float32], convexity: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The angle between the normals of both faces at mid-edge, signed by the convexity."""
    middle = edge_grid[:, edge_grid.shape[1] // 2].astype(np.float64)
    left, right = middle[:, 6:9], middle[:, 9:12]
    scale = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    cosine = (left * right).sum(axis=1) / np.where(scale > 0, scale, 1.0)
    sign = np.where(convexity == CONVEXITIES.index("concave"), -1.0, 1.0)
    return (sign * np.arccos(np.clip(cosine, -1.0, 1.0))).astype(np.float32)


def _facts(face_grid: NDArray[np.float32], area: NDArray[np.float32]) -> PartFacts:
    """What a graph without its STEP file tells: sizes in box units, the volume an estimate.

    The estimate is the divergence theorem over the samples inside each face.
    """
    grid = face_grid.astype(np.float64)
    inside = grid[..., 6] > 0.5
    inside |= ~inside.any(axis=(1, 2), keepdims=True)  # a face between the samples has none
    points, normals = grid[..., :3], grid[..., 3:6]
    flux = ((points * normals).sum(axis=-1) * inside).sum(axis=(1, 2)) / inside.sum(axis=(1, 2))
    used = points[inside]
    low, high = used.min(axis=0), used.max(axis=0)
    return PartFacts(
        unit="box",
        box_min=(float(low[0]), float(low[1]), float(low[2])),
        box_max=(float(high[0]), float(high[1]), float(high[2])),
        volume=abs(float((flux * area).sum())) / 3.0,
        area=float(area.astype(np.float64).sum()),
        solids=1,
    )
