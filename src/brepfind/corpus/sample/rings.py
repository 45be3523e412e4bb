"""Round parts around a shaft: bearings, bushings, retaining rings, O-rings."""

from __future__ import annotations

from random import Random
from typing import Any

from build123d import Pos, Rot, Solid

from brepfind.corpus.sample.family import Dim, Facts, Family, Words
from brepfind.corpus.sample.shapes import Corner, turned
from brepfind.corpus.sample.warehouse import ExternalSnapRing, InternalSnapRing

# ISO 15: designation to bore d, outer diameter D, width B, mm.
BEARINGS = {
    "623": (3, 10, 4), "624": (4, 13, 5), "625": (5, 16, 5), "626": (6, 19, 6), "607": (7, 19, 6),
    "608": (8, 22, 7), "609": (9, 24, 7), "6000": (10, 26, 8), "6001": (12, 28, 8),
    "6002": (15, 32, 9), "6003": (17, 35, 10), "6004": (20, 42, 12), "6005": (25, 47, 12),
    "6006": (30, 55, 13), "6007": (35, 62, 14), "6008": (40, 68, 15), "6009": (45, 75, 16),
    "6010": (50, 80, 16), "6200": (10, 30, 9), "6201": (12, 32, 10), "6202": (15, 35, 11),
    "6203": (17, 40, 12), "6204": (20, 47, 14), "6205": (25, 52, 15), "6206": (30, 62, 16),
    "6207": (35, 72, 17), "6208": (40, 80, 18), "6209": (45, 85, 19), "6210": (50, 90, 20),
    "6300": (10, 35, 11), "6301": (12, 37, 12), "6302": (15, 42, 13), "6303": (17, 47, 14),
    "6304": (20, 52, 15), "6305": (25, 62, 17), "6306": (30, 72, 19), "6307": (35, 80, 21),
    "6308": (40, 90, 23), "6309": (45, 100, 25), "6310": (50, 110, 27), "6800": (10, 19, 5),
    "6801": (12, 21, 5), "6802": (15, 24, 5), "6803": (17, 26, 5), "6804": (20, 32, 7),
    "6805": (25, 37, 7), "6806": (30, 42, 7), "6807": (35, 47, 7), "6808": (40, 52, 7),
    "6900": (10, 22, 6), "6901": (12, 24, 6), "6902": (15, 28, 7), "6903": (17, 30, 7),
    "6904": (20, 37, 9), "6905": (25, 42, 9), "6906": (30, 47, 9), "6907": (35, 55, 10),
    "6908": (40, 62, 12),
}  # fmt: skip

# ISO 2795: bore to outer diameter, flange diameter, flange thickness, lengths, mm.
BUSHINGS = {
    3: (6, 9, 1.5, (4, 6)), 4: (8, 12, 2, (4, 8, 12)), 5: (9, 13, 2, (5, 8, 12)),
    6: (10, 14, 2, (6, 10, 16)), 8: (12, 16, 2, (8, 12, 16)), 10: (16, 22, 3, (8, 10, 16, 20)),
    12: (18, 24, 3, (8, 12, 20)), 14: (20, 26, 3, (10, 14, 20)), 15: (21, 27, 3, (10, 16, 25)),
    16: (22, 28, 3, (12, 16, 25)), 18: (24, 30, 3, (12, 18, 30)), 20: (26, 32, 3, (15, 20, 30)),
    22: (28, 34, 3, (15, 20, 30)), 25: (32, 39, 3.5, (20, 25, 30)), 28: (36, 44, 4, (20, 25, 30)),
    30: (38, 46, 4, (20, 25, 30)), 32: (40, 48, 4, (20, 25, 32)), 35: (45, 55, 5, (25, 35, 40)),
    40: (50, 60, 5, (25, 32, 40)), 45: (55, 65, 5, (35, 45, 55)), 50: (60, 70, 5, (35, 50, 60)),
}  # fmt: skip

# O-rings: cross-sections of ISO 3601 and usual metric ones, and inner diameters, mm.
O_RING_SECTIONS = (1.0, 1.5, 1.78, 2.0, 2.5, 2.62, 3.0, 3.53, 4.0, 5.0, 5.33, 6.99)
O_RING_BORES = (
    3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20, 22, 25, 28, 30, 32, 35, 40, 45, 50, 56, 60, 65, 70, 75,
    80, 90, 100, 110, 120, 140, 160, 180, 200,
)  # fmt: skip

_CLOSURES: dict[str, tuple[str, tuple[str, ...]]] = {
    "open": ("", ("open, without shields", "unsealed")),
    "2Z": ("-2Z", ("with metal shields on both sides", "shielded", "double shielded")),
    "2RS": ("-2RS", ("with rubber seals on both sides", "sealed", "double sealed")),
}
_RIMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "plain": ("", ()),
    "N": ("N", ("with a snap ring groove", "with a groove around the outer ring")),
    "F": ("F", ("with a flange on the outer ring", "flanged")),
}


def _draw_bearing(rng: Random) -> Facts:
    return {
        "code": rng.choice(list(BEARINGS)),
        "closure": rng.choice(list(_CLOSURES)),
        "rim": rng.choice(("plain", "plain", "plain", "N", "F")),
    }


def _build_bearing(facts: Facts) -> Any:
    bore, outer, width = BEARINGS[facts["code"]]
    r, big, half = bore / 2, outer / 2, width / 2
    gap = big - r
    inner_land, outer_land = r + 0.3 * gap, big - 0.25 * gap
    edge = min(0.06 * gap + 0.15, 1.0)
    depth = {"open": 0.36 * width, "2Z": 0.05 * width, "2RS": 0.09 * width}[facts["closure"]]
    upper: list[Corner] = [(inner_land, half), (inner_land, half - depth)]
    if facts["closure"] == "2RS":  # the lip of the seal
        lip = inner_land + 0.12 * gap
        upper += [(lip, half - depth), (lip, half - depth / 2)]
        upper += [(outer_land, half - depth / 2), (outer_land, half)]
    else:
        upper += [(outer_land, half - depth), (outer_land, half)]
    rim: list[Corner] = [(big - edge, half), (big, half - edge)]
    if facts["rim"] == "N":
        top, bottom, floor = half - 0.16 * width, half - 0.28 * width, big - 0.1 * gap
        rim += [(big, top), (floor, top), (floor, bottom), (big, bottom)]
    lower: list[Corner] = [(ring, -z) for ring, z in reversed(upper)]
    if facts["rim"] == "F":
        wide = big + 0.16 * gap + 0.5
        rim += [(big, 0.2 * width - half), (wide, 0.2 * width - half), (wide, -half)]
    else:
        rim += [(big, edge - half), (big - edge, -half)]
    bore_side: list[Corner] = [(r + edge, -half), (r, edge - half), (r, half - edge)]
    return turned([(r + edge, half), *upper, *rim, *lower, *bore_side])


def _say_bearing(facts: Facts) -> Words:
    bore, outer, width = BEARINGS[facts["code"]]
    suffix, closure = _CLOSURES[facts["closure"]]
    mark, rim = _RIMS[facts["rim"]]
    code = f"F{facts['code']}{suffix}" if mark == "F" else f"{facts['code']}{suffix}{mark}"
    dims = (
        Dim.diameter(bore, "bore", symbol="ID"),
        Dim.diameter(outer, "outer diameter", symbol="OD"),
        Dim.length(width, "width", "wide", "B"),
    )
    return Words(
        names=("deep groove ball bearing", "ball bearing", "radial ball bearing"),
        broad=("bearing", "ring", "rolling bearing", "round machine part"),
        looks=("thick ring with a sunken band on both faces", "two rings, one inside the other"),
        uses=("a rotating shaft", "an electric motor", "a skateboard wheel", "a gearbox"),
        traits=(closure, rim) if rim else (closure,),
        size=(code, f"{code} ({bore}x{outer}x{width})", f"{bore}x{outer}x{width} mm"),
        standards=("ISO 15", "DIN 625"),
        dims=dims,
        longest=outer,
    )


def _draw_bushing(rng: Random) -> Facts:
    bore = rng.choice(list(BUSHINGS))
    return {
        "bore": bore,
        "length": rng.choice(BUSHINGS[bore][3]),
        "flanged": rng.random() < 0.5,
        "oil_hole": bore >= 8 and rng.random() < 0.3,
    }


def _build_bushing(facts: Facts) -> Any:
    outer, flange, thick, _ = BUSHINGS[facts["bore"]]
    r, big, length = facts["bore"] / 2, outer / 2, facts["length"]
    edge = 0.15 * (big - r)
    foot = [(flange / 2, 0), (flange / 2, thick), (big, thick)]
    if not facts["flanged"]:
        foot = [(big - edge, 0), (big, edge)]
    profile = [(r + edge, 0), *foot, (big, length - edge), (big - edge, length)]
    bushing = turned([*profile, (r + edge, length), (r, length - edge), (r, edge)])
    if facts["oil_hole"]:
        tool = Solid.make_cylinder(0.08 * outer, outer)
        bushing -= Pos(0, 0, length * 0.6) * Rot(0, 90, 0) * tool
    return bushing


def _say_bushing(facts: Facts) -> Words:
    outer, flange, thick, _ = BUSHINGS[facts["bore"]]
    bore, length, flanged = facts["bore"], facts["length"], facts["flanged"]
    traits = [
        ("with a flange at one end", "flanged", "with a collar")
        if flanged
        else ("cylindrical, without a flange", "straight")
    ]
    if facts["oil_hole"]:
        traits.append(("with an oil hole in its wall", "with a lubrication hole"))
    dims = [
        Dim.diameter(bore, "bore", symbol="ID"),
        Dim.diameter(outer, "outer diameter", symbol="OD"),
        Dim.length(length, "length", "long", "L"),
    ]
    if flanged:
        dims.append(Dim.diameter(flange, "flange diameter", "flange", "F"))
        dims.append(Dim.length(thick, "flange thickness", "thick flange", "T"))
    return Words(
        names=("plain bearing bushing", "bushing", "sleeve bearing", "sintered bronze bush"),
        broad=("sleeve", "ring", "short tube", "round machine part"),
        looks=("short thick-walled tube", "hollow cylinder with bevelled rims"),
        uses=("a slow shaft", "a pivot", "guiding a rod", "a hinge"),
        traits=tuple(traits),
        size=(f"{bore:g}x{outer:g}x{length:g}", f"{bore:g}/{outer:g} x {length:g} mm"),
        standards=("ISO 2795", "DIN 1850"),
        dims=tuple(dims),
        longest=max(length, flange if flanged else outer),
    )


def _draw_o_ring(rng: Random) -> Facts:
    bore = rng.choice(O_RING_BORES)
    sections = [n for n in O_RING_SECTIONS if 0.02 * bore <= n <= 0.4 * bore]
    return {"bore": bore, "section": rng.choice(sections)}


def _build_o_ring(facts: Facts) -> Any:
    bore, section = facts["bore"], facts["section"]
    return Solid.make_torus((bore + section) / 2, section / 2)


def _say_o_ring(facts: Facts) -> Words:
    bore, section = facts["bore"], facts["section"]
    return Words(
        names=("O-ring", "O-ring seal", "toroidal sealing ring"),
        broad=("ring", "seal", "gasket", "round rubber part"),
        looks=("ring of round cross-section", "doughnut, a plain torus"),
        uses=("sealing a groove", "a hydraulic piston", "a water fitting", "a static seal"),
        size=(f"{bore:g} x {section:g}", f"{bore:g}x{section:g} mm", f"OR {bore:g}x{section:g}"),
        standards=("ISO 3601",),
        dims=(
            Dim.diameter(bore, "inner diameter", symbol="ID"),
            Dim.length(section, "cross-section", "thick cord", "CS"),
        ),
        longest=bore + 2 * section,
    )


def _draw_retaining_ring(rng: Random) -> Facts:
    kind = rng.choice(("shaft", "bore"))
    builder = ExternalSnapRing if kind == "shaft" else InternalSnapRing
    # The smallest have another outline, the largest are rare.
    sizes = [size for size in builder.sizes() if 10 <= float(size) <= 100]
    return {"kind": kind, "size": rng.choice(sizes)}


def _build_retaining_ring(facts: Facts) -> Any:
    return (ExternalSnapRing if facts["kind"] == "shaft" else InternalSnapRing)(facts["size"])


def _say_retaining_ring(facts: Facts) -> Words:
    shaft, size = facts["kind"] == "shaft", float(facts["size"])
    table = (ExternalSnapRing if shaft else InternalSnapRing).parameters(facts["size"])
    host = "shaft" if shaft else "bore"
    return Words(
        names=("circlip", "retaining ring", "snap ring")
        + (("external circlip",) if shaft else ("internal circlip",)),
        broad=("ring", "clip", "spring steel part", "flat ring"),
        looks=(
            ("flat open ring with two eyes outside the gap", "C-shaped ring, eyes outside")
            if shaft
            else ("flat open ring with two eyes turned inward", "C-shaped ring, eyes inside")
        ),
        uses=("holding a bearing in place", "axial retention in a groove", "securing a gear"),
        traits=(
            ("external, for a shaft", "for shafts")
            if shaft
            else ("internal, for a bore", "for bores"),
        ),
        size=(f"{size:g} mm {host}", f"{host} {size:g}", f"{size:g} x {table['s']:g}"),
        standards=("DIN 471",) if shaft else ("DIN 472",),
        dims=(
            Dim.diameter(size, f"{host} diameter", f"{host}", "D"),
            Dim.length(table["s"], "thickness", "thick", "S"),
        ),
        longest=size * (1.25 if shaft else 1.1),
    )


BEARING = Family(name="bearing", draw=_draw_bearing, build=_build_bearing, words=_say_bearing)
BUSHING = Family(name="bushing", draw=_draw_bushing, build=_build_bushing, words=_say_bushing)
O_RING = Family(name="o_ring", draw=_draw_o_ring, build=_build_o_ring, words=_say_o_ring)
RETAINING_RING = Family(
    name="retaining_ring",
    draw=_draw_retaining_ring,
    build=_build_retaining_ring,
    words=_say_retaining_ring,
)
