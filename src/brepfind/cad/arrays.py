"""What a STEP file becomes: plain arrays, with the meaning of every field.

Lengths are in *box units*: the part is moved and scaled into a box of side 2 around the origin, as
BRepFormer does, so that its longest side runs from -1 to 1. The size that this loses is kept in
:class:`PartFacts` in millimetres.

F is the number of faces, D the number of directed edges (each shared edge gives two), G the grid
size (10 by default). Face order is the file's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

# Bumped whenever the same STEP file would give other numbers. It is stamped into the graph store,
# caches and weights; a mismatch is refused.
FEATURE_VERSION = 2

# Bumped whenever facts or the signature say something else while the graph stays. It is stamped
# into the graph store only: weights do not depend on facts.
FACTS_VERSION = 2

# Codes of ``face_type``. BRepFormer's one-hot has nine slots, the first nine here; Bezier and
# B-spline faces have no slot there and are all zero.
FACE_TYPES = (
    "plane",
    "cylinder",
    "cone",
    "sphere",
    "torus",
    "revolution",
    "extrusion",
    "offset",
    "other",
    "bezier",
    "bspline",
)
N_FACE_SLOTS = 9

# Slots of ``edge_type``, in BRepFormer's order.
EDGE_TYPES = (
    "circular",
    "closed",
    "elliptical",
    "straight",
    "hyperbolic",
    "parabolic",
    "bezier",
    "bspline",
    "rational_bspline",
    "offset",
    "other",
)

# Codes of ``edge_convexity``, in the order of BRepFormer's one-hot.
CONVEXITIES = ("concave", "convex", "smooth")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFacts:
    """What is known of a part beside its graph; lengths in millimetres whatever the file says.

    Attributes:
        unit: the length unit the file is written in, such as ``mm`` or ``inch``.
        box_min, box_max: corners of the original bounding box, mm.
        volume: mm^3, summed over solids.
        area: mm^2, summed over faces.
        solids: number of solids in the graph.
        seams: seam edges left out (the same face on both sides).
        degenerate: degenerate edges left out (poles, apexes; no curve in space).
        free_edges: edges with only one face, left out.
        nonmanifold: edges with more than two faces; each pair of their faces is joined.
        free_faces: faces that bound no solid (open surfaces, sheets beside or inside a part),
            left out. Under ``multi_solid: split`` counted with the first solid of the file.
        loose_edges: edges that bound no face of a solid (wires, drawn marks, edges of free
            faces), left out; counted as free faces are.
        healed: whether one attempt at healing was needed to make the shape valid.
        signature: float64 invariants of the shape under rigid motion; see the twins module.
    """

    unit: str
    box_min: tuple[float, float, float]
    box_max: tuple[float, float, float]
    volume: float
    area: float
    solids: int
    seams: int = 0
    degenerate: int = 0
    free_edges: int = 0
    nonmanifold: int = 0
    free_faces: int = 0
    loose_edges: int = 0
    healed: bool = False
    signature: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartArrays:
    """The face-adjacency graph of one part.

    Attributes:
        face_grid: float32 (F, G, G, 7). Per UV sample: point xyz (box units), outward unit normal
            xyz, 1 where the sample is inside the trimmed face and 0 where it is outside or on the
            outline, as BRepFormer has it. Axis 1 is u, axis 2 is v, both evenly from the lower to
            the upper bound of the face's outline, ends included. Samples outside the trimming are
            on the surface all the same. At a pole or an apex the normal is that of a cone of
            revolution there, or of a point nearby.
        face_type: uint8 (F,), an index into ``FACE_TYPES``.
        face_area: float32 (F,), of the trimmed face, box units squared.
        face_rational: uint8 (F,), 1 where the surface is a rational Bezier or B-spline.
        face_centroid: float32 (F, 3), centre of mass of the trimmed face, box units; need not lie
            on it.
        face_loops: uint8 (F,), number of wires (1 without holes), capped at 255.
        edge_src, edge_dst: int32 (D,), faces on the left and right of the directed edge; the edge
            runs so that ``edge_src`` is on its left seen from outside. Both directions of every
            edge are present, at 2k and 2k + 1. A pair of faces that shares two edges has four.
        edge_grid: float32 (D, G, 12). Per sample, evenly in the curve's parameter from end to end:
            point xyz (box units), unit tangent xyz in the edge's own direction, outward unit
            normals xyz of the left and the right face.
        edge_type: uint8 (D, 11), flags in the order of ``EDGE_TYPES``: one for the curve, and
            ``closed`` beside it where the edge ends at the vertex it begins at.
        edge_length: float32 (D,), arc length, box units.
        edge_convexity: uint8 (D,), an index into ``CONVEXITIES``: ``smooth`` where the dihedral
            angle at mid-edge is below 0.01 radians, otherwise by its sign.
        edge_dihedral: float32 (D,), radians between the outward normals at mid-edge, 0 where the
            faces go on into each other, positive where convex, negative where concave, -pi to pi.
        facts: what the box units lose, and counts.
    """

    face_grid: NDArray[np.float32]
    face_type: NDArray[np.uint8]
    face_area: NDArray[np.float32]
    face_rational: NDArray[np.uint8]
    face_centroid: NDArray[np.float32]
    face_loops: NDArray[np.uint8]
    edge_src: NDArray[np.int32]
    edge_dst: NDArray[np.int32]
    edge_grid: NDArray[np.float32]
    edge_type: NDArray[np.uint8]
    edge_length: NDArray[np.float32]
    edge_convexity: NDArray[np.uint8]
    edge_dihedral: NDArray[np.float32]
    facts: PartFacts

    @property
    def n_faces(self) -> int:
        """Number of faces, at least 1."""
        return len(self.face_type)

    @property
    def n_edges(self) -> int:
        """Number of directed edges: twice that of shared edges; may be 0."""
        return len(self.edge_src)
