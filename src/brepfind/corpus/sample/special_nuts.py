"""Nuts with a flange or a cap."""

from __future__ import annotations

from random import Random
from typing import Any

from brepfind.corpus.sample.family import Dim, Facts, Family, Words
from brepfind.corpus.sample.shapes import hex_chamfer, hexagon, prism, turned
from brepfind.corpus.sample.threads import FINE, pitch_of, tap_drill, thread_names

# DIN 6923: diameter to width across flats s, flange diameter dc, height m, mm.
FLANGE_NUTS = {
    5: (8, 11.8, 5), 6: (10, 14.2, 6), 8: (13, 17.9, 8), 10: (15, 21.8, 10), 12: (18, 26, 12),
    14: (21, 29.9, 14), 16: (24, 34.5, 16), 20: (30, 42.8, 20),
}  # fmt: skip
# DIN 1587: diameter to width across flats s, height h, hexagon height m, dome diameter, depth t.
CAP_NUTS = {
    4: (7, 8, 3.2, 6.5, 5.5), 5: (8, 10, 4, 7.5, 7.5), 6: (10, 12, 5, 9.5, 8),
    8: (13, 15, 6.5, 12.5, 11), 10: (16, 18, 8, 15, 13), 12: (18, 22, 10, 17, 16),
    14: (21, 25, 11, 20, 18), 16: (24, 28, 13, 23, 21), 18: (27, 32, 15, 26, 24),
    20: (30, 34, 16, 28, 26), 22: (34, 39, 18, 33, 29), 24: (36, 42, 19, 34, 31),
}  # fmt: skip


def _draw_flange_nut(rng: Random) -> Facts:
    d = rng.choice(list(FLANGE_NUTS))
    return {
        "d": d,
        "fine": d in FINE and rng.random() < 0.3,
        "locking": rng.random() < 0.4,
    }


def _build_flange_nut(facts: Facts) -> Any:
    d = facts["d"]
    across, flange, height = FLANGE_NUTS[d]
    hole = tap_drill(d, pitch_of(d, facts["fine"])) / 2
    thick = 0.14 * height
    cone = (across / 2 * 0.98, 0.38 * height)
    skirt = turned([(0, 0), (flange / 2, 0), (flange / 2, thick), cone, (0, 0.38 * height)])
    body = prism(hexagon(across), height) & hex_chamfer(across, height, bottom=False, top=True)
    top = float(height)
    nut = body + skirt
    if facts["locking"]:
        top = height * 1.3
        nut += turned([(0, height), (across * 0.42, height), (across * 0.38, top), (0, top)])
    return nut - turned([(0, 0), (hole * 1.1, 0), (hole, hole * 0.1), (hole, top), (0, top)])


def _say_flange_nut(facts: Facts) -> Words:
    d = facts["d"]
    across, flange, height = FLANGE_NUTS[d]
    locking = facts["locking"]
    traits = [
        ("self-locking with a nylon ring", "prevailing torque type with a collar")
        if locking
        else ("without a locking insert", "plain, not self-locking")
    ]
    if facts["fine"]:
        traits.append(("with fine thread", "with fine-pitch thread"))
    return Words(
        names=("flange nut", "hex flange nut", "nut with a built-in washer", "collar nut"),
        broad=("nut", "threaded nut", "fastener", "nut for a bolt"),
        looks=("six-sided ring that spreads out to a round skirt", "hexagon on a round base"),
        uses=("car wheels and exhausts", "large holes without a washer", "body panels"),
        traits=tuple(traits),
        size=thread_names(d, facts["fine"]),
        standards=("DIN 6926",) if locking else ("DIN 6923", "EN 1661"),
        dims=(
            Dim.length(across, "width across flats", "across flats", "S"),
            Dim.diameter(flange, "flange diameter", "flange", "DC"),
            Dim.length(height * 1.3 if locking else height, "height", "high", "M"),
        ),
        longest=flange,
    )


def _draw_cap_nut(rng: Random) -> Facts:
    d = rng.choice(list(CAP_NUTS))
    return {"d": d, "fine": d in FINE and rng.random() < 0.35}


def _build_cap_nut(facts: Facts) -> Any:
    d = facts["d"]
    across, height, hexed, dome, depth = CAP_NUTS[d]
    hole, r = tap_drill(d, pitch_of(d, facts["fine"])) / 2, dome / 2
    spring = height - r  # the dome is half a sphere; below it the cap is a cylinder
    s = 2**-0.5
    cap = turned([(0, 0), (r, 0), (r, spring), (r * s, spring + r * s, 0, height)])
    body = prism(hexagon(across), hexed) & hex_chamfer(across, hexed, bottom=True, top=True)
    bevel = 0.06 * d
    bore = [(0, 0), (hole + bevel, 0), (hole, bevel), (hole, depth), (0, depth + 0.5 * hole)]
    return body + cap - turned(bore)


def _say_cap_nut(facts: Facts) -> Words:
    d = facts["d"]
    across, height, hexed, _, _ = CAP_NUTS[d]
    return Words(
        names=("cap nut", "acorn nut", "domed cap nut", "hat nut"),
        broad=("nut", "threaded nut", "fastener", "threaded cap"),
        looks=("hexagon with a round dome that closes one end", "six-sided block under a dome"),
        uses=("hiding a sharp bolt end", "a decorative finish", "playground equipment"),
        traits=(("with fine thread", "with fine-pitch thread"),) if facts["fine"] else (),
        size=thread_names(d, facts["fine"]),
        standards=("DIN 1587",),
        dims=(
            Dim.length(height, "overall height", "high", "H"),
            Dim.length(across, "width across flats", "across flats", "S"),
            Dim.length(hexed, "hexagon height", "high hexagon", "M"),
        ),
        longest=max(height, across * 1.15),
    )


FLANGE_NUT = Family(
    name="flange_nut", draw=_draw_flange_nut, build=_build_flange_nut, words=_say_flange_nut
)
CAP_NUT = Family(name="cap_nut", draw=_draw_cap_nut, build=_build_cap_nut, words=_say_cap_nut)
