"""Faces, coedges and edges of a part, numbered as the file has them.

A *coedge* is one use of an edge by a wire of a face. Orientations here are as seen in the face's
own parameters (the face taken forward), so that wires turn with the material on their left; from
outside the solid the sense turns around where the face is reversed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from brepfind.cad.brep import EDGE, FACE, REVERSED, SOLID, WIRE, Brep, Child
from brepfind.cad.curves import Curves
from brepfind.cad.splines import Floats, Ints
from brepfind.cad.surfaces import Surfaces

# An edge or face in place: its shape and its placement (row of ``_Places.matrices``).
_Key = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A part as arrays over faces (F), coedges (C) and edges (E).

    Attributes:
        face_surface: (F,) rows of ``surfaces``.
        face_sign: float64 (F,), +1 or -1: what turns the surface's own normal outward.
        face_solid: (F,) the solid a face belongs to.
        face_loops: (F,) number of wires.
        shared: (S, 3), a row for each face of a solid that belongs to an earlier one: the face,
            the other solid, and 1 where it looks to the other side there, else 0.
        coedge_face, coedge_wire, coedge_edge: (C,) owners; wires are numbered over the whole part,
            and coedges stand wire by wire in the file's order.
        coedge_reversed: bool (C,), against the edge's curve, in the face's own parameters.
        coedge_pcurve: (C,) rows of ``pcurves``, -1 where the edge has none on this face.
        coedge_range: float64 (C, 2), parameters on the pcurve.
        edge_curve: (E,) rows of ``curves``, -1 for degenerate edges.
        edge_range: float64 (E, 2), parameters on the curve.
        edge_degenerate: bool (E,).
        edge_tolerance: float64 (E,), mm.
        edge_closed: bool (E,), begins and ends at one vertex.
        solids: how many there are.
        free_faces, loose_edges: shapes left out, as in :class:`brepfind.cad.arrays.PartFacts`.
    """

    surfaces: Surfaces
    curves: Curves
    pcurves: Curves
    face_surface: Ints
    face_sign: Floats
    face_solid: Ints
    face_loops: Ints
    shared: Ints
    coedge_face: Ints
    coedge_wire: Ints
    coedge_edge: Ints
    coedge_reversed: NDArray[np.bool_]
    coedge_pcurve: Ints
    coedge_range: Floats
    edge_curve: Ints
    edge_range: Floats
    edge_degenerate: NDArray[np.bool_]
    edge_tolerance: Floats
    edge_closed: NDArray[np.bool_]
    solids: int
    free_faces: int
    loose_edges: int

    @property
    def n_faces(self) -> int:
        return len(self.face_surface)

    @property
    def n_edges(self) -> int:
        return len(self.edge_curve)


class _Places:
    """Placements met so far; row 0 is where the file put it, which is nearly all there is."""

    def __init__(self, brep: Brep) -> None:
        self.brep = brep
        self.matrices: list[Floats] = [brep.locations[0]]
        self._rows: dict[bytes, int] = {self.matrices[0].tobytes(): 0}
        self._known: dict[tuple[int, int], int] = {}
        self._surfaces: dict[_Key, int] = {}
        self._curves: dict[_Key, int] = {}

    def compose(self, place: int, location: int) -> int:
        """The placement of something at ``location`` inside ``place``."""
        if location == 0:
            return place
        known = self._known.get((place, location))
        if known is not None:
            return known
        outer, inner = self.matrices[place], self.brep.locations[location]
        matrix = np.hstack(
            [outer[:, :3] @ inner[:, :3], (outer[:, :3] @ inner[:, 3] + outer[:, 3])[:, None]]
        )
        row = self._rows.setdefault(matrix.tobytes(), len(self.matrices))
        if row == len(self.matrices):
            self.matrices.append(matrix)
        self._known[place, location] = row
        return row

    def surface(self, row: int, place: int) -> int:
        """The row of a surface put in its place."""
        if place == 0:
            return row
        key = (row, place)
        if key not in self._surfaces:
            self._surfaces[key] = self.brep.surfaces.add_moved(row, self.matrices[place])
        return self._surfaces[key]

    def curve(self, row: int, place: int) -> int:
        """The row of a curve in space put in its place."""
        if place == 0:
            return row
        key = (row, place)
        if key not in self._curves:
            self._curves[key] = self.brep.curves.add_moved(row, self.matrices[place])
        return self._curves[key]


class _Collector:
    """Walks the shape depth first, as Open CASCADE's explorer does."""

    def __init__(self, brep: Brep) -> None:
        self.brep = brep
        self.places = _Places(brep)
        self.face_keys: dict[_Key, int] = {}
        self.face_rows: list[tuple[int, int, int, int]] = []  # surface, reversed, solid, loops
        self.shared: list[tuple[int, int, int]] = []  # face, solid, turned
        self.edge_keys: dict[_Key, int] = {}
        self.edge_rows: list[tuple[int, float, float, bool, float, bool]] = []
        self.coedges: list[tuple[int, int, int, int, int, float, float]] = []
        self.wires = 0
        self.solids = -1
        self.strays: list[tuple[Child, int]] = []  # what bounds no solid, and the place it is in

    def solids_of(self, child: Child, place: int, flip: int) -> list[tuple[int, int, int]]:
        """(shape, orientation, place) of every solid below ``child``, each once."""
        found: dict[_Key, tuple[int, int, int]] = {}

        def walk(node: Child, place: int, flip: int) -> None:
            orientation, shape, location = node
            place = self.places.compose(place, location)
            flip ^= orientation & 1
            if self.brep.types[shape] == SOLID:
                found.setdefault((shape, place), (shape, flip, place))
            elif self.brep.types[shape] < SOLID:
                for below in self.brep.children[shape]:
                    walk(below, place, flip)
            else:
                self.strays.append(((0, shape, 0), place))

        walk(child, place, flip)
        return list(found.values())

    def solid(self, shape: int, flip: int, place: int) -> None:
        self.solids += 1
        for orientation, shell, location in self.brep.children[shape]:
            shell_place = self.places.compose(place, location)
            for child in self.brep.children[shell]:
                facing, face, inner = child
                if self.brep.types[face] == FACE and facing <= REVERSED:
                    self.face(
                        face,
                        flip ^ (orientation & 1) ^ facing,
                        self.places.compose(shell_place, inner),
                    )
                else:
                    self.strays.append((child, shell_place))

    def face(self, shape: int, flip: int, place: int) -> None:
        known = self.face_keys.get((shape, place))
        if known is not None:
            self.shared.append((known, self.solids, flip ^ self.face_rows[known][1]))
            return
        index = len(self.face_rows)
        self.face_keys[shape, place] = index
        surface, location = self.brep.faces[shape]
        row = self.places.surface(surface, self.places.compose(place, location))
        loops = 0
        for outline in self.brep.children[shape]:
            turn, wire, wire_location = outline
            if self.brep.types[wire] != WIRE or turn > REVERSED:
                self.strays.append((outline, place))
                continue
            loops += 1
            wire_place = self.places.compose(place, wire_location)
            for child in self.brep.children[wire]:
                orientation, edge, edge_location = child
                if orientation <= REVERSED and self.brep.types[edge] == EDGE:
                    self.coedge(
                        index,
                        edge,
                        orientation ^ turn,
                        surface,
                        location,
                        wire_place,
                        edge_location,
                    )
                else:
                    self.strays.append((child, wire_place))
            self.wires += 1
        self.face_rows.append((row, flip, self.solids, loops))

    def coedge(
        self, face: int, shape: int, flip: int, surface: int, location: int, place: int, own: int
    ) -> None:
        place = self.places.compose(place, own)
        record = self.brep.edges[shape]
        edge = self.edge_keys.get((shape, place))
        if edge is None:
            edge = self.edge_keys[shape, place] = len(self.edge_rows)
            curve = record.curve - 1
            if curve >= 0:
                curve = self.places.curve(curve, self.places.compose(place, record.location))
            self.edge_rows.append(
                (
                    curve,
                    record.first,
                    record.last,
                    record.degenerate or curve < 0,
                    record.tolerance,
                    len({child[1:] for child in self.brep.children[shape]}) == 1,
                )
            )
        pcurve, first, last = -1, record.first, record.last
        for candidate in record.pcurves:
            # The same surface may carry the edge at several places; the face's own is preferred.
            if candidate[2] == surface and (pcurve < 0 or candidate[3] == location):
                second = candidate[1] if flip and candidate[1] else candidate[0]
                pcurve, first, last = second - 1, candidate[4], candidate[5]
                if candidate[3] == location:
                    break
        self.coedges.append((face, self.wires, edge, flip, pcurve, first, last))

    def left_out(self) -> tuple[int, int]:
        """How many faces and edges of the file bound no solid that was walked."""
        faces: set[_Key] = set()
        edges: set[_Key] = set()

        def walk(node: Child, place: int) -> None:
            _, shape, location = node
            place = self.places.compose(place, location)
            kind = self.brep.types[shape]
            if kind == FACE:
                faces.add((shape, place))
            elif kind == EDGE:
                edges.add((shape, place))
            if kind < EDGE:
                for below in self.brep.children[shape]:
                    walk(below, place)

        for node, place in self.strays:
            walk(node, place)
        return len(faces - self.face_keys.keys()), len(edges - self.edge_keys.keys())


def split_solids(brep: Brep) -> list[Topology]:
    """One topology per solid; what the file holds beside them is counted with the first."""
    n = len(_Collector(brep).solids_of(brep.root, 0, 0))
    whole = topology(brep)
    parts = [replace(_build(brep, [i]), free_faces=0, loose_edges=0) for i in range(n)]
    first = replace(parts[0], free_faces=whole.free_faces, loose_edges=whole.loose_edges)
    return [first, *parts[1:]]


def topology(brep: Brep) -> Topology:
    """All solids of a shape as one part."""
    return _build(brep, None)


def _build(brep: Brep, only: list[int] | None) -> Topology:
    walk = _Collector(brep)
    solids = walk.solids_of(brep.root, 0, 0)
    for solid in solids if only is None else [solids[i] for i in only]:
        walk.solid(*solid)
    faces = np.array(walk.face_rows, dtype=np.int64).reshape(-1, 4)
    edges = walk.edge_rows
    coedges = walk.coedges
    surfaces = Surfaces(brep.surfaces)
    free_faces, loose_edges = walk.left_out()
    return Topology(
        surfaces=surfaces,
        curves=Curves(brep.curves),
        pcurves=Curves(brep.pcurves),
        face_surface=faces[:, 0],
        face_sign=np.where(faces[:, 1] == 1, -1.0, 1.0),
        face_solid=faces[:, 2],
        face_loops=faces[:, 3],
        shared=np.array(walk.shared, dtype=np.int64).reshape(-1, 3),
        coedge_face=np.array([row[0] for row in coedges], dtype=np.int64),
        coedge_wire=np.array([row[1] for row in coedges], dtype=np.int64),
        coedge_edge=np.array([row[2] for row in coedges], dtype=np.int64),
        coedge_reversed=np.array([row[3] for row in coedges], dtype=bool),
        coedge_pcurve=np.array([row[4] for row in coedges], dtype=np.int64),
        coedge_range=np.array([row[5:] for row in coedges], dtype=np.float64).reshape(-1, 2),
        edge_curve=np.array([row[0] for row in edges], dtype=np.int64),
        edge_range=np.array([row[1:3] for row in edges], dtype=np.float64).reshape(-1, 2),
        edge_degenerate=np.array([row[3] for row in edges], dtype=bool),
        edge_tolerance=np.array([row[4] for row in edges], dtype=np.float64),
        edge_closed=np.array([row[5] for row in edges], dtype=bool),
        solids=walk.solids + 1,
        free_faces=free_faces,
        loose_edges=loose_edges,
    )
