"""Things for the hand and things that keep distance: knobs, handles, spacers."""

from __future__ import annotations

from math import cos, pi, sin
from random import Random
from typing import Any

from build123d import Cylinder, Edge, Face, Plane, Pos, Solid, Vector, Wire

from brepfind.corpus.sample.family import Dim, Facts, Family, Words
from brepfind.corpus.sample.shapes import Corner, hexagon, prism, turned
from brepfind.corpus.sample.threads import COARSE, pitch_diameter, tap_drill

# DIN 6336: star knob diameter to hub diameter, overall height, height of the star, thread, mm.
STAR_KNOBS = {
    20: (10, 13, 8, 4), 25: (12, 16, 10, 5), 32: (12, 21, 10, 6), 40: (14, 26, 13, 8),
    50: (18, 34, 17, 10), 63: (20, 42, 21, 12), 80: (25, 52, 25, 16),
}  # fmt: skip
# DIN 319: ball knob diameter to foot diameter, height, thread, mm.
BALL_KNOBS = {
    16: (8, 15, 4), 20: (12, 18, 5), 25: (15, 22.5, 6), 32: (18, 29, 8), 40: (22, 37, 10),
    50: (28, 46, 12),
}  # fmt: skip

# Hexagon stand-offs: thread to width across flats; round spacers: bore to outer diameters, mm.
STANDOFFS = {2.5: 5, 3: 5.5, 4: 7, 5: 8, 6: 10, 8: 13}
SPACERS = {
    2.7: (5, 6), 3.2: (6, 7, 8), 4.3: (8, 9, 10), 5.3: (10, 12), 6.4: (10, 12, 15),
    8.4: (14, 16, 20), 10.5: (16, 20, 25), 13: (20, 25, 30),
}  # fmt: skip
SPACER_LENGTHS = (3, 4, 5, 6, 8, 10, 12, 15, 18, 20, 25, 30, 35, 40, 45, 50, 60, 70, 80, 100)


def _draw_knob(rng: Random) -> Facts:
    if rng.random() < 0.25:
        return {"kind": "ball", "d": rng.choice(list(BALL_KNOBS)), "through": False}
    kind = rng.choice(("star", "wing", "fluted"))
    lobes = {"star": rng.choice((4, 5, 6, 7)), "wing": 3, "fluted": rng.choice((12, 16, 20))}[kind]
    return {
        "kind": kind,
        "d": rng.choice(list(STAR_KNOBS)),
        "lobes": lobes,
        "through": rng.random() < 0.3,
    }


def _build_knob(facts: Facts) -> Any:
    d = facts["d"]
    if facts["kind"] == "ball":
        foot, height, thread = BALL_KNOBS[d]
        ball: Any = Pos(0, 0, height - d / 2) * Solid.make_sphere(d / 2)
        ball &= Pos(0, 0, height / 2) * Cylinder(d, height)
        ball += Pos(0, 0, height / 4) * Cylinder(foot / 2, height / 2)
        hole = tap_drill(thread, COARSE[thread])
        return ball - Pos(0, 0, 0.3 * height) * Cylinder(hole / 2, 0.6 * height)
    hub, height, star, thread = STAR_KNOBS[d]
    knob = prism(_lobed(facts["kind"], d, facts["lobes"]), star, height - star)
    knob += Pos(0, 0, height / 2) * Cylinder(hub / 2, height)
    depth = height if facts["through"] else 0.6 * height
    hole = tap_drill(thread, COARSE[thread])
    return knob - Pos(0, 0, depth / 2) * Cylinder(hole / 2, depth)


def _lobed(kind: str, d: float, lobes: int) -> list[Corner]:
    """An outline of arcs: out at the lobes, in between them."""
    deep = {"star": 0.72, "wing": 0.5, "fluted": 0.93}[kind]
    big, small = d / 2, d / 2 * deep
    step = pi / lobes
    corners: list[Corner] = []
    for i in range(lobes):
        middle = 2 * i * step
        start, end = middle - 0.5 * step, middle + 0.5 * step
        r = (big + small) / 2
        valley, first = middle - step, (r * cos(start), r * sin(start))
        corners.append((small * cos(valley), small * sin(valley), *first))
        corners.append((big * cos(middle), big * sin(middle), r * cos(end), r * sin(end)))
    # The first corner is reached from the last, through the valley before the first lobe.
    return corners


_KNOBS: dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "star": (
        ("star knob", "star grip", "lobed knob"),
        "star-shaped head on a short neck",
        ("DIN 6336",),
    ),
    "wing": (
        ("three-lobe knob", "tri-knob", "three-pronged grip"),
        "head of three rounded arms",
        (),
    ),
    "fluted": (("fluted knob", "scalloped knob", "grip knob"), "round head with a wavy rim", ()),
    "ball": (
        ("ball knob", "spherical knob", "ball grip"),
        "ball with a flattened foot",
        ("DIN 319",),
    ),
}


def _say_knob(facts: Facts) -> Words:
    d, kind = facts["d"], facts["kind"]
    names, looks, standards = _KNOBS[kind]
    height, thread = BALL_KNOBS[d][1:] if kind == "ball" else (STAR_KNOBS[d][1], STAR_KNOBS[d][3])
    traits: list[tuple[str, ...]] = [
        ("with a through hole", "threaded right through")
        if facts["through"]
        else ("with a blind hole", "hole not going through")
    ]
    dims = [
        Dim.diameter(d, "diameter", symbol="D"),
        Dim.length(height, "height", "high", "H"),
    ]
    if kind != "ball":
        dims.insert(1, Dim.count(facts["lobes"], "lobes"))
    return Words(
        names=names,
        broad=("knob", "handle", "grip", "hand screw"),
        looks=(looks,),
        uses=("a machine lever", "clamping by hand", "a jig", "a tripod"),
        traits=tuple(traits),
        size=(f"{d} mm M{thread}", f"{d} M{thread}", f"{d:g}, thread M{thread}"),
        standards=standards,
        dims=tuple(dims),
        longest=max(d, height),
    )


def _draw_handle(rng: Random) -> Facts:
    rod = rng.choice((6, 8, 10, 12, 14, 16, 20))
    spans = (64, 76, 88, 96, 100, 112, 120, 128, 140, 160, 180, 192, 200, 224, 250, 300)
    return {
        "rod": rod,
        "span": rng.choice([n for n in spans if 6 * rod <= n <= 20 * rod]),
        "reach": rng.choice([n for n in (30, 35, 40, 45, 50, 55, 60, 70) if n >= 2.6 * rod]),
        "flanged": rng.random() < 0.4,
    }


def _build_handle(facts: Facts) -> Any:
    rod, span, reach = facts["rod"], facts["span"], facts["reach"]
    bend = 1.5 * rod
    leg = reach - rod / 2 - bend
    x, top, s = span / 2, reach - rod / 2, bend * (1 - 2**-0.5)
    points = [Vector(*point) for point in ((-x, 0, 0), (-x, 0, leg), (bend - x, 0, top))]
    far = [Vector(-point.X, 0, point.Z) for point in reversed(points)]
    path = Wire(
        [
            Edge.make_line(points[0], points[1]),
            Edge.make_three_point_arc(points[1], Vector(s - x, 0, top - s), points[2]),
            Edge.make_line(points[2], far[0]),
            Edge.make_three_point_arc(far[0], Vector(x - s, 0, top - s), far[1]),
            Edge.make_line(far[1], far[2]),
        ]
    )
    ring = Face(Wire.make_circle(rod / 2, Plane(points[0])))
    handle: Any = Solid.sweep(ring, path=path)
    thread = _handle_thread(rod)
    hole = tap_drill(thread, COARSE[thread]) / 2
    for side in (-span / 2, span / 2):
        if facts["flanged"]:
            handle += Pos(side, 0, rod / 8) * Cylinder(0.8 * rod, rod / 4)
        handle -= Pos(side, 0, 0.6 * rod) * Cylinder(hole, 1.2 * rod)
    return handle


def _handle_thread(rod: int) -> int:
    return {6: 3, 8: 4, 10: 5, 12: 6, 14: 6, 16: 8, 20: 8}[rod]


def _say_handle(facts: Facts) -> Words:
    rod, span, reach = facts["rod"], facts["span"], facts["reach"]
    thread = _handle_thread(rod)
    return Words(
        names=("pull handle", "bow handle", "U-handle", "drawer pull"),
        broad=("handle", "grip", "bent rod", "bail"),
        looks=("round rod bent to a U", "bridge of round bar with two legs"),
        uses=("a drawer", "a machine door", "lifting a case", "a cabinet"),
        traits=(
            ("with a round flange under each leg", "with feet")
            if facts["flanged"]
            else ("with plain legs", "without flanges"),
            (f"with M{thread} threads in its feet", f"tapped M{thread} from below"),
        ),
        size=(f"{span}x{reach}x{rod}", f"{span} mm centres", f"{span} x {reach} mm"),
        dims=(
            Dim.length(span, "hole spacing", "between centres", "A"),
            Dim.length(reach, "height", "high", "H"),
            Dim.diameter(rod, "rod diameter", "rod", "D"),
        ),
        longest=span + rod,
    )


def _draw_spacer(rng: Random) -> Facts:
    if rng.random() < 0.5:
        bore = rng.choice(list(SPACERS))
        return {
            "kind": "round",
            "bore": bore,
            "outer": rng.choice(SPACERS[bore]),
            "length": rng.choice([n for n in SPACER_LENGTHS if 0.9 * bore <= n <= 8 * bore]),
        }
    thread = rng.choice(list(STANDOFFS))
    return {
        "kind": rng.choice(("female", "male")),
        "thread": thread,
        "length": rng.choice([n for n in SPACER_LENGTHS if 1.6 * thread <= n <= 15 * thread]),
    }


def _build_spacer(facts: Facts) -> Any:
    length = facts["length"]
    if facts["kind"] == "round":
        r, big = facts["bore"] / 2, facts["outer"] / 2
        return turned([(r, 0), (big, 0), (big, length), (r, length)])
    thread = facts["thread"]
    hole = tap_drill(thread, COARSE[thread]) / 2
    body: Any = prism(hexagon(STANDOFFS[thread]), length)
    if facts["kind"] == "female":
        return body - Pos(0, 0, length / 2) * Cylinder(hole, length)
    depth = min(0.7 * length, 3 * thread)
    stud = pitch_diameter(thread, COARSE[thread]) / 2
    body += Pos(0, 0, -thread) * Cylinder(stud, 2 * thread)
    return body - Pos(0, 0, length - depth / 2) * Cylinder(hole, depth)


def _say_spacer(facts: Facts) -> Words:
    length, kind = facts["length"], facts["kind"]
    if kind == "round":
        bore, outer = facts["bore"], facts["outer"]
        return Words(
            names=("round spacer", "distance sleeve", "spacer tube", "stand-off sleeve"),
            broad=("spacer", "sleeve", "short tube", "small cylinder"),
            looks=("short plain tube", "hollow cylinder, cut square"),
            uses=("keeping two plates apart", "a circuit board", "a distance piece"),
            traits=(("round, unthreaded", "plain, without thread"),),
            size=(f"{bore:g}x{outer:g}x{length:g}", f"{outer:g} x {length:g} mm, bore {bore:g}"),
            dims=(
                Dim.length(length, "length", "long", "L"),
                Dim.diameter(outer, "outer diameter", symbol="OD"),
                Dim.diameter(bore, "bore", symbol="ID"),
            ),
            longest=max(length, outer),
        )
    thread = facts["thread"]
    male = kind == "male"
    return Words(
        names=("hex standoff", "hexagonal stand-off", "threaded spacer", "PCB standoff"),
        broad=("spacer", "pillar", "small threaded part", "stud"),
        looks=("six-sided bar with a threaded stud at one end",)
        if male
        else ("six-sided bar with a hole all the way through", "long hexagonal tube"),
        uses=("mounting a circuit board", "stacking boards", "a distance piece"),
        traits=(
            ("male-female", "with a stud at one end")
            if male
            else ("female-female", "threaded inside"),
        ),
        size=(
            f"M{thread:g} x {length:g}",
            f"M{thread:g}x{length:g}",
            f"M{thread:g}, {length:g} mm",
        ),
        dims=(
            Dim.length(length, "body length", "long", "L"),
            Dim.length(STANDOFFS[thread], "width across flats", "across flats", "S"),
        ),
        longest=max(length + (2 * thread if male else 0), 1.15 * STANDOFFS[thread]),
    )


KNOB = Family(name="knob", draw=_draw_knob, build=_build_knob, words=_say_knob)
HANDLE = Family(name="handle", draw=_draw_handle, build=_build_handle, words=_say_handle)
SPACER = Family(name="spacer", draw=_draw_spacer, build=_build_spacer, words=_say_spacer)
