"""Enclosures, heat sinks and structural profiles."""

from __future__ import annotations

from random import Random
from typing import Any

from build123d import Box, Cylinder, Pos, Rot

from brepfind.corpus.sample.family import Dim, Facts, Family, Words
from brepfind.corpus.sample.plates import rounded_plate
from brepfind.corpus.sample.shapes import Point, drilled, prism, rectangle_of

Table = dict[str, tuple[float, float, float, float]]

# EN 10365, EN 10056, EN 10219: profile to height, width, web, flange, mm.
I_BEAMS: Table = {
    "IPE 80": (80, 46, 3.8, 5.2), "IPE 100": (100, 55, 4.1, 5.7), "IPE 120": (120, 64, 4.4, 6.3),
    "IPE 140": (140, 73, 4.7, 6.9), "IPE 160": (160, 82, 5.0, 7.4), "IPE 200": (200, 100, 5.6, 8.5),
    "HEA 100": (96, 100, 5, 8), "HEA 120": (114, 120, 5, 8), "HEB 100": (100, 100, 6, 10),
}  # fmt: skip
U_BEAMS: Table = {
    "UPN 50": (50, 38, 5, 7), "UPN 65": (65, 42, 5.5, 7.5), "UPN 80": (80, 45, 6, 8),
    "UPN 100": (100, 50, 6, 8.5), "UPN 120": (120, 55, 7, 9), "UPN 140": (140, 60, 7, 10),
}  # fmt: skip
ANGLES: Table = {
    "L 20x20x3": (20, 20, 3, 3), "L 30x30x3": (30, 30, 3, 3), "L 40x40x4": (40, 40, 4, 4),
    "L 50x50x5": (50, 50, 5, 5), "L 60x40x5": (60, 40, 5, 5), "L 60x60x6": (60, 60, 6, 6),
    "L 80x40x6": (80, 40, 6, 6), "L 80x80x8": (80, 80, 8, 8),
}  # fmt: skip
HOLLOWS: Table = {
    "SHS 20x20x2": (20, 20, 2, 2), "SHS 30x30x3": (30, 30, 3, 3), "SHS 40x40x3": (40, 40, 3, 3),
    "SHS 50x50x4": (50, 50, 4, 4), "RHS 40x20x2": (40, 20, 2, 2), "RHS 50x30x3": (50, 30, 3, 3),
    "RHS 60x40x3": (60, 40, 3, 3), "RHS 80x40x4": (80, 40, 4, 4), "SHS 80x80x5": (80, 80, 5, 5),
}  # fmt: skip
T_BEAMS: Table = {
    "T 30": (30, 30, 4, 4), "T 40": (40, 40, 5, 5), "T 50": (50, 50, 6, 6), "T 60": (60, 60, 7, 7),
    "T 80": (80, 80, 9, 9),
}  # fmt: skip
BEAM_LENGTHS = (100, 150, 200, 250, 300, 400, 500, 600, 800, 1000, 1200, 1500, 2000)

_BEAMS: dict[
    str, tuple[dict[str, tuple[float, float, float, float]], tuple[str, ...], str, str]
] = {
    "I": (I_BEAMS, ("I-beam", "H-section", "steel I profile"), "EN 10365", "bar shaped like an I"),
    "U": (U_BEAMS, ("U-channel", "channel section", "UPN profile"), "EN 10365", "long trough"),
    "L": (ANGLES, ("angle section", "L-profile", "angle iron"), "EN 10056", "bar shaped like an L"),
    "box": (
        HOLLOWS,
        ("square tube", "hollow section", "rectangular tube"),
        "EN 10219",
        "long four-sided tube",
    ),
    "T": (T_BEAMS, ("T-section", "tee bar", "T-profile"), "EN 10055", "bar shaped like a T"),
}


def _draw_beam(rng: Random) -> Facts:
    kind = rng.choice(list(_BEAMS))
    code = rng.choice(list(_BEAMS[kind][0]))
    high = _BEAMS[kind][0][code][0]
    lengths = [n for n in BEAM_LENGTHS if 1.5 * high <= n <= 25 * high]
    return {"kind": kind, "code": code, "length": rng.choice(lengths), "holes": rng.random() < 0.3}


def _section(kind: str, h: float, b: float, s: float, t: float) -> list[Point]:
    x, w = b / 2, s / 2
    if kind == "I":
        right = [(x, 0), (x, t), (w, t), (w, h - t), (x, h - t), (x, h)]
        return right + [(-a, z) for a, z in reversed(right)]
    if kind == "U":
        return [(0, 0), (b, 0), (b, t), (s, t), (s, h - t), (b, h - t), (b, h), (0, h)]
    if kind == "L":
        return [(0, 0), (b, 0), (b, t), (s, t), (s, h), (0, h)]
    return [(-w, 0), (w, 0), (w, h - t), (x, h - t), (x, h), (-x, h), (-x, h - t), (-w, h - t)]


def _build_beam(facts: Facts) -> Any:
    kind, length = facts["kind"], facts["length"]
    h, b, s, t = _BEAMS[kind][0][facts["code"]]
    if kind == "box":
        outer = rounded_plate(b, h, length, 1.5 * t)
        beam: Any = outer - Pos(0, 0, length / 2) * Box(b - 2 * t, h - 2 * t, length)
        if facts["holes"]:
            beam -= [Pos(0, h / 2, z) * Box(0.3 * b, 3 * t, 0.3 * b) for z in _spots(length)]
        return beam
    beam = prism(_section(kind, h, b, s, t), length)
    if facts["holes"]:
        # Through the web for I, U and T, through the upright leg for L.
        middle = 0.6 * h if kind == "L" else h / 2
        d = 0.3 * min(b, h)
        beam -= [Pos(0, middle, z) * Rot(0, 90, 0) * Cylinder(d / 2, 2 * b) for z in _spots(length)]
    return beam


def _spots(length: float) -> list[float]:
    return [length / 4, length / 2, 3 * length / 4]


def _say_beam(facts: Facts) -> Words:
    kind, code, length = facts["kind"], facts["code"], facts["length"]
    table, names, standard, looks = _BEAMS[kind]
    h, b, s, _ = table[code]
    return Words(
        names=names,
        broad=("profile", "beam", "bar", "section"),
        looks=(looks,),
        uses=("a steel frame", "a machine base", "building construction", "a rack"),
        traits=(
            ("with three openings along it", "pierced three times")
            if facts["holes"]
            else ("not drilled", "without holes"),
        ),
        size=(
            f"{code}, {length:g} mm",
            f"{code} x {length:g}",
            f"{code.replace(' ', '')} L{length:g}",
        ),
        standards=(standard,),
        dims=(
            Dim.length(length, "length", "long", "L"),
            Dim.length(h, "section height", "high", "H"),
            Dim.length(b, "section width", "wide", "B"),
            Dim.length(s, "wall thickness", "wall", "S"),
        ),
        longest=length,
    )


def _draw_heat_sink(rng: Random) -> Facts:
    width = rng.choice((20, 25, 30, 40, 50, 60, 80, 100, 120))
    fin = rng.choice([n for n in (0.8, 1.0, 1.2, 1.5, 2.0, 3.0) if 10 * n <= width])
    most = min(20, int(width / (2.2 * fin)))
    return {
        "width": width,
        "length": rng.choice([n for n in (20, 30, 40, 50, 60, 80, 100, 150) if n >= 0.5 * width]),
        "base": rng.choice((2, 3, 4, 5, 6)),
        "fin": fin,
        "fins": rng.randint(4, max(4, most)),
        "high": rng.choice((10, 15, 20, 25, 30, 40, 50)),
        "holes": rng.choice((0, 0, 2, 4)) if width >= 40 else 0,
    }


def _build_heat_sink(facts: Facts) -> Any:
    width, length, base, n = facts["width"], facts["length"], facts["base"], facts["fins"]
    fin, high = facts["fin"], facts["high"]
    step = (width - fin) / (n - 1)
    corners: list[Point] = [(-width / 2, 0), (width / 2, 0)]
    for i in reversed(range(n)):
        left = -width / 2 + i * step
        top = base + high
        corners += [(left + fin, base)] if i < n - 1 else []
        corners += [(left + fin, top), (left, top)]
        corners += [(left, base)] if i else []
    # Extruded along Z, the fins stand along Y.
    sink: Any = prism(corners, length)
    if facts["holes"]:
        ends = [0.12 * length, 0.88 * length]
        columns = [0.0] if facts["holes"] == 2 else [-0.32 * width, 0.32 * width]
        tool = Rot(90, 0, 0) * Cylinder(min(1.7, 0.3 * step + 0.8), 2 * (base + high) + 4)
        sink -= [Pos(x, 0, z) * tool for x in columns for z in ends]
    return sink


def _say_heat_sink(facts: Facts) -> Words:
    width, length, n = facts["width"], facts["length"], facts["fins"]
    total = facts["base"] + facts["high"]
    traits: list[tuple[str, ...]] = []
    if facts["holes"]:
        word = "two" if facts["holes"] == 2 else "four"
        traits.append((f"with {word} mounting holes", f"drilled {word} times for fixing"))
    else:
        traits.append(("without mounting holes", "not drilled"))
    traits.append(
        ("with tall fins", "tall") if facts["high"] >= 30 else ("low profile", "with low fins")
    )
    return Words(
        names=("heat sink", "finned heat sink", "extruded cooler", "cooling profile"),
        broad=("cooler", "profile", "finned block", "electronics part"),
        looks=("flat base with a row of thin parallel walls", "comb-like block"),
        uses=("cooling a transistor", "a power LED", "a voltage regulator", "an amplifier"),
        traits=tuple(traits),
        size=(f"{width:g} x {length:g} x {total:g} mm", f"{width:g}x{length:g}x{total:g}"),
        dims=(
            Dim.count(n, "fins"),
            Dim.length(width, "width", "wide", "W"),
            Dim.length(length, "length", "long", "L"),
            Dim.length(total, "overall height", "high", "H"),
            Dim.length(facts["fin"], "fin thickness", "thick fins", "F"),
            Dim.length(facts["base"], "base thickness", "thick base", "B"),
        ),
        longest=max(width, length, total),
    )


def _draw_enclosure(rng: Random) -> Facts:
    length = rng.choice((50, 60, 80, 100, 120, 150, 180, 200))
    widths = [n for n in (30, 40, 50, 60, 80, 100, 120) if 0.4 * length <= n <= length]
    wall = rng.choice((1.5, 2, 2.5, 3))
    return {
        "length": length,
        "width": rng.choice(widths),
        "high": rng.choice((15, 20, 25, 30, 40, 50, 60)),
        "wall": wall,
        "radius": rng.choice((0, 3, 5)),
        "bosses": rng.choice((0, 4, 4)),
        "window": rng.choice((0, 0, 8, 12, 16)),
        "vents": rng.choice((0, 0, 3, 5)),
    }


def _build_enclosure(facts: Facts) -> Any:
    length, width, high = facts["length"], facts["width"], facts["high"]
    wall, radius = facts["wall"], facts["radius"]
    box: Any = rounded_plate(length, width, high, radius)
    inside = rounded_plate(length - 2 * wall, width - 2 * wall, high, max(0, radius - wall))
    box -= Pos(0, 0, wall) * inside
    if facts["bosses"]:
        spots = rectangle_of(length - 2 * wall - 8, width - 2 * wall - 8)
        top = high - 2 if high > 20 else 0.8 * high
        box += [Pos(x, y, (top + wall) / 2) * Cylinder(3, top - wall) for x, y in spots]
        box = drilled(box, spots, 2.5, wall + 1, top)
    if facts["window"]:
        d = min(facts["window"], high - 2 * wall - 4)
        box -= Pos(length / 2, 0, (high + wall) / 2) * Rot(0, 90, 0) * Cylinder(d / 2, 4 * wall)
    for i in range(facts["vents"]):
        x = (i - (facts["vents"] - 1) / 2) * 6
        box -= Pos(x, -width / 2, (high + wall) / 2) * Box(2, 4 * wall, 0.5 * high)
    return box


def _say_enclosure(facts: Facts) -> Words:
    length, width, high = facts["length"], facts["width"], facts["high"]
    traits = [
        ("with four screw bosses inside", "with screw posts in its corners")
        if facts["bosses"]
        else ("without bosses", "plain inside"),
        ("with rounded corners", "round-edged") if facts["radius"] else ("with sharp corners",),
    ]
    if facts["window"]:
        traits.append(("with a round cable hole in one end", "with a cable entry"))
    if facts["vents"]:
        n = facts["vents"]
        traits.append((f"with {n} ventilation slots", f"with {n} slots in one side"))
    return Words(
        names=("enclosure", "electronics housing", "project box", "instrument case"),
        broad=("box", "case", "housing", "container"),
        looks=("open-topped box with thin walls", "shallow tray with four walls"),
        uses=("a circuit board", "a sensor", "a power supply", "an Arduino"),
        traits=tuple(traits),
        size=(f"{length:g} x {width:g} x {high:g} mm", f"{length:g}x{width:g}x{high:g}"),
        dims=(
            Dim.length(length, "length", "long", "L"),
            Dim.length(width, "width", "wide", "W"),
            Dim.length(high, "height", "high", "H"),
            Dim.length(facts["wall"], "wall thickness", "wall", "T"),
        ),
        longest=length,
    )


BEAM = Family(name="beam", draw=_draw_beam, build=_build_beam, words=_say_beam)
HEAT_SINK = Family(
    name="heat_sink", draw=_draw_heat_sink, build=_build_heat_sink, words=_say_heat_sink
)
ENCLOSURE = Family(
    name="enclosure", draw=_draw_enclosure, build=_build_enclosure, words=_say_enclosure
)
