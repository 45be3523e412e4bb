"""The geometry signature: what a shape keeps when it is moved, turned or written in another unit.

Two parts are *twins* when all components agree within their tolerance. All components are float64,
in millimetres whatever the file says; a resized part differs in the first three, a mirrored one in
the sign of the last four.

| component | what it is |
|---|---|
| 0 | cube root of the volume |
| 1 | square root of the area |
| 2..4 | principal radii of gyration of the surface, ascending |
| 5 | radius of gyration of the faces, each taken to be at its centre |
| 6 | mean length of the edges between faces, divided by the number of faces |
| 7, 8 | handedness of neighbours (below), as lengths |
| 9, 10 | handedness of the whole (below), as lengths |

``SIGNATURE_RTOL`` times component 1 is the tolerance of each: the size of the part, not the number
itself, since the volume of a thin shell is far less certain than that of a block. The numbers of
two writings of one shape differ by the writer's digits and by what reading does to tolerances:
1e-9 of the size for most parts, up to 1e-5 for faces whose outlines are loose; parts that differ
by design differ by more than 1e-4. The tolerance stands between.

Handedness is measured by pseudo-scalars: numbers that no rigid motion changes and that a mirror
gives the other sign, so that they are 0 for a shape that equals its mirror image. No one of them
sees every handed shape, hence four.

*Neighbours*: for the edge between faces l and r with centres c and mean outward normals n,
(c_l - c_r) . (n_l x n_r) does not depend on which face is called left. Summed over edges with the
weights L and L (A_l + A_r) it gives two numbers that no rotational symmetry cancels. Small loose
faces disturb them, so they count a quarter.

*The whole*: in the right-handed principal frame of the surface, with the faces' centres at
(x, y, z), the mean of x y z is one, and the other comes from the mean of r^2 (x, y, z): of its
three components the smallest, with the sign of their product. Turning the frame about one of its
axes changes neither. Both see what stands on different sides of a part, as a window in one wall and
slots in the next. They fade out where two radii of gyration are within a tenth of the largest of
each other, for there the frame is ill defined, and are so steady elsewhere that they count tenfold.
"""

from __future__ import annotations

import numpy as np

from brepfind.cad.splines import Floats, Ints

SIGNATURE_SIZE = 11
SIGNATURE_RTOL = 2e-5

# For each component the one whose value sets its scale.
SIGNATURE_SCALE = (1,) * SIGNATURE_SIZE

# How much handedness counts against lengths, after how well each kind is reproduced.
_NEIGHBOURS, _WHOLE = 0.25, 10.0

# Radii of gyration this close to each other, by the largest, leave their axes uncertain.
_CLOSE = 0.1


def tolerance(signature: Floats) -> Floats:
    """How far each component of a twin may be away, for signatures (.., 11)."""
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
    """The signature of a part, float64 (11,).

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
    arm = centroid - centre
    moments, axes = np.linalg.eigh(second.sum(axis=0) / total - np.outer(centre, centre))
    radii = np.sqrt(np.clip(moments, 0.0, None))
    spread = np.sqrt(area @ np.einsum("ij,ij->i", arm, arm) / total)
    perimeter = float(length.sum())
    unit = normal / np.where(area > 0, area, 1.0)[:, None]
    twist = np.einsum("ij,ij->i", arm[src] - arm[dst], np.cross(unit[src], unit[dst]))
    weights = area[src] + area[dst]
    neighbours = np.array([length @ twist, (length * weights) @ twist / total])
    return np.array(
        [
            np.cbrt(volume),
            scale,
            *radii,
            spread,
            perimeter / max(1, len(length)) / len(area) if len(area) else 0.0,
            # Areas in mm^2, shown as lengths of the same order as the part.
            *(_NEIGHBOURS * neighbours / scale),
            *(_WHOLE * _hand_of_whole(area / total, arm, axes, radii)),
        ]
    )


def _hand_of_whole(share: Floats, arm: Floats, axes: Floats, radii: Floats) -> Floats:
    """Two pseudo-scalars of the third moments of face centres in the principal frame, mm (2,).

    Args:
        share: (F,), of the area.
        arm: (F, 3), face centres about that of the surface.
        axes: (3, 3), the principal axes as columns.
        radii: (3,), radii of gyration along them, ascending.
    """
    squared = float(radii @ radii)
    if not squared > 0:
        return np.zeros(2)
    steady = min(1.0, float(np.diff(radii).min() / radii[-1]) / _CLOSE)
    x = arm @ (axes * np.linalg.det(axes))
    triple = share @ x.prod(axis=1)
    heavy = (share * np.einsum("ij,ij->i", x, x)) @ x
    least = np.sign(heavy.prod()) * np.abs(heavy).min()
    return steady * np.array([triple, least]) / squared
