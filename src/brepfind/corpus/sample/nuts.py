"""Nuts and washers."""

from __future__ import annotations

from random import Random
from typing import Any

from brepfind.corpus.sample.family import Dim, Facts, Family, Words
from brepfind.corpus.sample.shapes import hex_chamfer, hexagon, prism, turned
from brepfind.corpus.sample.threads import FINE, pitch_of, tap_drill, thread_names

# Kind to its standards and, by diameter, width across flats s and height m, mm.
HEX_NUTS: dict[str, tuple[tuple[str, ...], dict[int, tuple[float, float]]]] = {
    "regular": (
        ("ISO 4032", "DIN 934"),
        {
            3: (5.5, 2.4), 4: (7, 3.2), 5: (8, 4.7), 6: (10, 5.2), 8: (13, 6.8), 10: (16, 8.4),
            12: (18, 10.8), 14: (21, 12.8), 16: (24, 14.8), 18: (27, 15.8), 20: (30, 18),
            22: (34, 19.4), 24: (36, 21.5), 27: (41, 23.8), 30: (46, 25.6), 36: (55, 31),
            42: (65, 34), 48: (75, 38),
        },
    ),
    "thin": (
        ("ISO 4035", "DIN 439"),
        {
            3: (5.5, 1.8), 4: (7, 2.2), 5: (8, 2.7), 6: (10, 3.2), 8: (13, 4), 10: (16, 5),
            12: (18, 6), 14: (21, 7), 16: (24, 8), 18: (27, 9), 20: (30, 10), 22: (34, 11),
            24: (36, 12), 27: (41, 13.5), 30: (46, 15), 36: (55, 18), 42: (65, 21),
        },
    ),
    "high": (
        ("ISO 4033",),
        {
            5: (8, 5.1), 6: (10, 5.7), 8: (13, 7.5), 10: (16, 9.3), 12: (18, 12), 14: (21, 14.1),
            16: (24, 16.4), 20: (30, 20.3), 24: (36, 23.9), 30: (46, 28.6), 36: (55, 34.7),
        },
    ),
    "coupling": (
        ("DIN 6334",),
        {
            6: (10, 18), 8: (13, 24), 10: (16, 30), 12: (18, 36), 14: (21, 42), 16: (24, 48),
            20: (30, 60), 24: (36, 72), 30: (46, 90), 36: (55, 108),
        },
    ),
}  # fmt: skip

_KIND_TRAITS: dict[str, tuple[str, ...]] = {
    "regular": ("of regular height", "of normal height"),
    "thin": ("thin", "low, for use as a jam nut", "of half height"),
    "high": ("high style", "taller than usual"),
    "coupling": ("three diameters long", "extra long, for joining two studs"),
}

# Series to its standard and, by thread, inner diameter, outer diameter, thickness, mm.
WASHERS: dict[str, tuple[tuple[str, ...], dict[float, tuple[float, float, float]]]] = {
    "normal": (
        ("ISO 7089", "DIN 125"),
        {
            1.6: (1.7, 4, 0.3), 2: (2.2, 5, 0.3), 2.5: (2.7, 6, 0.5), 3: (3.2, 7, 0.5),
            4: (4.3, 9, 0.8), 5: (5.3, 10, 1), 6: (6.4, 12, 1.6), 8: (8.4, 16, 1.6),
            10: (10.5, 20, 2), 12: (13, 24, 2.5), 14: (15, 28, 2.5), 16: (17, 30, 3),
            18: (19, 34, 3), 20: (21, 37, 3), 22: (23, 39, 3), 24: (25, 44, 4), 27: (28, 50, 4),
            30: (31, 56, 4), 33: (34, 60, 5), 36: (37, 66, 5), 42: (45, 78, 8), 48: (52, 92, 8),
            56: (62, 105, 10), 64: (70, 115, 10),
        },
    ),
    "chamfered": (
        ("ISO 7090", "DIN 125 form B"),
        {
            5: (5.3, 10, 1), 6: (6.4, 12, 1.6), 8: (8.4, 16, 1.6), 10: (10.5, 20, 2),
            12: (13, 24, 2.5), 14: (15, 28, 2.5), 16: (17, 30, 3), 20: (21, 37, 3),
            24: (25, 44, 4), 30: (31, 56, 4), 36: (37, 66, 5), 42: (45, 78, 8), 48: (52, 92, 8),
        },
    ),
    "small": (
        ("ISO 7092", "DIN 433"),
        {
            2: (2.2, 4.5, 0.3), 2.5: (2.7, 5, 0.5), 3: (3.2, 6, 0.5), 4: (4.3, 8, 0.5),
            5: (5.3, 9, 1), 6: (6.4, 11, 1.6), 8: (8.4, 15, 1.6), 10: (10.5, 18, 1.6),
            12: (13, 20, 2), 14: (15, 24, 2.5), 16: (17, 28, 2.5), 20: (21, 34, 3),
            24: (25, 39, 4), 30: (31, 50, 4), 36: (37, 60, 5),
        },
    ),
    "large": (
        ("ISO 7093", "DIN 9021"),
        {
            3: (3.2, 9, 0.8), 4: (4.3, 12, 1), 5: (5.3, 15, 1), 6: (6.4, 18, 1.6),
            8: (8.4, 24, 2), 10: (10.5, 30, 2.5), 12: (13, 37, 3), 14: (15, 44, 3),
            16: (17, 50, 3), 20: (21, 60, 4), 24: (25, 72, 5), 30: (33, 92, 6), 36: (39, 110, 8),
        },
    ),
    "extra large": (
        ("ISO 7094", "DIN 440"),
        {
            5: (5.5, 18, 2), 6: (6.6, 22, 2), 8: (9, 28, 3), 10: (11, 34, 3), 12: (13.5, 44, 4),
            16: (17.5, 56, 5), 20: (22, 72, 6), 24: (26, 85, 6), 30: (33, 105, 6),
            36: (39, 125, 8),
        },
    ),
}  # fmt: skip

# ASME B18.21.1, type A, wide series: nominal size to inner and outer diameter, thickness, inch.
INCH_WASHERS: dict[str, tuple[float, float, float]] = {
    "1/4": (0.312, 0.734, 0.065), "5/16": (0.375, 0.875, 0.083), "3/8": (0.438, 1.0, 0.083),
    "7/16": (0.5, 1.25, 0.083), "1/2": (0.562, 1.375, 0.109), "9/16": (0.625, 1.469, 0.109),
    "5/8": (0.688, 1.75, 0.134), "3/4": (0.812, 2.0, 0.148), "7/8": (0.938, 2.25, 0.165),
    "1": (1.062, 2.5, 0.165), "1-1/8": (1.25, 2.75, 0.165), "1-1/4": (1.375, 3.0, 0.165),
    "1-1/2": (1.625, 3.5, 0.18), "1-3/4": (1.875, 4.0, 0.18), "2": (2.125, 4.5, 0.18),
}  # fmt: skip

_SERIES_TRAITS: dict[str, tuple[str, ...]] = {
    "normal": ("normal series", "of ordinary outer diameter"),
    "chamfered": ("with a chamfered outer edge", "bevelled on the outside"),
    "small": ("small series", "narrow"),
    "large": ("large series, a fender washer", "wide, three times the hole"),
    "extra large": ("extra wide, for wood", "extra large series"),
    "inch": ("type A wide", "US wide series"),
}


def _draw_hex_nut(rng: Random) -> Facts:
    kind = rng.choice(list(HEX_NUTS))
    diameter = rng.choice(list(HEX_NUTS[kind][1]))
    fine = diameter in FINE and kind != "coupling" and rng.random() < 0.25
    return {"kind": kind, "d": diameter, "fine": fine}


def _build_hex_nut(facts: Facts) -> Any:
    across, height = HEX_NUTS[facts["kind"]][1][facts["d"]]
    hole = tap_drill(facts["d"], pitch_of(facts["d"], facts["fine"])) / 2
    edge = facts["d"] / 2 * 1.04
    bevel = edge - hole
    body = prism(hexagon(across), height) & hex_chamfer(across, height, bottom=True, top=True)
    return body - turned(
        [(0, 0), (edge, 0), (hole, bevel), (hole, height - bevel), (edge, height), (0, height)]
    )


def _say_hex_nut(facts: Facts) -> Words:
    standards, table = HEX_NUTS[facts["kind"]]
    across, height = table[facts["d"]]
    traits = [_KIND_TRAITS[facts["kind"]]]
    if facts["fine"]:
        traits.append(("with fine thread", "with fine-pitch thread"))
    return Words(
        names={
            "thin": ("thin hex nut", "jam nut", "hexagon thin nut"),
            "coupling": ("coupling nut", "long hex nut", "connecting nut"),
        }.get(facts["kind"], ("hex nut", "hexagon nut", "six-sided nut")),
        broad=("nut", "threaded nut", "fastener", "nut for a bolt"),
        looks=(
            "hexagonal block with a round hole through its middle",
            "six-sided ring with chamfered corners",
        ),
        uses=("holding a bolt from the other side", "a threaded rod", "locking a screw"),
        traits=tuple(traits),
        size=thread_names(facts["d"], facts["fine"]),
        standards=standards,
        dims=(
            Dim.length(height, "height", "high", "M"),
            Dim.length(across, "width across flats", "across flats", "S"),
        ),
        longest=max(across * 1.15, height),
    )


def _draw_washer(rng: Random) -> Facts:
    series = rng.choice([*WASHERS, "inch"])
    sizes = list(INCH_WASHERS) if series == "inch" else list(WASHERS[series][1])
    return {"series": series, "size": rng.choice(sizes)}


def washer_dims(facts: Facts) -> tuple[float, float, float]:
    """Inner diameter, outer diameter and thickness, mm."""
    if facts["series"] == "inch":
        inner, outer, thick = INCH_WASHERS[facts["size"]]
        return inner * 25.4, outer * 25.4, thick * 25.4
    return WASHERS[facts["series"]][1][facts["size"]]


def _build_washer(facts: Facts) -> Any:
    inner, outer, thick = washer_dims(facts)
    r, R = inner / 2, outer / 2
    if facts["series"] == "chamfered":
        edge = 0.35 * thick
        return turned([(r, 0), (R, 0), (R, thick - edge), (R - edge, thick), (r, thick)])
    return turned([(r, 0), (R, 0), (R, thick), (r, thick)])


def _say_washer(facts: Facts) -> Words:
    inner, outer, thick = washer_dims(facts)
    inch = facts["series"] == "inch"
    size = f"{facts['size']} in" if inch else f"M{facts['size']:g}"
    return Words(
        names=("plain washer", "flat washer", "washer"),
        broad=("flat ring", "disc with a hole", "ring", "round shim"),
        looks=("thin flat disc with a round hole in the middle", "flat circular ring"),
        uses=("spreading the load under a bolt head", "putting under a nut", "packing"),
        traits=(_SERIES_TRAITS[facts["series"]],),
        size=(size,),
        standards=("ASME B18.21.1",) if inch else WASHERS[facts["series"]][0],
        dims=(
            Dim.diameter(outer, "outer diameter", symbol="OD"),
            Dim.diameter(inner, "inner diameter", "hole", "ID"),
            Dim.length(thick, "thickness", "thick", "T"),
        ),
        longest=outer,
        inch=inch,
    )


HEX_NUT = Family(name="hex_nut", draw=_draw_hex_nut, build=_build_hex_nut, words=_say_hex_nut)
PLAIN_WASHER = Family(
    name="plain_washer", draw=_draw_washer, build=_build_washer, words=_say_washer
)
