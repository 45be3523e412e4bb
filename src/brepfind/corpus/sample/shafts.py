"""Shafts and what goes with them: keys, pins, collars."""

from __future__ import annotations

from math import cos, pi, sin
from random import Random
from typing import Any

from build123d import Box, Cylinder, Pos, Rot, extrude

from brepfind.corpus.sample.family import Dim, Facts, Family, Words
from brepfind.corpus.sample.keys import KEYWAYS, keyway_of
from brepfind.corpus.sample.shapes import Corner, slot_plan, turned
from brepfind.corpus.sample.threads import COARSE, tap_drill

SHAFT_DIAMETERS = (8, 10, 12, 15, 16, 18, 20, 22, 25, 28, 30, 35, 40, 45, 50, 55, 60)
SHAFT_LENGTHS = (15, 20, 25, 30, 35, 40, 50, 60, 70, 80, 100, 120, 150)
KEY_LENGTHS = (
    6,
    8,
    10,
    12,
    14,
    16,
    18,
    20,
    22,
    25,
    28,
    32,
    36,
    40,
    45,
    50,
    56,
    63,
    70,
    80,
    90,
    100,
)

# ISO 2338, ISO 8734, ISO 2341: diameters, mm; head diameter, head height and hole of a clevis pin.
PIN_DIAMETERS = (2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16, 20)
PIN_LENGTHS = (6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 30, 32, 36, 40, 45, 50, 60, 70, 80, 90, 100)
PIN_HEADS = {
    4: (6, 1, 1), 5: (8, 1.6, 1.2), 6: (10, 2, 1.6), 8: (14, 3, 2), 10: (18, 4, 3.2),
    12: (20, 4, 3.2), 16: (25, 4.5, 4), 20: (30, 5, 5),
}  # fmt: skip

# DIN 705: bore to outer diameter, width, set screw diameter, mm.
COLLARS = {
    4: (8, 5, 2.5), 5: (10, 6, 3), 6: (12, 8, 4), 8: (16, 8, 4), 10: (20, 10, 5), 12: (22, 12, 6),
    14: (25, 12, 6), 15: (25, 12, 6), 16: (28, 12, 6), 18: (32, 14, 6), 20: (32, 14, 6),
    22: (36, 14, 6), 24: (40, 16, 8), 25: (40, 16, 8), 28: (45, 16, 8), 30: (45, 16, 8),
    32: (50, 16, 8), 35: (56, 16, 8), 40: (63, 18, 10), 45: (70, 18, 10), 50: (80, 18, 10),
}  # fmt: skip


def _draw_shaft(rng: Random) -> Facts:
    journals = rng.choice((1, 2, 3, 3, 4))
    # From the thickest journal the diameters fall, step by step, to both ends.
    thickest = rng.randrange(2 * (journals - 1), len(SHAFT_DIAMETERS))
    peak = rng.randrange(journals)
    sizes = [thickest] * journals
    for i in range(peak - 1, -1, -1):
        sizes[i] = sizes[i + 1] - rng.choice((1, 2))
    for i in range(peak + 1, journals):
        sizes[i] = sizes[i - 1] - rng.choice((1, 2))
    order = [SHAFT_DIAMETERS[i] for i in sizes]
    lengths = [rng.choice([n for n in SHAFT_LENGTHS if n >= 1.1 * d]) for d in order]
    keyed = order[-1] >= 8 and lengths[-1] >= 20 and rng.random() < 0.75
    key = 0
    if keyed:
        width = keyway_of(order[-1])[0]  # type: ignore[index]  # there is one from 8 mm on
        key = rng.choice([n for n in KEY_LENGTHS if 2 * width <= n <= lengths[-1] - 4] or [0])
    return {
        "diameters": order,
        "lengths": lengths,
        "key": key,
        "groove": lengths[0] >= 20 and rng.random() < 0.3,
    }


def _build_shaft(facts: Facts) -> Any:
    profile: list[Corner] = [(0, 0)]
    z = 0.0
    last = len(facts["diameters"]) - 1
    for i, (d, length) in enumerate(zip(facts["diameters"], facts["lengths"], strict=True)):
        edge = min(1.0, 0.05 * d)
        profile += [(d / 2 - edge, z), (d / 2, z + edge)] if i == 0 else [(d / 2, z)]
        if i == 0 and facts["groove"]:
            wide, floor = max(1.1, 0.05 * d), 0.46 * d
            profile += [(d / 2, 4), (floor, 4), (floor, 4 + wide), (d / 2, 4 + wide)]
        z += length
        profile += [(d / 2, z - edge), (d / 2 - edge, z)] if i == last else [(d / 2, z)]
    shaft = turned([*profile, (0, z)])
    if facts["key"]:
        d, length = facts["diameters"][-1], facts["lengths"][-1]
        wide, _, depth, _ = keyway_of(d)  # type: ignore[misc]  # drawn only where there is one
        slot = extrude(slot_plan(facts["key"], wide), depth, dir=(0, 0, 1))
        shaft -= Pos(d / 2 - depth, 0, z - length / 2) * Rot(0, 90, 0) * slot
    return shaft


_STEPS = ("of one diameter", "with two steps", "with three steps", "with four steps")


def _say_shaft(facts: Facts) -> Words:
    order, lengths = facts["diameters"], facts["lengths"]
    total = sum(lengths)
    steps = len(order)
    traits: list[tuple[str, ...]] = [
        (_STEPS[steps - 1], f"of {steps} journals" if steps > 1 else "smooth")
    ]
    if facts["key"]:
        traits.append(("with a keyway", "slotted for a key", "with a feather key slot"))
    else:
        traits.append(("without a keyway", "no key slot"))
    if facts["groove"]:
        traits.append(("with a circlip groove", "grooved for a snap ring"))
    dims = [
        Dim.length(total, "overall length", "long over all", "L"),
        Dim.diameter(max(order), "largest diameter", symbol="D"),
        Dim.diameter(order[-1], "end diameter", symbol="D1"),
    ]
    if facts["key"]:
        dims.append(Dim.length(facts["key"], "keyway length", "long keyway", "K"))
    dims.append(Dim.length(lengths[-1], "end journal length", "long end journal", "L1"))
    return Words(
        names=("drive shaft", "stepped shaft", "transmission shaft")
        if steps > 1
        else ("drive shaft", "straight shaft", "transmission shaft"),
        broad=("shaft", "rod", "axle", "turned part"),
        looks=("long round bar whose thickness changes in steps", "cylinder after cylinder in line")
        if steps > 1
        else ("plain round bar with bevelled ends", "long cylinder"),
        uses=("carrying gears", "a gearbox", "transmitting torque", "an electric motor"),
        traits=tuple(traits),
        dims=tuple(dims),
        longest=max(total, *order),
    )


def _draw_key(rng: Random) -> Facts:
    b, h, _, _ = rng.choice(KEYWAYS)[1]
    return {
        "b": b,
        "h": h,
        "length": rng.choice([n for n in KEY_LENGTHS if 2 * b <= n <= 12 * b]),
        "round": rng.random() < 0.6,
        "screw": b >= 8 and rng.random() < 0.25,
    }


def _build_key(facts: Facts) -> Any:
    b, h, length = facts["b"], facts["h"], facts["length"]
    key = (
        extrude(slot_plan(length, b), h, dir=(0, 0, 1))
        if facts["round"]
        else Pos(0, 0, h / 2) * Box(length, b, h)
    )
    return key - Pos(0, 0, h / 2) * Cylinder(0.18 * b, h) if facts["screw"] else key


def _say_key(facts: Facts) -> Words:
    b, h, length = facts["b"], facts["h"], facts["length"]
    form = "A" if facts["round"] else "B"
    traits: list[tuple[str, ...]] = [
        ("with round ends", "form A", "round-ended")
        if facts["round"]
        else ("with square ends", "form B", "square-ended")
    ]
    if facts["screw"]:
        traits.append(("with a screw hole in the middle", "with a retaining screw hole"))
    return Words(
        names=("parallel key", "feather key", "shaft key"),
        broad=("key", "small bar", "block", "machine part"),
        looks=("small flat bar", "little oblong block"),
        uses=("locking a hub to a shaft", "a keyway", "transmitting torque", "a pulley hub"),
        traits=tuple(traits),
        size=(f"{b:g}x{h:g}x{length:g}", f"{form} {b:g} x {h:g} x {length:g}"),
        standards=("DIN 6885", "ISO 773"),
        dims=(
            Dim.length(length, "length", "long", "L"),
            Dim.length(b, "width", "wide", "B"),
            Dim.length(h, "height", "high", "H"),
        ),
        longest=length,
    )


_PINS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str, str]] = {
    "chamfered": (
        ("dowel pin", "cylindrical pin", "locating pin"),
        ("with chamfered ends", "bevelled at both ends"),
        "ISO 2338",
        "short plain round rod",
    ),
    "domed": (
        ("dowel pin", "hardened cylindrical pin", "locating pin"),
        ("with one domed end", "rounded at one end"),
        "ISO 8734",
        "short round rod with a rounded end",
    ),
    "taper": (
        ("taper pin", "conical pin"),
        ("slightly tapered, 1:50", "with a slight cone"),
        "ISO 2339",
        "slightly conical round rod",
    ),
    "headed": (
        ("clevis pin", "headed pin", "bolt without thread"),
        ("with a flat head and a hole for a split pin", "headed, with a cross hole"),
        "ISO 2341",
        "smooth rod with a flat head and a small hole across its end",
    ),
}


def _draw_pin(rng: Random) -> Facts:
    kind = rng.choice(list(_PINS))
    d = rng.choice(list(PIN_HEADS) if kind == "headed" else PIN_DIAMETERS)
    lengths = [n for n in PIN_LENGTHS if 2 * d <= n <= 12 * d]
    return {"kind": kind, "d": d, "length": rng.choice(lengths)}


def _build_pin(facts: Facts) -> Any:
    d, length, kind = facts["d"], facts["length"], facts["kind"]
    r, c = d / 2, 0.15 * d
    end: list[Corner] = [(0, 0), (r - c, 0), (r, c)]
    if kind == "chamfered":
        return turned([*end, (r, length - c), (r - c, length), (0, length)])
    if kind == "domed":
        # Part of a sphere whose radius is the pin's diameter.
        dome, half = d * (1 - cos(pi / 6)), d * (1 - cos(pi / 12))
        return turned([*end, (r, length - dome), (d * sin(pi / 12), length - half, 0, length)])
    if kind == "taper":
        big = r + length / 100
        return turned([(0, 0), (r, 0), (big, length), (0, length)])
    head, height, hole = PIN_HEADS[d]
    profile = [*end, (r, length), (head / 2, length), (head / 2, length + height)]
    pin = turned([*profile, (0, length + height)])
    return pin - Pos(0, 0, 1.5 * hole + c) * Rot(0, 90, 0) * Cylinder(hole / 2, 2 * d)


def _say_pin(facts: Facts) -> Words:
    d, length, kind = facts["d"], facts["length"], facts["kind"]
    names, trait, standard, looks = _PINS[kind]
    dims = [
        Dim.length(length, "length", "long", "L"),
        Dim.diameter(d, "small end diameter" if kind == "taper" else "diameter", symbol="D"),
    ]
    height = 0.0
    if kind == "headed":
        head, height, hole = PIN_HEADS[d]
        dims.append(Dim.diameter(head, "head diameter", "head", "DK"))
        dims.append(Dim.diameter(hole, "split pin hole", "split pin hole", "D1"))
    return Words(
        names=names,
        broad=("pin", "rod", "small cylinder", "turned part"),
        looks=(looks,),
        uses=("a fork joint", "a hinge") if kind == "headed" else ("aligning two parts", "a jig"),
        traits=(trait,),
        size=(f"{d:g} x {length:g}", f"{d:g}x{length:g} mm", f"Ø{d:g} x {length:g}"),
        standards=(standard,),
        dims=tuple(dims),
        longest=length + height,
    )


_COLLARS: dict[str, tuple[tuple[str, ...], str]] = {
    "set screw": (("with a set screw hole", "held by a grub screw"), "ring with a radial hole"),
    "split": (
        ("slit on one side, with a clamping screw", "single split clamp style"),
        "thick ring cut open on one side",
    ),
}


def _draw_collar(rng: Random) -> Facts:
    bore = rng.choice(list(COLLARS))
    return {
        "bore": bore,
        "kind": rng.choice(list(_COLLARS)),
        "wide": rng.random() < 0.3,
    }


def _collar_width(facts: Facts) -> float:
    return COLLARS[facts["bore"]][1] * (1.5 if facts["wide"] else 1)


def _build_collar(facts: Facts) -> Any:
    outer, _, screw = COLLARS[facts["bore"]]
    r, big, width = facts["bore"] / 2, outer / 2, _collar_width(facts)
    edge = 0.05 * outer
    profile = [(r, 0), (big - edge, 0), (big, edge), (big, width - edge), (big - edge, width)]
    collar = turned([*profile, (r, width)])
    hole = tap_drill(screw, COARSE[screw]) / 2
    middle = (r + big) / 2
    if facts["kind"] == "set screw":
        drill = Pos(big / 2 + 1, 0, width / 2) * Rot(0, 90, 0) * Cylinder(hole, big + 2)
        return collar - drill
    slit = Pos(middle, 0, width / 2) * Box(big - r + 4, 0.08 * outer, width)
    hole = min(hole, 0.32 * (big - r), 0.3 * width)
    cross = Pos(middle, 0, width / 2) * Rot(90, 0, 0) * Cylinder(hole, 2 * outer)
    return collar - slit - cross


def _say_collar(facts: Facts) -> Words:
    outer = COLLARS[facts["bore"]][0]
    trait, looks = _COLLARS[facts["kind"]]
    width = _collar_width(facts)
    bore = facts["bore"]
    return Words(
        names=("shaft collar", "stop ring", "adjusting ring", "set collar"),
        broad=("ring", "collar", "sleeve", "round machine part"),
        looks=(looks,),
        uses=("stopping a shaft from sliding", "positioning a bearing", "a mechanical stop"),
        traits=(trait, ("wide version", "extra wide") if facts["wide"] else ("standard width",)),
        size=(f"{bore:g} mm bore", f"{bore:g}x{outer:g}x{width:g}", f"{bore:g} mm"),
        standards=("DIN 705",) if facts["kind"] == "set screw" and not facts["wide"] else (),
        dims=(
            Dim.diameter(bore, "bore", symbol="ID"),
            Dim.diameter(outer, "outer diameter", symbol="OD"),
            Dim.length(width, "width", "wide", "B"),
        ),
        longest=outer,
    )


SHAFT = Family(name="shaft", draw=_draw_shaft, build=_build_shaft, words=_say_shaft)
PARALLEL_KEY = Family(name="parallel_key", draw=_draw_key, build=_build_key, words=_say_key)
PIN = Family(name="pin", draw=_draw_pin, build=_build_pin, words=_say_pin)
SHAFT_COLLAR = Family(
    name="shaft_collar", draw=_draw_collar, build=_build_collar, words=_say_collar
)
