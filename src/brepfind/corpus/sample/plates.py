"""Plates and brackets with holes; free sizes on a usual grid of preferred numbers."""

from __future__ import annotations

from random import Random
from typing import Any

from build123d import Axis, Box, Cone, Cylinder, Pos, Rot, fillet

from brepfind.corpus.sample.family import Dim, Facts, Family, Words
from brepfind.corpus.sample.shapes import Point, drilled, prism, rectangle_of, rounded_prism

# Clearance holes by screw, medium fit (ISO 273), mm.
CLEARANCE = {3: 3.4, 4: 4.5, 5: 5.5, 6: 6.6, 8: 9.0, 10: 11.0, 12: 13.5}


def rounded_plate(length: float, width: float, thick: float, radius: float) -> Any:
    """A rectangular plate from z = 0 up, its four upright corners rounded."""
    plate = Pos(0, 0, thick / 2) * Box(length, width, thick)
    return fillet(plate.edges().filter_by(Axis.Z), radius) if radius else plate


def _draw_plate(rng: Random) -> Facts:
    length = rng.choice((40, 50, 60, 70, 80, 90, 100, 120, 140, 150, 160, 180, 200, 250))
    ratios = [n for n in (30, 40, 50, 60, 70, 80, 100, 120, 150) if 0.3 * length <= n < length]
    width = rng.choice(ratios)
    screw = rng.choice([n for n in CLEARANCE if 3.2 * CLEARANCE[n] < 0.45 * width])
    pattern = rng.choice(("corners", "corners", "corners", "six", "row", "grid"))
    big = min(length, width)
    bore = rng.choice((0, 0.25, 0.35)) if pattern in ("corners", "six") else 0
    return {
        "length": length,
        "width": width,
        "thick": rng.choice((2, 3, 4, 5, 6, 8, 10, 12, 15)),
        "screw": screw,
        "pattern": pattern,
        "bore": round(big * bore),
        "radius": rng.choice((0, 0, 3, 5, 8)) if big > 30 else rng.choice((0, 3)),
        "sunk": pattern == "corners" and rng.random() < 0.25,
    }


def _plate_holes(facts: Facts) -> list[Point]:
    hole = CLEARANCE[facts["screw"]]
    x, y = facts["length"] - 3 * hole, facts["width"] - 3 * hole
    if facts["pattern"] == "row":
        return [(-x / 2 + i * x / 3, 0) for i in range(4)]
    points = rectangle_of(x, y)
    if facts["pattern"] == "six":
        points += [(0, -y / 2), (0, y / 2)]
    if facts["pattern"] == "grid":
        points = [(-x / 2 + i * x / 3, -y / 2 + j * y / 2) for i in range(4) for j in range(3)]
    return points


def _build_plate(facts: Facts) -> Any:
    thick, hole = facts["thick"], CLEARANCE[facts["screw"]]
    plate = rounded_plate(facts["length"], facts["width"], thick, facts["radius"])
    plate = drilled(plate, _plate_holes(facts), hole, 0, thick)
    if facts["sunk"]:
        depth = min(hole / 2, 0.6 * thick)
        plate -= [
            Pos(x, y, thick - depth / 2) * Cone(hole / 2, hole / 2 + depth, depth)
            for x, y in _plate_holes(facts)
        ]
    if facts["bore"]:
        plate -= Pos(0, 0, thick / 2) * Cylinder(facts["bore"] / 2, thick)
    return plate


_PATTERNS: dict[str, tuple[str, ...]] = {
    "corners": ("with a hole in each corner", "with four corner holes"),
    "six": ("with three holes along each long side", "with six holes in two rows of three"),
    "row": ("with a row of four holes", "with four holes in a line"),
    "grid": ("with a grid of twelve holes", "with three rows of four holes"),
}


def _say_plate(facts: Facts) -> Words:
    length, width, thick = facts["length"], facts["width"], facts["thick"]
    hole = CLEARANCE[facts["screw"]]
    traits = [_PATTERNS[facts["pattern"]]]
    if facts["sunk"]:
        traits.append(("countersunk", "with countersinks for flat head screws"))
    traits.append(
        ("with rounded corners", "corners rounded")
        if facts["radius"]
        else ("with square corners", "sharp-cornered")
    )
    if facts["bore"]:
        traits.append(("with a large round opening in the centre", "with a central bore"))
    dims = [
        Dim.length(length, "length", "long", "L"),
        Dim.length(width, "width", "wide", "W"),
        Dim.length(thick, "thickness", "thick", "T"),
        Dim.diameter(hole, "hole diameter", "holes", "D"),
    ]
    if facts["radius"]:
        dims.append(Dim.length(facts["radius"], "corner radius", "corner radius", "R"))
    if facts["bore"]:
        dims.append(Dim.diameter(facts["bore"], "centre bore", "centre bore", "B"))
    return Words(
        names=("mounting plate", "base plate", "adapter plate", "hole plate"),
        broad=("plate", "flat piece", "sheet with holes", "flat bar with holes"),
        looks=(
            "flat rectangular slab with round holes through it",
            "rectangle of sheet metal, drilled",
        ),
        uses=("mounting a device on a wall", "bolting a motor down", "joining two profiles"),
        traits=tuple(traits),
        size=(f"{length:g} x {width:g} x {thick:g} mm", f"{length:g}x{width:g}x{thick:g}"),
        dims=tuple(dims),
        longest=length,
    )


def _draw_l_bracket(rng: Random) -> Facts:
    tall = rng.choice((20, 25, 30, 40, 50, 60, 80, 100, 120))
    foot = rng.choice([n for n in (20, 25, 30, 40, 50, 60, 80, 100) if 0.4 * tall <= n <= tall])
    width = rng.choice([n for n in (15, 20, 25, 30, 40, 50, 60, 80) if n <= 1.2 * tall])
    thick = rng.choice([n for n in (2, 3, 4, 5, 6, 8) if n <= 0.15 * foot])
    screw = rng.choice(
        [n for n in CLEARANCE if 2 * CLEARANCE[n] < min(width, (foot - thick) * 0.6)]
    )
    two = 4.5 * CLEARANCE[screw] < min(width, 3 * foot)
    return {
        "tall": tall,
        "foot": foot,
        "width": width,
        "thick": thick,
        "screw": screw,
        "holes": rng.choice((1, 2)) if two else 1,
        "bend": rng.choice((0, 1)) * thick,
        "rib": width >= 25 and rng.random() < 0.3,
    }


def _build_l_bracket(facts: Facts) -> Any:
    tall, foot, width, thick = facts["tall"], facts["foot"], facts["width"], facts["thick"]
    profile = [(0, 0), (foot, 0), (foot, thick), (thick, thick), (thick, tall), (0, tall)]
    # The profile is in XZ, the width along Y; corner 0 is the outer bend, corner 3 the inner one.
    bend = facts["bend"]
    radii = {0: bend + thick, 3: bend} if bend else {}
    bracket = Rot(90, 0, 0) * rounded_prism(profile, radii, width, -width / 2)
    hole = CLEARANCE[facts["screw"]]
    across = [0.0] if facts["holes"] == 1 else [-width / 4, width / 4]
    x, z = (foot + thick + facts["bend"]) / 2, (tall + thick + facts["bend"]) / 2
    bracket -= [Pos(x, y, thick / 2) * Cylinder(hole / 2, thick) for y in across]
    bracket -= [Pos(thick / 2, y, z) * Rot(0, 90, 0) * Cylinder(hole / 2, thick) for y in across]
    if facts["rib"]:
        size = 0.45 * (min(foot, tall) - thick)
        rib = prism(
            [(thick, thick), (thick + size, thick), (thick, thick + size)], thick, -thick / 2
        )
        bracket += Rot(90, 0, 0) * rib
    return bracket


def _say_l_bracket(facts: Facts) -> Words:
    tall, foot, width, thick = facts["tall"], facts["foot"], facts["width"], facts["thick"]
    count = facts["holes"]
    traits = [
        ("with one hole in each leg", "one hole per leg")
        if count == 1
        else ("with two holes in each leg", "two holes per side"),
        ("with a rounded bend", "bent from sheet")
        if facts["bend"]
        else ("with a sharp corner", "square inside"),
    ]
    if facts["rib"]:
        traits.append(("with a stiffening rib", "with a gusset in the corner"))
    return Words(
        names=("L-bracket", "angle bracket", "corner bracket", "right-angle bracket"),
        broad=("bracket", "angle", "support", "bent metal piece"),
        looks=(
            "two flat legs that meet at a right angle",
            "strip bent to the shape of the letter L, drilled",
        ),
        uses=("fixing a shelf to a wall", "joining two boards at a corner", "a frame corner"),
        traits=tuple(traits),
        size=(f"{tall:g} x {foot:g} x {width:g} mm", f"{tall:g}x{foot:g}x{width:g}x{thick:g}"),
        dims=(
            Dim.length(tall, "height", "high", "H"),
            Dim.length(foot, "leg length", "leg", "L"),
            Dim.length(width, "width", "wide", "W"),
            Dim.length(thick, "thickness", "thick", "T"),
            Dim.diameter(CLEARANCE[facts["screw"]], "hole diameter", "holes", "D"),
        ),
        longest=max(tall, foot, width),
    )


L_BRACKET = Family(
    name="l_bracket", draw=_draw_l_bracket, build=_build_l_bracket, words=_say_l_bracket
)
MOUNTING_PLATE = Family(
    name="mounting_plate", draw=_draw_plate, build=_build_plate, words=_say_plate
)
