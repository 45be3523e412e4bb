"""Outward unit normals, from parameters or from points, never NaN."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from brepfind.cad import surfaces as s
from brepfind.cad.boundary import Boundary
from brepfind.cad.splines import Floats, Ints
from brepfind.cad.topology import Topology

_NUDGE = 1e-3  # of the face's size in u and v


def at_parameters(
    part: Topology, outline: Boundary, face: Ints, u: Floats, v: Floats
) -> tuple[Floats, Floats]:
    """Points (n, 3) and outward unit normals (n, 3) at (u, v) (n,) of ``face`` (n,).

    Where a free-form surface has no normal (a pole, a collapsed side), that of a point nudged
    towards the middle of the face stands in.
    """
    surface = part.face_surface[face]
    kind = part.surfaces.kind[surface]
    point, by_u, by_v = part.surfaces.evaluate(surface, u, v)
    normal = np.empty_like(point)
    at = np.flatnonzero(kind == s.PLANE)
    normal[at] = part.surfaces.z[surface[at]] * part.surfaces.hand[surface[at], None]
    at = np.flatnonzero((kind > s.PLANE) & (kind <= s.TORUS))
    if at.size:
        normal[at] = _round(part, outline, face[at], u[at], v[at])
    at = np.flatnonzero(kind > s.TORUS)
    if at.size:
        normal[at] = _free(part, outline, face[at], u[at], v[at], np.cross(by_u[at], by_v[at]))
    return point, normal * part.face_sign[face, None]


def _round(part: Topology, outline: Boundary, face: Ints, u: Floats, v: Floats) -> Floats:
    """Cylinders, cones, spheres, tori; defined at apexes and poles too."""
    surface = part.face_surface[face]
    table = part.surfaces
    radius, d_radius, _, d_height = table.profile(surface, v)
    side = np.where(radius < 0, -1.0, 1.0)
    # At an apex the radius has no sign of its own; the face's middle has.
    apex = np.flatnonzero(np.abs(radius) < 1e-9 * (1 + np.abs(table.radius[surface, 0])))
    if apex.size:
        middle = outline.box[face[apex], 2:].mean(axis=1)
        side[apex] = np.where(table.profile(surface[apex], middle)[0] < 0, -1.0, 1.0)
    factor = table.hand[surface] * side / np.hypot(d_radius, d_height)
    out = np.cos(u)[:, None] * table.x[surface] + np.sin(u)[:, None] * table.y[surface]
    return (factor * d_height)[:, None] * out - (factor * d_radius)[:, None] * table.z[surface]


def _free(
    part: Topology, outline: Boundary, face: Ints, u: Floats, v: Floats, cross: Floats
) -> Floats:
    """Normals of free-form surfaces from the product of their derivatives."""
    length = np.linalg.norm(cross, axis=1)
    surface = part.face_surface[face]
    box = outline.box[face]
    # What the product would be if the face were flat tells what is small.
    typical = np.zeros(part.n_faces)
    np.maximum.at(typical, face, length)
    nudge = _NUDGE
    for _ in range(4):
        weak = np.flatnonzero(~(length > 1e-6 * typical[face]))
        if not weak.size:
            break
        toward = box[weak]
        nu = u[weak] + nudge * (toward[:, :2].mean(axis=1) - u[weak])
        nv = v[weak] + nudge * (toward[:, 2:].mean(axis=1) - v[weak])
        _, by_u, by_v = part.surfaces.evaluate(surface[weak], nu, nv)
        cross[weak] = np.cross(by_u, by_v)
        length[weak] = np.linalg.norm(cross[weak], axis=1)
        np.maximum.at(typical, face[weak], length[weak])
        nudge *= 10
    still = ~(length > 0)
    cross[still] = (0.0, 0.0, 1.0)
    length[still] = 1.0
    return cross / length[:, None]


def from_points(part: Topology) -> NDArray[np.bool_]:
    """The faces (F,) whose normals :func:`at_points` gives. Spindle tori pass through
    themselves, so that a point does not tell the side.
    """
    kind = part.surfaces.kind[part.face_surface]
    r1, r2 = part.surfaces.radius[part.face_surface].T
    return (kind <= s.TORUS) & ~((kind == s.TORUS) & (r2 >= r1))


def at_points(part: Topology, face: Ints, point: Floats) -> Floats:
    """Outward unit normals of planes, cylinders, cones, spheres and tori at points on them (n, 3).

    Only the point is needed, not its parameters. Rows of other faces are left zero.
    """
    surface = part.face_surface[face]
    table = part.surfaces
    kind = table.kind[surface]
    normal = table.z[surface].copy()
    at = np.flatnonzero((kind > s.PLANE) & (kind <= s.TORUS))
    if at.size:
        row, which = surface[at], kind[at]
        axis = table.z[row]
        arm = point[at] - table.origin[row]
        height = np.einsum("ij,ij->i", arm, axis)
        flat = arm - height[:, None] * axis
        out = _unit(flat, table.x[row])
        r1, r2 = table.radius[row].T
        cone, torus, ball = which == s.CONE, which == s.TORUS, which == s.SPHERE
        tilt = np.where(cone, r2, 0.0)
        nappe = np.where(cone & (r1 + height * np.tan(tilt) < 0), -1.0, 1.0)
        normal[at] = np.cos(tilt)[:, None] * out - (nappe * np.sin(tilt))[:, None] * axis
        rounded = np.flatnonzero(torus | ball)
        if rounded.size:
            centre = np.where(torus, r1, 0.0)[rounded, None] * out[rounded]
            normal[at[rounded]] = _unit(arm[rounded] - centre, out[rounded])
    free = kind > s.TORUS
    normal *= (part.face_sign[face] * table.hand[surface])[:, None]
    normal[free] = 0.0
    return normal


def _unit(vector: Floats, otherwise: Floats) -> Floats:
    length = np.linalg.norm(vector, axis=1, keepdims=True)
    return np.where(length > 1e-12, vector / np.where(length > 1e-12, length, 1.0), otherwise)
