"""What a graph of UV grids does not say, estimated from the samples.

UV-Net's files hold points, normals and masks of faces, and points and tangents of edges; BRepFormer
also wants types, areas, centroids, lengths, the normals on both sides of an edge, and convexity.
A type is given only where the samples lie on such a surface to a thousandth of the face; areas and
lengths are those of the polygons through the samples, some percent short on strongly curved ones.
The box and the volume of a part are estimated here, too, since no graph file says them.

F faces, D directed edges, G the grid size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from brepfind.cad.arrays import CONVEXITIES, EDGE_TYPES, FACE_TYPES

Floats = NDArray[np.float64]

_FIT = 1e-3  # of a face's or an edge's extent: how far samples may be off a surface or curve
_PARALLEL = 1e-3  # how far unit vectors may differ that count as one
_SMOOTH_DEG = 12.0  # below this angle an edge counts as smooth; a grid step turns normals so far

_CONCAVE, _CONVEX, _SMOOTH = (CONVEXITIES.index(name) for name in ("concave", "convex", "smooth"))
_UNKNOWN_FACE = FACE_TYPES.index("bspline")  # the one that claims nothing: a row of zeros


@dataclass(frozen=True, slots=True, kw_only=True)
class Faces:
    """Types uint8 (F,), areas (F,) and centroids (F, 3), in the units of the grid."""

    type: NDArray[np.uint8]
    area: Floats
    centroid: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """Fields of ``PartArrays`` for edges: grid (D, G, 12), and rows per edge."""

    grid: Floats
    type: NDArray[np.uint8]
    length: Floats
    convexity: NDArray[np.uint8]
    dihedral: Floats


def faces(grid: Floats) -> Faces:
    """What (F, G, G, 7) grids of point, normal and mask tell of their faces."""
    points, part = grid[..., :3], _cells(grid)
    area = part.sum(axis=(1, 2))
    middle = np.einsum("fuvk,fuv->fk", _corners(points), part)
    centroid = np.where(
        area[:, None] > 0, middle / np.where(area > 0, area, 1.0)[:, None], points.mean(axis=(1, 2))
    )
    kinds = np.array([_face_type(face) for face in grid], dtype=np.uint8)
    return Faces(type=kinds, area=area, centroid=centroid)


def box(
    grid: Floats, curve: Floats, src: NDArray[np.int32], dst: NDArray[np.int32]
) -> tuple[Floats, Floats]:
    """Corners (3,), (3,) of the box of the samples that surely lie on a part.

    These are the samples inside faces, and those along edges, since a mask may leave the outline
    out. A face without an edge is cut by nothing: it is on the part with all its samples.

    Args:
        grid: (F, G, G, 7).
        curve: (D, G, 3) or more numbers a sample, the point first.
        src, dst: (D,), the faces of each edge.
    """
    whole = np.bincount(np.concatenate([src, dst]), minlength=len(grid)) == 0
    used = (grid[..., 6] > 0.5) | whole[:, None, None]
    points = np.concatenate([grid[used][:, :3], curve[..., :3].reshape(-1, 3)])
    return points.min(axis=0), points.max(axis=0)


def volume(grid: Floats, area: Floats, middle: Floats) -> float:
    """What (F, G, G, 7) grids enclose, by the divergence theorem.

    Args:
        area: (F,), of the faces; better known than from the samples where the file says it.
        middle: (3,), of the part. Sums are about it, since samples close no surface quite, and
            what is left open counts by its distance.
    """
    flow, part = ((grid[..., :3] - middle) * grid[..., 3:6]).sum(axis=-1), _cells(grid)
    total = part.sum(axis=(1, 2))
    mean = (_corners(flow) * part).sum(axis=(1, 2)) / np.where(total > 0, total, 1.0)
    return abs(float(mean @ area)) / 3.0


def edges(
    curve: Floats, face_grid: Floats, src: NDArray[np.int32], dst: NDArray[np.int32]
) -> Edges:
    """What (D, G, 6) samples of point and tangent tell of edges, their faces given.

    An edge that runs with its source face on the right, seen from outside, is turned round. Which
    side a face is on is hard to see where few samples lie near the edge, so both faces are asked.
    """
    left, left_says = _beside(curve, face_grid, src)
    right, right_says = _beside(curve, face_grid, dst)
    turned = (left_says - right_says < 0)[:, None, None]
    points = np.where(turned, curve[:, ::-1, :3], curve[..., :3])
    tangent = np.where(turned, -curve[:, ::-1, 3:6], curve[..., 3:6])
    left, right = (np.where(turned, side[:, ::-1], side) for side in (left, right))
    # With the left face on the left, the normals turn about the tangent where the edge is convex.
    bend = (np.cross(left, right) * tangent).sum(axis=(1, 2))
    middle = curve.shape[1] // 2
    angle = np.arccos(np.clip((left[:, middle] * right[:, middle]).sum(axis=1), -1.0, 1.0))
    convexity = np.where(bend > 0, _CONVEX, _CONCAVE)
    convexity[(angle < np.radians(_SMOOTH_DEG)) | (src == dst)] = _SMOOTH
    kinds = np.zeros((len(curve), len(EDGE_TYPES)), dtype=np.uint8)
    for edge, samples in enumerate(curve):
        kinds[edge, _edge_types(samples)] = 1
    return Edges(
        grid=np.concatenate([points, tangent, left, right], axis=2),
        type=kinds,
        length=np.linalg.norm(np.diff(curve[..., :3], axis=1), axis=2).sum(axis=1),
        convexity=convexity.astype(np.uint8),
        dihedral=np.where(convexity == _CONCAVE, -angle, angle),
    )


def _cells(grid: Floats) -> Floats:
    """The area that each cell of (F, G, G, 7) grids has inside its face, (F, G - 1, G - 1)."""
    points = grid[..., :3]
    first = points[:, 1:, 1:] - points[:, :-1, :-1]
    second = points[:, 1:, :-1] - points[:, :-1, 1:]
    cell = 0.5 * np.linalg.norm(np.cross(first, second), axis=-1)
    share = _corners((grid[..., 6] > 0.5).astype(np.float64))
    # A face that lies between the samples has no share of any cell; it is smaller than one.
    lost = ~(share * cell > 0).any(axis=(1, 2))
    share[lost] = 1.0 / max(share[0].size, 1)
    return share * cell


def _corners(values: Floats) -> Floats:
    """The mean over the four corners of each cell of a grid, axes 1 and 2."""
    near, far = slice(None, -1), slice(1, None)
    total = values[:, near, near] + values[:, near, far] + values[:, far, near]
    mean: Floats = (total + values[:, far, far]) / 4.0
    return mean


def _beside(curve: Floats, grid: Floats, face: NDArray[np.int32]) -> tuple[Floats, Floats]:
    """The normals of a face along an edge (D, G, 3), and how much it lies on the left of it.

    The second, (D,), is 1 where all samples near the edge are on its left seen from outside, and
    -1 where all are on its right.
    """
    normals, says = np.empty_like(curve[..., :3]), np.zeros(len(curve))
    for edge, (samples, number) in enumerate(zip(curve, face, strict=True)):
        flat = grid[number].reshape(-1, 7)
        offset = flat[None, :, :3] - samples[:, None, :3]
        square = (offset * offset).sum(axis=2)
        normals[edge] = flat[square.argmin(axis=1), 3:6]
        leftward = np.cross(normals[edge], samples[:, 3:6])
        inside = flat[:, 6] if flat[:, 6].any() else np.ones(len(flat))
        # Samples near the edge decide; the small constant keeps those upon it from ruling alone.
        weight = inside / (square + 1e-3 * square.max(axis=1, keepdims=True) + 1e-12) ** 2
        along = (offset * leftward[:, None]).sum(axis=2) * weight
        says[edge] = along.sum() / max(float(np.abs(along).sum()), 1e-300)
    return normals, says


def _face_type(grid: Floats) -> int:
    inside = grid[..., 6] > 0.5
    used = grid[inside] if inside.sum() >= 8 else grid.reshape(-1, 7)
    length = np.linalg.norm(used[:, 3:6], axis=1)
    used, length = used[length > 0.5], length[length > 0.5]
    if len(used) < 4:
        return _UNKNOWN_FACE
    points, normals = used[:, :3], used[:, 3:6] / length[:, None]
    slack = _FIT * float(np.ptp(points, axis=0).max())
    if np.abs(normals - normals.mean(axis=0)).max() < _PARALLEL:
        return FACE_TYPES.index("plane")
    if _off(points, np.eye(3), normals) < slack:
        return FACE_TYPES.index("sphere")
    spread, axes = np.linalg.eigh(np.cov(normals.T))
    if spread[0] < _PARALLEL**2:  # the normals lie on a circle about an axis
        axis, flat = axes[:, 0], axes[:, 1:]
        lean = float((normals @ axis).mean())
        radial = normals @ flat
        height = (points @ axis - points.mean(axis=0) @ axis)[:, None]
        if abs(lean) < _PARALLEL:
            round_ = _off(points @ flat, np.eye(2), radial) < slack
            return FACE_TYPES.index("cylinder" if round_ else "extrusion")
        if _off(points @ flat, np.eye(2), radial, radial * height) < slack:
            return FACE_TYPES.index("cone")
    return FACE_TYPES.index("torus") if _is_torus(grid, slack) else _UNKNOWN_FACE


def _off(points: Floats, constant: Floats, *vectors: Floats) -> float:
    """How far points are, at most, from the best ``constant + sum of factor * vector``."""
    count, size = points.shape
    columns = [np.tile(constant, (count, 1))]
    columns += [vector.reshape(-1, 1) for vector in vectors]
    system = np.concatenate(columns, axis=1)
    found = np.linalg.lstsq(system, points.reshape(-1), rcond=None)[0]
    return float(np.abs(system @ found - points.reshape(-1)).max()) if size else 0.0


def _is_torus(grid: Floats, slack: float) -> bool:
    """Whether a step in one grid direction turns the normal about a circle of circles' middles."""
    points, normals = grid[..., :3], grid[..., 3:6]
    for axis in (0, 1):
        step, turn = np.diff(points, axis=axis), np.diff(normals, axis=axis)
        square = float((turn * turn).sum())
        if square < _PARALLEL:
            continue
        radius = float((step * turn).sum()) / square
        if np.abs(step - radius * turn).max() < slack:
            middles = (points - radius * normals).mean(axis=axis)
            return _off_circle(middles) < slack
    return False


def _off_circle(points: Floats) -> float:
    """How far points are, at most, from the best circle through them."""
    centred = points - points.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    flat, height = centred @ axes[:2].T, centred @ axes[2]
    system = np.column_stack([2 * flat, np.ones(len(flat))])
    x, y, rest = np.linalg.lstsq(system, (flat * flat).sum(axis=1), rcond=None)[0]
    radius = np.sqrt(max(rest + x * x + y * y, 0.0))
    off = np.linalg.norm(flat - (x, y), axis=1) - radius
    return float(np.hypot(off, height).max())


def _edge_types(curve: Floats) -> list[int]:
    points, tangents = curve[:, :3], curve[:, 3:6]
    slack = _FIT * float(np.ptp(points, axis=0).max())
    closed = [EDGE_TYPES.index("closed")] if np.abs(points[0] - points[-1]).max() <= slack else []
    if np.abs(tangents - tangents[0]).max() < _PARALLEL and not closed:
        return [EDGE_TYPES.index("straight")]
    if _off_circle(points) < slack:
        return [EDGE_TYPES.index("circular"), *closed]
    return [EDGE_TYPES.index("other"), *closed]
