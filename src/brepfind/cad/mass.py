"""Area, centre, volume and second moments, from the outlines alone where that is exact.

By Green's theorem an integral over a trimmed face is a line integral along its outline of a
function's antiderivative in u. For planes, cylinders, cones, spheres and tori the antiderivative
is a closed form. For all other surfaces it is that of a polynomial through Gauss nodes between the
surface's knots (:mod:`brepfind.cad.quadrature`).

The volume follows from the divergence theorem, so only faces are ever integrated. Open CASCADE
takes about as long for these numbers as for reading the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from brepfind.cad import surfaces as s
from brepfind.cad.boundary import Boundary
from brepfind.cad.quadrature import nodes, trimmed_weights
from brepfind.cad.splines import Floats, Ints
from brepfind.cad.topology import Topology

_PAIRS = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Integrals over each of F faces, lengths in mm and relative to ``origin``.

    Attributes:
        origin: (3,), a point near the part, so that far-away parts lose no digits.
        area: (F,).
        first: (F, 3), integral of the position.
        second: (F, 3, 3), integral of the position's outer product with itself.
        flux: (F,), integral of position times outward normal; a third of its sum is the volume.
        normal: (F, 3), integral of the outward normal.
    """

    origin: Floats
    area: Floats
    first: Floats
    second: Floats
    flux: Floats
    normal: Floats

    @property
    def centroid(self) -> Floats:
        """(F, 3), centre of each face, in the part's own coordinates."""
        area = np.where(self.area > 0, self.area, 1.0)
        return self.first / area[:, None] + self.origin


def integrate(part: Topology, outline: Boundary) -> Moments:
    """Moments of all faces."""
    kind = part.surfaces.kind[part.face_surface]
    n = part.n_faces
    # Sums per face: area; x, y, z; xx, yy, zz, xy, xz, yz; flux; normal x, y, z. First about a
    # frame of the face's own.
    sums = np.zeros((n, 14))
    _flat(part, outline, kind, sums)
    _round(part, outline, kind, sums)
    origin = _origin(part)
    frame, centre = _frames(part, outline, kind)
    first, second, flux, normal = _into_space(sums, frame, centre - origin)
    area = sums[:, 0].copy()
    rows = np.flatnonzero(kind > s.TORUS)
    if rows.size:
        for face, (weight, point, cross) in _free(part, outline, rows):
            point = point - origin[:, None]
            size = np.sqrt((cross * cross).sum(axis=0)) * weight
            area[face] = size.sum()
            first[face] = point @ size
            second[face] = (point * size) @ point.T
            directed = cross * weight
            flux[face] = (point * directed).sum()
            normal[face] = directed.sum(axis=1)
    # Outlines turn with the face on their left, so areas are positive; a face whose outline turns
    # the other way is measured all the same, and the validity check speaks about it.
    turned = np.where(area < 0, -1.0, 1.0)
    sign = turned * part.face_sign
    return Moments(
        origin=origin,
        area=area * turned,
        first=first * turned[:, None],
        second=second * turned[:, None, None],
        flux=flux * sign,
        normal=normal * sign[:, None],
    )


def _origin(part: Topology) -> Floats:
    """A point among the curves, so that moments are taken near the part."""
    usable = np.flatnonzero(part.edge_curve >= 0)
    if not usable.size:
        return part.surfaces.origin[part.face_surface[0]]
    points, _ = part.curves.evaluate(part.edge_curve[usable], part.edge_range[usable].mean(axis=1))
    return (points.min(axis=0) + points.max(axis=0)) / 2


def _frames(part: Topology, outline: Boundary, kind: NDArray[np.uint8]) -> tuple[Floats, Floats]:
    """Axes (F, 3, 3) and origins (F, 3) that put the middle of each face at u = 0.

    Outlines close only within tolerance. An antiderivative that vanishes in the middle of the face
    keeps what such a gap adds small; far from it, the gap would be multiplied by the distance.
    """
    row = part.face_surface
    table = part.surfaces
    x, y, z, origin = table.x[row], table.y[row], table.z[row], table.origin[row]
    middle = outline.box.reshape(-1, 2, 2).mean(axis=2)
    flat = (kind == s.PLANE)[:, None]
    cos, sin = np.cos(middle[:, :1]), np.sin(middle[:, :1])
    frame = np.stack(
        [np.where(flat, x, cos * x + sin * y), np.where(flat, y, cos * y - sin * x), z], axis=1
    )
    return frame, origin + np.where(flat, middle[:, :1] * x + middle[:, 1:] * y, 0.0)


def _sum(face: Ints, values: list[Floats], n: int) -> Floats:
    return np.stack([np.bincount(face, value, minlength=n) for value in values], axis=1)


def _flat(part: Topology, outline: Boundary, kind: NDArray[np.uint8], sums: Floats) -> None:
    at = np.flatnonzero(kind[outline.node_face] == s.PLANE)
    if not at.size:
        return
    face, dv = outline.node_face[at], outline.node_dv[at]
    middle = outline.box.reshape(-1, 2, 2).mean(axis=2)
    u, v = (outline.node_uv[at] - middle[face]).T
    udv = u * dv
    uudv = u * udv / 2
    got = _sum(face, [udv, uudv, udv * v, u * uudv * (2 / 3), udv * v * v, uudv * v], len(sums))
    sums[:, 0] += got[:, 0]
    sums[:, 1:3] += got[:, 1:3]
    sums[:, 4:6] += got[:, 3:5]
    sums[:, 7] += got[:, 5]
    # A plane's flux about a point of its own is zero.
    hand = part.surfaces.hand[part.face_surface]
    sums[:, 13] += got[:, 0] * hand


def _round(part: Topology, outline: Boundary, kind: NDArray[np.uint8], sums: Floats) -> None:
    """Cylinders, cones, spheres and tori, about their own frame."""
    is_round = (kind > s.PLANE) & (kind <= s.TORUS)
    at = np.flatnonzero(is_round[outline.node_face])
    if not at.size:
        return
    face, dv = outline.node_face[at], outline.node_dv[at]
    u, v = outline.node_uv[at].T
    u = u - outline.box[:, :2].mean(axis=1)[face]
    surface = part.face_surface[face]
    radius, d_radius, height, d_height = part.surfaces.profile(surface, v)
    # The nappe of a cone, or the side of a spindle torus: the sign of the radius within the face.
    middle = outline.box[:, 2:].mean(axis=1)
    nappe = np.ones(len(sums))
    rows = np.flatnonzero(is_round)
    nappe[rows] = np.where(
        part.surfaces.profile(part.face_surface[rows], middle[rows])[0] < 0, -1.0, 1.0
    )
    hand = part.surfaces.hand[surface]
    r = radius
    m = np.hypot(d_radius, d_height) * nappe[face]
    cos, sin = np.cos(u), np.sin(u)
    fall = 1 - cos
    rm = r * m * dv
    rrm = r * rm
    rrrm = r * rrm
    # S . n and n, before the length: the normal is hand * r * (h' out - r' axis).
    out, axis = hand * r * d_height * dv, -hand * r * d_radius * dv
    values = [
        u * rm,
        sin * rrm,
        fall * rrm,
        u * height * rm,
        (u + sin * cos) / 2 * rrrm,
        (u - sin * cos) / 2 * rrrm,
        u * height * height * rm,
        sin * sin / 2 * rrrm,
        sin * height * rrm,
        fall * height * rrm,
        u * (r * out + height * axis),
        sin * out,
        fall * out,
        u * axis,
    ]
    sums += _sum(face, values, len(sums))


def _into_space(
    sums: Floats, frame: Floats, shift: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Sums about faces' own frames, turned into the part's axes and about its origin.

    Args:
        sums: (F, 14), as :func:`integrate` has them.
        frame: (F, 3, 3), axes as rows.
        shift: (F, 3), from the part's origin to that of each frame.
    """
    area = sums[:, 0]
    local = np.empty((len(sums), 3, 3))
    for k, (i, j) in enumerate(_PAIRS):
        local[:, i, j] = local[:, j, i] = sums[:, 4 + k]
    turned = np.einsum("fi,fij->fj", sums[:, 1:4], frame)
    first = turned + area[:, None] * shift
    cross = turned[:, :, None] * shift[:, None, :]
    second = (
        np.einsum("fia,fij,fjb->fab", frame, local, frame, optimize=True)
        + cross
        + cross.transpose(0, 2, 1)
        + area[:, None, None] * shift[:, :, None] * shift[:, None, :]
    )
    normal = np.einsum("fi,fij->fj", sums[:, 11:14], frame)
    flux = sums[:, 10] + np.einsum("fi,fi->f", normal, shift)
    return first, second, flux, normal


def _free(
    part: Topology, outline: Boundary, rows: Ints
) -> Iterator[tuple[int, tuple[Floats, Floats, Floats]]]:
    """Free-form faces: the weights (n,) of nodes on each, and, (3, n), where they lie and the
    product of the surface's derivatives there, not normalised.
    """
    order = np.argsort(outline.node_face, kind="stable")
    rank = np.full(part.n_faces, -1)
    rank[rows] = np.arange(len(rows))
    order = order[rank[outline.node_face[order]] >= 0]
    surfaces = part.face_surface[rows]
    cells = [
        part.surfaces.breaks(surface, box)
        for surface, box in zip(surfaces.tolist(), outline.box[rows].tolist(), strict=True)
    ]
    weights = trimmed_weights(
        cells, rank[outline.node_face[order]], outline.node_uv[order], outline.node_dv[order]
    )
    grids = part.surfaces.on_grids(surfaces, [(nodes(u), nodes(v)) for u, v in cells])
    for face, weight, grid in zip(rows.tolist(), weights, grids, strict=True):
        point, (ux, uy, uz), (vx, vy, vz) = grid.reshape(3, 3, -1)
        cross = np.stack([uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx])
        yield face, (weight.ravel(), point, cross)
