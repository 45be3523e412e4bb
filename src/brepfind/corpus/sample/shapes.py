"""Few ways to make a solid, chosen for speed and for the same result every time; lengths in mm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import cos, pi, sin, sqrt
from pathlib import Path
from typing import Any

from build123d import (
    Axis,
    Cylinder,
    Face,
    Pos,
    SlotOverall,
    Solid,
    Unit,
    Vector,
    Wire,
    export_step,
    extrude,
    revolve,
)
from OCP.TopLoc import TopLoc_Location

Point = tuple[float, float]

# The header's date. It says nothing about the part, and a real one would make every file differ.
TIME_STAMP = "2000-01-01T00:00:00"


def write_step(shape: Any, path: Path, name: str, inch: bool = False) -> None:
    """Write a shape of exactly one solid as STEP; the same shape gives the same bytes.

    What the writer would add on its own is kept out: the date, a product name from a counter, and
    the assembly that it makes of a solid with a placement, whose number also counts up over the
    life of the process. So the bare solid is written, its placement dropped: a part has no place
    of its own.

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
    export_step(
        solid,
        path,
        unit=Unit.IN if inch else Unit.MM,
        # Curves on surfaces can be computed again by any reader and are half of the file.
        write_pcurves=False,
        timestamp=TIME_STAMP,
    )


def turned(profile: Sequence[Point]) -> Solid:
    """A solid of revolution about Z; the profile is a closed polygon of (radius, z)."""
    face = Face(Wire.make_polygon([Vector(r, 0, z) for r, z in profile], close=True))
    return revolve(face, Axis.Z).solid()


def prism(outline: Sequence[Point], height: float, z: float = 0.0) -> Solid:
    """A polygon in XY, extruded along Z from ``z`` on."""
    face = Face(Wire.make_polygon([Vector(x, y, z) for x, y in outline], close=True))
    return extrude(face, height, dir=(0, 0, 1)).solid()


def rounded_prism(
    outline: Sequence[Point], radii: Mapping[int, float], height: float, z: float = 0.0
) -> Solid:
    """As :func:`prism`, with the corners that ``radii`` names by their number rounded."""
    face = Face(Wire.make_polygon([Vector(x, y, z) for x, y in outline], close=True))
    for corner, radius in radii.items():
        vertex = face.vertices().sort_by_distance((*outline[corner], z))[0]
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
