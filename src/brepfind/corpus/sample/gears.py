"""Gears and other toothed wheels."""

from __future__ import annotations

from math import acos, cos, hypot, pi, radians, sin, tan
from random import Random
from typing import Any

from build123d import Cylinder, Edge, Face, Pos, Vector, Wire, extrude

from brepfind.corpus.sample.family import Dim, Facts, Family, Words
from brepfind.corpus.sample.keys import keyway_cutter, keyway_of
from brepfind.corpus.sample.shapes import Point

# Modules of the first series (ISO 54), mm, and usual bores.
MODULES = (0.5, 0.8, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)
BORES = (3, 4, 5, 6, 8, 10, 12, 14, 15, 16, 18, 20, 22, 24, 25, 28, 30, 35, 40)
TEETH = (*range(10, 29), 10, 12, 14, 15, 16, 18, 20, 30, 32, 36)


def gear_plan(module: float, teeth: int, pressure_angle: float = 20.0) -> Face:
    """The outline of an involute spur gear (ISO 53: addendum 1 m, dedendum 1.25 m).

    A tooth is four edges: root, flank, tip, flank. Each flank is one spline through points of the
    involute, continued along a radius below the base circle.
    """
    pitch_r = module * teeth / 2
    base_r = pitch_r * cos(radians(pressure_angle))
    root_r, tip_r = pitch_r - 1.25 * module, pitch_r + module
    half_tooth = pi / (2 * teeth) + _involute(radians(pressure_angle))
    start = max(root_r, base_r)
    flank = [(root_r, half_tooth)] if root_r < base_r - 1e-9 else []
    for i in range(7):
        radius = start + (tip_r - start) * i / 6
        flank.append((radius, half_tooth - _involute(acos(min(1.0, base_r / radius)))))
    edges: list[Edge] = []
    for i in range(teeth):
        middle = 2 * pi * i / teeth
        rising = [_polar(r, middle - angle) for r, angle in flank]
        falling = [_polar(r, middle + angle) for r, angle in reversed(flank)]
        next_root = _polar(root_r, middle + 2 * pi / teeth - flank[0][1])
        edges += [
            _spline(rising),
            _arc(rising[-1], falling[0], tip_r),
            _spline(falling),
            _arc(falling[-1], next_root, root_r),
        ]
    return Face(Wire(edges))


def _involute(angle: float) -> float:
    return tan(angle) - angle


def _polar(radius: float, angle: float) -> Point:
    return radius * cos(angle), radius * sin(angle)


def _spline(points: list[Point]) -> Edge:
    return Edge.make_spline([Vector(*point) for point in points])


def _arc(start: Point, end: Point, radius: float) -> Edge:
    x, y = start[0] + end[0], start[1] + end[1]
    scale = radius / hypot(x, y)
    middle = (x * scale, y * scale)
    return Edge.make_three_point_arc(Vector(*start), Vector(*middle), Vector(*end))


def hubbed_wheel(plan: Face, width: float, facts: Facts) -> Any:
    """A toothed plan made a wheel: bore, and hub and keyway where the facts have them."""
    wheel = extrude(plan, width, dir=(0, 0, 1))
    height = width
    if facts["hub"]:
        height = width + hub_height(facts)
        wheel += Pos(0, 0, (width + height) / 2) * Cylinder(hub_diameter(facts) / 2, height - width)
    wheel -= Pos(0, 0, height / 2) * Cylinder(facts["bore"] / 2, height)
    if facts["keyway"]:
        wheel -= keyway_cutter(facts["bore"], height)
    return wheel


def hub_diameter(facts: Facts) -> float:
    """Outer diameter of the hub of a wheel, mm."""
    return round(facts["bore"] * 1.6 + 4)


def hub_height(facts: Facts) -> float:
    """How far the hub stands out on one side, mm."""
    return round(facts["bore"] * 0.5 + 3)


def wheel_traits(facts: Facts) -> tuple[tuple[str, ...], ...]:
    """What is said of hub and keyway."""
    return (
        ("with a hub on one side", "with a one-sided hub", "with a boss")
        if facts["hub"]
        else ("without a hub", "flat on both sides"),
        ("with a keyway in the bore", "keyed bore")
        if facts["keyway"]
        else ("with a plain round bore", "without a keyway"),
    )


def draw_bore(rng: Random, root_diameter: float) -> dict[str, Any]:
    """Bore, hub and keyway for a wheel whose teeth end at ``root_diameter``."""
    bores = [bore for bore in BORES if bore <= 0.45 * root_diameter]
    bore = rng.choice(bores[-7:]) if bores else 3
    hub = bore * 1.6 + 4 < 0.9 * root_diameter and rng.random() < 0.5
    # Below a bore of 8 mm there is no standard key, and above it the slot must leave some rim.
    slot = keyway_of(bore)
    keyway = slot is not None and rng.random() < 0.4
    return {"bore": bore, "hub": hub, "keyway": keyway}


def _draw_gear(rng: Random) -> Facts:
    module, teeth = rng.choice(MODULES), rng.choice(TEETH)
    width = rng.choice(
        [n for n in (3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40) if 4 <= n / module <= 12]
    )
    return {
        "module": module,
        "teeth": teeth,
        "width": width,
        **draw_bore(rng, module * (teeth - 2.5)),
    }


def _build_gear(facts: Facts) -> Any:
    return hubbed_wheel(gear_plan(facts["module"], facts["teeth"]), facts["width"], facts)


def _say_gear(facts: Facts) -> Words:
    module, teeth = facts["module"], facts["teeth"]
    dims = [
        Dim.count(teeth, "teeth"),
        Dim.length(module, "module", symbol="M"),
        Dim.diameter(facts["bore"], "bore", symbol="B"),
        Dim.length(facts["width"], "face width", "wide", "W"),
        Dim.diameter(module * (teeth + 2), "outer diameter", symbol="OD"),
    ]
    if facts["hub"]:
        dims.append(Dim.diameter(hub_diameter(facts), "hub diameter", "hub", "HUB"))
    return Words(
        names=("spur gear", "involute gear", "straight-cut gear", "gear wheel"),
        broad=("gear", "toothed wheel", "cog", "drive part"),
        looks=(
            "disc with teeth all around its rim and a hole in the middle",
            "round wheel with straight teeth on the outside",
        ),
        uses=("a gearbox", "driving a parallel shaft", "a reduction drive"),
        traits=wheel_traits(facts),
        size=(
            f"module {module:g}, {teeth} teeth",
            f"m{module:g} z{teeth}",
            f"mod {module:g} {teeth}T",
        ),
        dims=tuple(dims),
        longest=module * (teeth + 2),
    )


SPUR_GEAR = Family(name="spur_gear", draw=_draw_gear, build=_build_gear, words=_say_gear)
