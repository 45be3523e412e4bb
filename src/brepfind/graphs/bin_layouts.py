"""Whose graph file it is, and the part it holds.

    BRepFormer   faces x, t, a, r, c (l), edges x (12 numbers a sample), t, l, c; in box units
    BrepMFR      faces x, z type, y area, l loops, a neighbours (f label),
                 edges x (point, tangent and more), t type, l length, a angle, c convexity
    UV-Net       faces x, edges x (point, tangent); (y label)

UV-Net's points are in the units of the STEP file and BrepMFR's may be: both are moved and scaled
into the box here, and what that loses is kept in the facts (with the unit unknown). What they do
not say, and the codes of BrepMFR's types and convexities, which are nowhere written down, is
estimated from the samples.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from brepfind.cad.arrays import CONVEXITIES, EDGE_TYPES, FACE_TYPES, PartArrays, PartFacts
from brepfind.errors import InputError
from brepfind.graphs import estimate
from brepfind.graphs.bin_fields import Fields

Layout = Literal["brepformer", "uvnet", "brepmfr"]


def layout_of(fields: Fields) -> Layout:
    """Whose file it is, by the names and shapes of its fields.

    Raises:
        InputError: if it is of no known layout; the message says which fields it has.
    """
    face, edge = fields.face.keys(), fields.edge.keys()
    if face >= {"x", "t", "a", "r", "c"} and edge >= {"x", "t", "l", "c"}:
        return "brepformer"
    if face >= {"x", "z", "y", "l", "a"} and edge >= {"x", "t", "l", "a", "c"}:
        return "brepmfr"
    if "x" in face and face <= {"x", "y"} and (edge == {"x"} or fields.n_edges == 0):
        return "uvnet"
    raise InputError(
        f"{fields.path}: is of no known layout (faces have {sorted(face)}, edges have "
        f"{sorted(edge)}); files of BRepFormer, UV-Net and BrepMFR are read"
    )


def part_of(fields: Fields, layout: Layout) -> tuple[PartArrays, NDArray[np.float32] | None]:
    """The part and the labels of its faces, if there are any.

    Raises:
        InputError: if a field is missing, misshapen or not finite.
    """
    if fields.n_faces < 1:
        raise InputError(f"{fields.path}: has no face")
    label = {"brepformer": "l", "brepmfr": "f", "uvnet": "y"}[layout]
    labels = fields.floats("face", label) if label in fields.face else None
    return (_brepformer(fields) if layout == "brepformer" else _from_grids(fields, layout)), labels


def _brepformer(fields: Fields) -> PartArrays:
    src, dst = fields.ends()
    face_grid = fields.floats("face", "x", -1, -1, 7)
    edge_grid = fields.floats("edge", "x", -1, 12)
    if not face_grid.shape[1] == face_grid.shape[2] == edge_grid.shape[1]:
        raise InputError(
            f"{fields.path}: its grids differ in size: faces {face_grid.shape[1:3]}, "
            f"edges {edge_grid.shape[1]}"
        )
    area = fields.floats("face", "a")
    grid = face_grid.astype(np.float64)
    corners = estimate.box(grid, edge_grid.astype(np.float64), src, dst)
    # The box is about the origin: what the samples miss on one side they may have on the other.
    half = np.abs(corners).max(axis=0)
    if not half.max() > 0:
        raise InputError(f"{fields.path}: all its samples are the origin")
    half /= half.max()  # its longest side is 2, whatever the samples reach
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
        facts=_facts(_to_the_rim(grid), area, (-half, half), unit="box"),
    )


def _from_grids(fields: Fields, layout: Layout) -> PartArrays:
    """A part of UV-Net or BrepMFR."""
    src, dst = fields.ends()
    grid = fields.array("face", "x", -1, -1, 7).astype(np.float64)
    if fields.n_edges:
        curve = fields.array("edge", "x", -1, -1).astype(np.float64)
    else:  # a file without edges may hold an empty field of any shape
        curve = np.zeros((0, grid.shape[1], 6))
    if not (grid.shape[1] == grid.shape[2] == curve.shape[1] and curve.shape[2] >= 6):
        raise InputError(
            f"{fields.path}: its grids differ in size: faces {grid.shape[1:]}, edges "
            f"{curve.shape[1:]}; the same number of samples is needed along u, v and edges"
        )
    found = estimate.faces(grid)
    area = found.area
    if layout == "brepmfr":
        area = _close_to(fields.array("face", "y").astype(np.float64), area)
    low, high = estimate.box(grid, curve, src, dst)
    middle, longest = (low + high) / 2.0, float((high - low).max())
    if not longest > 0:
        raise InputError(f"{fields.path}: all its samples are one point")
    facts = _facts(grid, area, (low, high), unit="unknown")
    scale = 2.0 / longest
    grid[..., :3] = (grid[..., :3] - middle) * scale
    curve = curve[..., :6].copy()
    curve[..., :3] = (curve[..., :3] - middle) * scale
    sides = estimate.edges(curve, grid, src, dst)
    length = sides.length
    loops = np.zeros(fields.n_faces)
    if layout == "brepmfr":
        length = _close_to(fields.array("edge", "l").astype(np.float64) * scale, length)
        loops = fields.array("face", "l").clip(0, 255)
    return PartArrays(
        face_grid=grid.astype(np.float32),
        face_type=found.type,
        face_area=(area * scale**2).astype(np.float32),
        face_rational=np.zeros(fields.n_faces, dtype=np.uint8),
        face_centroid=((found.centroid - middle) * scale).astype(np.float32),
        face_loops=loops.astype(np.uint8),
        edge_src=src,
        edge_dst=dst,
        edge_grid=sides.grid.astype(np.float32),
        edge_type=sides.type,
        edge_length=length.astype(np.float32),
        edge_convexity=sides.convexity,
        edge_dihedral=sides.dihedral.astype(np.float32),
        facts=facts,
    )


def _close_to(said: NDArray[np.float64], estimated: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a file says of sizes, unless it does so in other units than those of its points."""
    used = estimated > 0
    ratio = float(np.median(said[used] / estimated[used])) if used.any() else 1.0
    return said if 0.5 < ratio < 2.0 else estimated


def _dihedral(edge_grid: NDArray[np.float32], convexity: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The angle between the normals of both faces at mid-edge, signed by the convexity."""
    middle = edge_grid[:, edge_grid.shape[1] // 2].astype(np.float64)
    left, right = middle[:, 6:9], middle[:, 9:12]
    scale = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    cosine = (left * right).sum(axis=1) / np.where(scale > 0, scale, 1.0)
    sign = np.where(convexity == CONVEXITIES.index("concave"), -1.0, 1.0)
    return (sign * np.arccos(np.clip(cosine, -1.0, 1.0))).astype(np.float32)


def _to_the_rim(grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """The (F, G, G, 7) grids of faces with masks that at the rim are as they are beside it.

    BRepFormer's mask leaves out the outline, and with it the rim of every grid: the seam of a
    cylinder, too, where no face ends. The cells there would weigh half.
    """
    beside = np.arange(grid.shape[1]).clip(1, grid.shape[1] - 2)
    return np.concatenate([grid[..., :6], grid[:, beside][:, :, beside, 6:]], axis=-1)


def _facts(
    grid: NDArray[np.float64],
    area: NDArray[np.floating],
    box: tuple[NDArray[np.float64], NDArray[np.float64]],
    unit: str,
) -> PartFacts:
    """What a graph without its STEP file tells: sizes in its own units, the volume an estimate."""
    low, high = box
    areas = area.astype(np.float64)
    return PartFacts(
        unit=unit,
        box_min=(float(low[0]), float(low[1]), float(low[2])),
        box_max=(float(high[0]), float(high[1]), float(high[2])),
        volume=estimate.volume(grid, areas, (low + high) / 2.0),
        area=float(areas.sum()),
        solids=1,
    )
