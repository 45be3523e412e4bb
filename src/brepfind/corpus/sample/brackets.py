"""Brackets that hold a pin, a shaft or a profile: U-brackets, clevises, pillow blocks."""

from __future__ import annotations

from random import Random
from typing import Any

from build123d import Axis, Box, Cylinder, Pos, Rot, chamfer, extrude

from brepfind.corpus.sample.family import Dim, Facts, Family, Words
from brepfind.corpus.sample.plates import CLEARANCE
from brepfind.corpus.sample.shapes import Corner, prism, rounded_prism, slot_plan
from brepfind.corpus.sample.threads import COARSE, tap_drill

# DIN 71752: pin diameter to width a, overall length l1 of the short form to the pin, thread.
CLEVISES = {
    4: (8, 16, 4), 5: (10, 20, 5), 6: (12, 24, 6), 8: (16, 32, 8), 10: (20, 40, 10),
    12: (24, 48, 12), 14: (28, 56, 14), 16: (32, 64, 16), 20: (40, 80, 20), 25: (50, 100, 24),
}  # fmt: skip

# Pillow blocks after ISO 113 (P203 to P210): bore to centre height, base length, hole distance,
# base width, base thickness, outer diameter of the bearing, mm; and the screw.
PILLOWS = {
    12: (30.2, 127, 95, 38, 14, 40, 10), 15: (30.2, 127, 95, 38, 14, 40, 10),
    17: (30.2, 127, 95, 38, 14, 40, 10), 20: (33.3, 127, 95, 38, 14, 47, 10),
    25: (36.5, 140, 105, 38, 15, 52, 10), 30: (42.9, 165, 121, 48, 17, 62, 12),
    35: (47.6, 167, 127, 48, 18, 72, 12), 40: (49.2, 184, 137, 54, 18, 80, 12),
    45: (54, 190, 146, 54, 20, 85, 12), 50: (57.2, 206, 159, 60, 21, 90, 12),
}  # fmt: skip


def _draw_u_bracket(rng: Random) -> Facts:
    inside = rng.choice((15, 20, 25, 30, 40, 50, 60, 80))
    thick = rng.choice([n for n in (2, 3, 4, 5, 6, 8) if n <= 0.2 * inside])
    width = rng.choice((15, 20, 25, 30, 40, 50, 60))
    screw = rng.choice([n for n in CLEARANCE if 2 * CLEARANCE[n] < min(inside, width)])
    high = rng.choice(
        [n for n in (20, 25, 30, 40, 50, 60, 80) if n > 2.2 * CLEARANCE[screw] + thick]
    )
    return {
        "inside": inside,
        "thick": thick,
        "width": width,
        "high": high,
        "screw": screw,
        "base_holes": rng.choice((1, 2)) if inside >= 5 * CLEARANCE[screw] else 1,
        "pin": rng.random() < 0.6,
        "bend": rng.random() < 0.6,
    }


def _build_u_bracket(facts: Facts) -> Any:
    a, t, high, width = facts["inside"], facts["thick"], facts["high"], facts["width"]
    x = a / 2
    corners = [(-x - t, 0), (x + t, 0), (x + t, high), (x, high), (x, t), (-x, t)]
    corners += [(-x, high), (-x - t, high)]
    radii = {0: 2 * t, 1: 2 * t, 4: t, 5: t} if facts["bend"] else {}
    bracket = Rot(90, 0, 0) * rounded_prism(corners, radii, width, -width / 2)
    hole = CLEARANCE[facts["screw"]] / 2
    spots = [0.0] if facts["base_holes"] == 1 else [-a / 4, a / 4]
    bracket -= [Pos(spot, 0, t / 2) * Cylinder(hole, t) for spot in spots]
    if facts["pin"]:
        z = high - 1.2 * CLEARANCE[facts["screw"]]
        bracket -= Pos(0, 0, z) * Rot(0, 90, 0) * Cylinder(hole, a + 2 * t + 2)
    return bracket


def _say_u_bracket(facts: Facts) -> Words:
    inside, thick, width, high = facts["inside"], facts["thick"], facts["width"], facts["high"]
    traits = [
        ("with one hole in the base", "single base hole")
        if facts["base_holes"] == 1
        else ("with two holes in the base", "two base holes"),
        ("with a cross hole through both sides", "with aligned holes in the two legs")
        if facts["pin"]
        else ("with plain legs", "no holes in the sides"),
        ("with rounded bends", "bent from sheet")
        if facts["bend"]
        else ("square-edged", "sharp bends"),
    ]
    return Words(
        names=("U-bracket", "U-shaped bracket", "channel bracket", "saddle bracket"),
        broad=("bracket", "support", "bent metal piece", "holder"),
        looks=("flat base with two upright walls", "strip bent to the shape of the letter U"),
        uses=("holding a rail", "carrying a roller", "a pipe clamp", "a beam end"),
        traits=tuple(traits),
        size=(f"{inside:g}x{high:g}x{width:g}x{thick:g}", f"{inside:g} x {high:g} x {width:g} mm"),
        dims=(
            Dim.length(inside, "inside width", "between the legs", "A"),
            Dim.length(high, "height", "high", "H"),
            Dim.length(width, "depth", "deep", "W"),
            Dim.length(thick, "thickness", "thick", "T"),
            Dim.diameter(CLEARANCE[facts["screw"]], "hole diameter", "holes", "D"),
        ),
        longest=max(inside + 2 * thick, high, width),
    )


def _draw_clevis(rng: Random) -> Facts:
    d = rng.choice(list(CLEVISES))
    return {
        "d": d,
        "long": rng.random() < 0.4,
        "round": rng.random() < 0.5,
        "threaded": rng.random() < 0.7,
        "neck": rng.random() < 0.6,
    }


def _clevis_length(facts: Facts) -> float:
    """From the end of the neck to the tip, mm."""
    d = facts["d"]
    a, to_pin, _ = CLEVISES[d]
    return to_pin + a / 2 + (2 * d if facts["long"] else 0)


def _build_clevis(facts: Facts) -> Any:
    d = facts["d"]
    a, _, thread = CLEVISES[d]
    total = _clevis_length(facts)
    slot = 2 * d + (2 * d if facts["long"] else 0) + a / 2
    neck = 1.2 * d
    body = Pos(0, 0, (total + neck) / 2) * Box(a, a, total - neck)
    if facts["round"]:
        body &= Pos(0, 0, total / 2) * Cylinder(0.62 * a, total)
    else:
        body = chamfer(body.edges().group_by(Axis.Z)[-1], 0.08 * a)
    stem = Cylinder(0.42 * a, neck) if facts["neck"] else Box(a * 0.8, a * 0.8, neck)
    body += Pos(0, 0, neck / 2) * stem
    body -= Pos(0, 0, total - slot / 2) * Box(a / 2, 2 * a, slot)
    body -= Pos(0, 0, total - a / 2) * Rot(0, 90, 0) * Cylinder(d / 2, 2 * a)
    depth = total - slot
    bore = tap_drill(thread, COARSE[thread]) if facts["threaded"] else 0.5 * a
    return body - Pos(0, 0, depth / 2) * Cylinder(bore / 2, depth)


def _say_clevis(facts: Facts) -> Words:
    d = facts["d"]
    a, _, thread = CLEVISES[d]
    gap = 4 * d if facts["long"] else 2 * d
    traits = [
        ("long form", "with a deep slot") if facts["long"] else ("short form", "with a short slot"),
        ("with rounded corners along its body", "rounded off to a near-round body")
        if facts["round"]
        else ("square in section", "with a square body"),
        (f"threaded M{thread}", f"with an M{thread} thread")
        if facts["threaded"]
        else ("with a plain bore for the rod", "unthreaded"),
        ("with a round neck", "round neck") if facts["neck"] else ("with a square neck",),
    ]
    return Words(
        names=("clevis", "fork head", "clevis fork end", "rod clevis"),
        broad=("fork", "joint", "rod end", "linkage part"),
        looks=("block split into two prongs with a hole across", "two-pronged fork on a stem"),
        uses=("linking a pneumatic cylinder", "a tie rod", "a pivot pin", "a linkage"),
        traits=tuple(traits),
        size=(f"{d}x{gap}", f"G {d} x {gap}", f"{d} x {gap} mm"),
        standards=("DIN 71752", "ISO 8140"),
        dims=(
            Dim.diameter(d, "pin hole", "pin hole", "D1"),
            Dim.length(a / 2, "slot width", "wide slot", "B"),
            Dim.length(a, "body width", "wide body", "A"),
            Dim.length(_clevis_length(facts), "overall length", "long", "L"),
        ),
        longest=_clevis_length(facts),
    )


def _draw_pillow(rng: Random) -> Facts:
    return {
        "bore": rng.choice(list(PILLOWS)),
        "slots": rng.random() < 0.5,
        "shape": rng.choice(("round", "block")),
        "nipple": rng.random() < 0.35,
        "width": rng.choice((0.8, 1.0, 1.2)),
    }


def _build_pillow(facts: Facts) -> Any:
    bore = facts["bore"]
    high, length, spread, width, thick, ring, screw = PILLOWS[bore]
    width *= facts["width"]
    r = ring / 2 + 5
    if facts["shape"] == "round":
        upper: list[Corner] = [(r, thick), (r, high), (0, high + r, -r, high), (-r, thick)]
    else:
        top = high + r
        upper = [(r, thick), (r, top - 8), (r - 8, top), (8 - r, top), (-r, top - 8), (-r, thick)]
    x = length / 2
    profile: list[Corner] = [(-x, 0), (x, 0), (x, thick), *upper, (-x, thick)]
    block = Rot(90, 0, 0) * prism(profile, width, -width / 2)
    block -= Pos(0, 0, high) * Rot(90, 0, 0) * Cylinder(bore / 2, 2 * width)
    hole = CLEARANCE[screw]
    for side in (-spread / 2, spread / 2):
        if facts["slots"]:
            tool = extrude(slot_plan(1.6 * hole, hole), thick, dir=(0, 0, 1))
            block -= Pos(side, 0, 0) * tool
        else:
            block -= Pos(side, 0, thick / 2) * Cylinder(hole / 2, thick)
    if facts["nipple"]:
        block -= Pos(0, 0, high + r) * Cylinder(2.5, 2 * (r - bore / 2 - 1))
    return block


def _say_pillow(facts: Facts) -> Words:
    bore = facts["bore"]
    high, length, spread, width, thick, ring, screw = PILLOWS[bore]
    traits = [
        ("with slotted feet", "with oblong mounting holes")
        if facts["slots"]
        else ("with round mounting holes", "with two round holes in its feet"),
        ("with an arched top", "rounded over the bore")
        if facts["shape"] == "round"
        else ("with a blocky top, corners cut off", "angular"),
    ]
    if facts["nipple"]:
        traits.append(("with a grease hole on top", "drilled for a grease nipple"))
    top = high + ring / 2 + 5
    return Words(
        names=("pillow block", "plummer block", "bearing housing", "pedestal bearing"),
        broad=("housing", "support", "holder", "machine block"),
        looks=("block with two feet and a large hole across", "arch on a flat base, bored through"),
        uses=("carrying a shaft", "a conveyor roller", "a fan shaft", "supporting a spindle"),
        traits=tuple(traits),
        size=(f"{bore:g} mm shaft", f"P{bore:g}", f"shaft {bore:g}"),
        standards=("ISO 113",) if facts["width"] == 1 else (),
        dims=(
            Dim.diameter(bore, "shaft bore", "bore", "ID"),
            Dim.length(high, "centre height", "to the centre", "H"),
            Dim.length(length, "base length", "long base", "L"),
            Dim.length(width * facts["width"], "width", "wide", "W"),
            Dim.length(spread, "hole spacing", "between the holes", "J"),
            Dim.length(top, "overall height", "high", "HH"),
            Dim.diameter(CLEARANCE[screw], "mounting hole diameter", "mounting holes", "D"),
            Dim.length(thick, "base thickness", "thick base", "T"),
        ),
        longest=length,
    )


U_BRACKET = Family(
    name="u_bracket", draw=_draw_u_bracket, build=_build_u_bracket, words=_say_u_bracket
)
CLEVIS = Family(name="clevis", draw=_draw_clevis, build=_build_clevis, words=_say_clevis)
PILLOW_BLOCK = Family(
    name="pillow_block", draw=_draw_pillow, build=_build_pillow, words=_say_pillow
)
