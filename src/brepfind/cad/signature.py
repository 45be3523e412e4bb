"""The geometry signature: what a shape keeps when it is moved, turned or written in another unit.

Two parts are *twins* when all components agree within their tolerance. All components are float64,
in millimetres whatever the file says; a resized part differs in the first three, a mirrored one in
the sign of the last two.

| component | what it is | relative to |
|---|---|---|
| 0 | cube root of the volume | itself |
| 1 | square root of the area | itself |
| 2..4 | principal radii of gyration of the surface, ascending | component 1 |
| 5 | radius of gyration of the faces, each taken to be at its centre | component 1 |
| 6 | mean length of the edges between faces, divided by the number of faces | component 1 |
| 7, 8 | handedness: pseudo-scalars of neighbouring faces (below), as lengths | component 1 |

``SIGNATURE_RTOL`` times the scale in the last column is the tolerance of each component. The
numbers of two writings of one shape differ by the writer's digits and by what reading does to
tolerances, some 1e-7 of the size; parts that differ by design differ by more than 1e-4. The
tolerance stands between.

Handedness: for the edge between faces l and r with centres c and mean outward normals n,
(c_l - c_r) . (n_l x n_r) does not depend on which face is called left, is not changed by any rigid
motion, and changes its sign in a mirror. Summed over edges with the weights L and L (A_l + A_r) it
gives two numbers; both are 0 for a shape that equals its mirror image, and a sum is not cancelled
by a rotational symmetry, as a global triple product would be.
"""

from __future__ import annotations

import numpy as np

from brepfind.cad.splines import Floats, Ints

SIGNATURE_SIZE = 9
SIGNATURE_RTOL = 2e-5

# For each component the one whose value sets its scale.
SIGNATURE_SCALE = (0, 1, 1, 1, 1, 1, 1, 1, 1)


def tolerance(signature: Floats) -> Floats:
    """How far each component of a twin may be away, for signatures (.., 9)."""
    return SIGNATURE_RTOL * np.abs(signature[..., list(SIGNATURE_SCALE)])


def signature(
    *,
    volume: float,
    area: Floats,
    centroid: Floats,
    second: Floats,
    normal: Floats,
    src: Ints,
    dst: Ints,
    length: Floats,
) -> Floats:
    """The signature of a part, float64 (9,).

    Args:
        volume: mm^3.
        area: (F,), mm^2.
        centroid: (F, 3), about any origin.
        second: (F, 3, 3), second moments of the faces about the same origin.
        normal: (F, 3), integrals of the outward normals.
        src, dst, length: the two faces (K,) and the length of each edge once.
    """
    total = float(area.sum())
    scale = np.sqrt(total)
    centre = area @ centroid / total
    gyration = second.sum(axis=0) / total - np.outer(centre, centre)
    radii = np.sqrt(np.clip(np.linalg.eigvalsh(gyration), 0.0, None))
    arm = np.einsum("ij,ij->i", centroid - centre, centroid - centre)
    spread = np.sqrt(area @ arm / total)
    unit = normal / np.where(area > 0, area, 1.0)[:, None]
    twist = np.einsum("ij,ij->i", centroid[src] - centroid[dst], np.cross(unit[src], unit[dst]))
    weights = area[src] + area[dst]
    hand = np.array([length @ twist, (length * weights) @ twist / total])
    perimeter = float(length.sum())
    return np.array(
        [
            np.cbrt(volume),
            scale,
            *radii,
            spread,
            perimeter / max(1, len(length)) / len(area) if len(area) else 0.0,
            # Areas in mm^2, shown as lengths of the same order as the part.
            *(hand / scale),
        ]
    )
