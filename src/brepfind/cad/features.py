"""From topology to :class:`PartArrays`: everything computed once, over all faces together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from brepfind.cad import boundary, box, edges, mass, normals
from brepfind.cad import surfaces as s
from brepfind.cad.arrays import FACE_TYPES, PartArrays, PartFacts
from brepfind.cad.boundary import Boundary
from brepfind.cad.mass import Moments
from brepfind.cad.signature import signature
from brepfind.cad.splines import Floats, Ints
from brepfind.cad.topology import Topology
from brepfind.cad.trim import inside_mask
from brepfind.errors import RejectedPart

# What is no longer a part: wider than 100 km, or thinner than 1 nm all round.
LARGEST_MM = 1e8
SMALLEST_MM = 1e-6

_TYPE_OF = np.full(16, FACE_TYPES.index("other"), dtype=np.uint8)
for _kind, _name in {
    s.PLANE: "plane",
    s.CYLINDER: "cylinder",
    s.CONE: "cone",
    s.SPHERE: "sphere",
    s.TORUS: "torus",
    s.EXTRUSION: "extrusion",
    s.REVOLUTION: "revolution",
    s.BEZIER: "bezier",
    s.BSPLINE: "bspline",
    s.OFFSET: "offset",
}.items():
    _TYPE_OF[_kind] = FACE_TYPES.index(_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What is known of a part before it is scaled; lengths in mm."""

    part: Topology
    outline: Boundary
    moments: Moments
    point: Floats
    normal: Floats
    mask: NDArray[np.bool_]
    box_min: Floats
    box_max: Floats
    volume: float
    area: float


def measure(part: Topology, grid: int) -> Measured:
    """Sample and integrate all faces, and check what came out.

    Raises:
        RejectedPart: ``box``, ``volume``, ``not_finite`` or ``invalid``.
    """
    curved = part.surfaces.kind[part.face_surface[part.coedge_face]] != s.PLANE
    if (part.coedge_pcurve[curved] < 0).any():
        raise RejectedPart("invalid", "an edge has no curve on one of its faces")
    outline = boundary.build(part)
    n = part.n_faces
    _check_outlines(outline, n)
    steps = np.linspace(0.0, 1.0, grid)
    u0, u1, v0, v1 = (outline.box[:, k, None] for k in range(4))
    u = np.repeat(u0 + (u1 - u0) * steps, grid, axis=1)
    v = np.tile(v0 + (v1 - v0) * steps, (1, grid))
    face = np.repeat(np.arange(n), grid * grid)
    point, normal = normals.at_parameters(part, outline, face, u.ravel(), v.ravel())
    mask = inside_mask(outline, grid)
    moments = mass.integrate(part, outline)
    free = part.surfaces.kind[part.face_surface] > s.TORUS
    grid_points = point.reshape(n, grid, grid, 3)
    within = grid_points[free[:, None, None] & mask]
    box_min, box_max = box.bounding_box(part, outline, within)
    check_box(box_min, box_max)
    size = float((box_max - box_min).max())
    volume = _check_volumes(_volumes(part, moments), size)
    return Measured(
        part=part,
        outline=outline,
        moments=moments,
        point=grid_points,
        normal=normal.reshape(n, grid, grid, 3),
        mask=mask,
        box_min=box_min,
        box_max=box_max,
        volume=volume,
        area=float(moments.area.sum()),
    )


def _volumes(part: Topology, moments: Moments) -> Floats:
    """Of each solid, mm^3; below zero where its faces look inward."""
    face, solid, turned = part.shared.T
    flux = np.concatenate([moments.flux, moments.flux[face] * (1 - 2 * turned)])
    owner = np.concatenate([part.face_solid, solid])
    return np.bincount(owner, flux, minlength=part.solids) / 3


def _check_volumes(volumes: Floats, size: float) -> float:
    """The volume of a part of ``size`` mm, whose solids' volumes must all be above zero: one that
    is inside out would be taken off the others, and its normals look inward.

    Raises:
        RejectedPart: ``volume``.
    """
    volume = float(volumes.sum())
    if not volume > 1e-12 * size**3:
        raise RejectedPart("volume", f"its volume is {volume:.6g} mm^3")
    wrong = np.flatnonzero(~(volumes > 0))
    if wrong.size:
        raise RejectedPart(
            "volume",
            f"the volume of solid {wrong[0] + 1} of {len(volumes)} is {volumes[wrong[0]]:.6g} mm^3",
        )
    return volume


def _check_outlines(outline: Boundary, n: int) -> None:
    """Refuse faces whose outline does not come back to where it began.

    Everything measured on a face follows from its outline in (u, v). One that lacks a seam or a
    pole encloses nothing there, though the edges may close in space. Outlines of sound faces close
    within a thousandth of their width.

    Raises:
        RejectedPart: ``not_finite`` or ``invalid``.
    """
    if not np.isfinite(outline.box).all():
        raise RejectedPart("not_finite", "a face has no finite outline")
    for k, rise in enumerate((outline.node_du, outline.node_dv)):
        gap = np.abs(np.bincount(outline.node_face, rise, minlength=n))
        width = outline.box[:, 2 * k + 1] - outline.box[:, 2 * k]
        open_ = np.flatnonzero(~(gap <= 0.01 * width + 1e-9))
        if open_.size:
            raise RejectedPart(
                "invalid",
                f"the outline of face {open_[0]} does not close on its surface: "
                f"a seam or a pole is missing",
            )


def check_box(box_min: Floats, box_max: Floats, smallest: float = SMALLEST_MM) -> None:
    """Refuse a box that is no part's.

    Raises:
        RejectedPart: ``box``.
    """
    size = float((box_max - box_min).max())
    reach = float(np.abs([box_min, box_max]).max())
    if not (size <= LARGEST_MM and reach <= LARGEST_MM and size >= smallest):
        raise RejectedPart(
            "box",
            f"its bounding box is {size:.3g} mm wide and reaches out to {reach:.3g} mm; "
            f"sizes from {SMALLEST_MM:g} to {LARGEST_MM:g} mm are accepted",
        )


def arrays(measured: Measured, grid: int, unit: str, healed: bool) -> PartArrays:
    """Scale a measured part into its box and add its edges.

    Raises:
        RejectedPart: ``not_finite``.
    """
    part, moments = measured.part, measured.moments
    pairs = edges.pair(part)
    along = edges.sample(part, measured.outline, pairs, grid)
    left, right = part.coedge_face[pairs.left], part.coedge_face[pairs.right]
    centre = (measured.box_min + measured.box_max) / 2
    scale = 2.0 / float((measured.box_max - measured.box_min).max())
    n = part.n_faces
    face_grid = np.empty((n, grid, grid, 7), dtype=np.float32)
    face_grid[..., :3] = (measured.point - centre) * scale
    face_grid[..., 3:6] = measured.normal
    face_grid[..., 6] = measured.mask
    k = len(left)
    edge_grid = np.empty((k, 2, grid, 12), dtype=np.float32)
    edge_grid[:, 0, :, :3] = (along.point - centre) * scale
    edge_grid[:, 0, :, 3:6] = along.tangent
    edge_grid[:, 0, :, 6:9] = along.left
    edge_grid[:, 0, :, 9:] = along.right
    # The other direction: the same samples from the far end, tangents turned, sides exchanged.
    back = edge_grid[:, 0, ::-1]
    edge_grid[:, 1, :, :3] = back[..., :3]
    edge_grid[:, 1, :, 3:6] = -back[..., 3:6]
    edge_grid[:, 1, :, 6:9] = back[..., 9:]
    edge_grid[:, 1, :, 9:] = back[..., 6:9]
    kind = _TYPE_OF[part.surfaces.kind[part.face_surface]]
    rational = np.zeros(len(part.surfaces.kind), dtype=np.uint8)
    rational[list(part.surfaces.table.rational)] = 1
    facts = PartFacts(
        unit=unit,
        box_min=tuple(measured.box_min.tolist()),
        box_max=tuple(measured.box_max.tolist()),
        volume=measured.volume,
        area=measured.area,
        solids=part.solids,
        seams=pairs.seams,
        degenerate=pairs.degenerate,
        free_edges=pairs.free,
        nonmanifold=pairs.nonmanifold,
        free_faces=part.free_faces,
        loose_edges=part.loose_edges,
        healed=healed,
        signature=signature(
            volume=measured.volume,
            area=moments.area,
            centroid=moments.centroid - moments.origin,
            second=moments.second,
            normal=moments.normal,
            src=left,
            dst=right,
            length=along.length,
        ),
    )
    found = PartArrays(
        face_grid=face_grid,
        face_type=kind,
        face_area=(moments.area * scale**2).astype(np.float32),
        face_rational=rational[part.face_surface],
        face_centroid=((moments.centroid - centre) * scale).astype(np.float32),
        face_loops=np.minimum(part.face_loops, 255).astype(np.uint8),
        edge_src=_both(left, right),
        edge_dst=_both(right, left),
        edge_grid=edge_grid.reshape(2 * k, grid, 12),
        edge_type=np.repeat(along.kind, 2, axis=0),
        edge_length=np.repeat(along.length * scale, 2).astype(np.float32),
        edge_convexity=np.repeat(along.convexity, 2),
        edge_dihedral=np.repeat(along.angle, 2).astype(np.float32),
        facts=facts,
    )
    _check_finite(found)
    return found


def _both(first: Ints, second: Ints) -> np.ndarray:
    return np.stack([first, second], axis=1).ravel().astype(np.int32)


def _check_finite(found: PartArrays) -> None:
    for name in (
        "face_grid",
        "face_area",
        "face_centroid",
        "edge_grid",
        "edge_length",
        "edge_dihedral",
    ):
        if not np.isfinite(getattr(found, name)).all():
            raise RejectedPart("not_finite", f"{name} holds a number that is not finite")
    if not np.isfinite(found.facts.signature).all():
        raise RejectedPart("not_finite", "the geometry signature is not finite")
