"""Few ways to make a solid, chosen for speed and for the same result every time; lengths in mm."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import cos, pi, sin, sqrt
from pathlib import Path
from typing import Any

from build123d import (
    Axis,
    Cylinder,
    Edge,
    Face,
    Pos,
    SlotOverall,
    Solid,
    Vector,
    Wire,
    export_step,
    extrude,
)
from OCP.Interface import Interface_Static
from OCP.TopLoc import TopLoc_Location

Point = tuple[float, float]
# A corner of an outline: a point, or a point on an arc and the arc's end.
Corner = tuple[float, ...]

# The header's date. It says nothing about the part, and a real one would make every file differ.
TIME_STAMP = "2000-01-01T00:00:00"

# A number of the file that is -0. or below 1e-11 in size. Its largest numbers are some 1e3 (mm), so
# that these are rounding errors; the tolerances in the file are 1e-7.
_NOISE = re.compile(rb"([(,]\s*)-?(?:0\.(?![0-9E])|[0-9]\.[0-9]*E-(?:1[2-9]|[2-9][0-9]))")


def write_step(shape: Any, path: Path, name: str, inch: bool = False) -> None:
    """Write a shape of exactly one solid as STEP; the same shape gives the same bytes.

    What would differ from one writing to the next is kept out: the date, a product name from a
    counter, and the assembly that the writer makes of a solid with a placement, whose number counts
    up over the life of the process. So the bare solid is written, its placement dropped: a part has
    no place of its own. And coordinates that should be zero are, instead of a rounding error whose
    size depends on the order of addresses in memory.

    Args:
        shape: a build123d shape.
        path: the file; its folder exists.
        name: the product name.
        inch: write in inches instead of millimetres.
    """
    solids = shape.solids()
    assert len(solids) == 1, f"{name}: a sample part is one solid, this has {len(solids)}"
    solid = Solid(solids[0].wrapped.Located(TopLoc_Location()))
    solid.label = name
    # The unit is a setting of the whole process. build123d's own argument tells in what unit the
    # shape is, not in what unit to write: a shape would come out 25.4 times too large.
    Interface_Static.SetCVal_s("write.step.unit", "INCH" if inch else "MM")
    export_step(
        solid,
        path,
        # Curves on surfaces can be computed again by any reader and are half of the file.
        write_pcurves=False,
        timestamp=TIME_STAMP,
    )
    path.write_bytes(_NOISE.sub(rb"\g<1>0.", path.read_bytes()))


def turned(profile: Sequence[Corner], angle: float = 360.0) -> Solid:
    """A solid of revolution about Z; the profile is a closed outline of (radius, z)."""
    # Not the operation of the same name: it looks for faces to merge, of which there are none.
    return Solid.revolve(Face(outline(profile, lambda r, z: Vector(r, 0, z))), angle, Axis.Z)


def prism(corners: Sequence[Corner], height: float, z: float = 0.0) -> Solid:
    """An outline in XY, extruded along Z from ``z`` on."""
    face = Face(outline(corners, lambda x, y: Vector(x, y, z)))
    return extrude(face, height, dir=(0, 0, 1)).solid()


def outline(corners: Sequence[Corner], place: Callable[[float, float], Vector]) -> Wire:
    """A closed wire through ``corners``, put into space by ``place``.

    A corner of two numbers is reached by a straight line, one of four by an arc: through the
    first two to the last two.
    """
    edges = []
    start = place(*corners[0][-2:])
    for corner in (*corners[1:], corners[0]):
        end = place(*corner[-2:])
        if len(corner) == 4:
            edges.append(Edge.make_three_point_arc(start, place(*corner[:2]), end))
        else:
            edges.append(Edge.make_line(start, end))
        start = end
    return Wire(edges)


def rounded_prism(
    corners: Sequence[Point], radii: Mapping[int, float], height: float, z: float = 0.0
) -> Solid:
    """As :func:`prism`, with the corners that ``radii`` names by their number rounded."""
    face = Face(Wire.make_polygon([Vector(x, y, z) for x, y in corners], close=True))
    for number, radius in radii.items():
        vertex = face.vertices().sort_by_distance((*corners[number], z))[0]
        face = face.fillet_2d(radius, [vertex])
    return extrude(face, height, dir=(0, 0, 1)).solid()


def hexagon(across_flats: float) -> list[Point]:
    """Corners of a hexagon around the origin."""
    radius = across_flats / sqrt(3)
    return [(radius * cos(i * pi / 3), radius * sin(i * pi / 3)) for i in range(6)]


def ring_of(count: int, diameter: float, start: float = 0.0) -> list[Point]:
    """Points on a circle around the origin, the first at ``start`` degrees."""
    angles = [start * pi / 180 + 2 * pi * i / count for i in range(count)]
    return [(diameter / 2 * cos(angle), diameter / 2 * sin(angle)) for angle in angles]


def rectangle_of(length: float, width: float) -> list[Point]:
    """The four corners of a rectangle around the origin."""
    x, y = length / 2, width / 2
    return [(-x, -y), (x, -y), (x, y), (-x, y)]


def drilled(part: Any, points: Iterable[Point], diameter: float, bottom: float, top: float) -> Any:
    """``part`` with round holes along Z from ``bottom`` to ``top``."""
    depth = top - bottom
    holes = [Pos(x, y, (top + bottom) / 2) * Cylinder(diameter / 2, depth) for x, y in points]
    return part - holes


def slot_plan(length: float, width: float) -> Face:
    """A slot with round ends in XY around the origin; ``length`` is over all, along X."""
    return SlotOverall(length, width).face()


def hex_chamfer(across_flats: float, height: float, bottom: bool, top: bool) -> Solid:
    """The turned envelope that chamfers the corners of a hexagon prism at 30 degrees."""
    outer = across_flats / sqrt(3) * 1.001
    inner = across_flats / 2 * 0.96
    drop = (outer - inner) * sqrt(1 / 3)
    profile = [(0.0, 0.0)]
    profile += [(inner, 0.0), (outer, drop)] if bottom else [(outer, 0.0)]
    profile += [(outer, height - drop), (inner, height)] if top else [(outer, height)]
    profile += [(0.0, height)]
    return turned(profile)
