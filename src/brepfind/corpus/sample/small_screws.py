"""Screws with a recess or a slot: countersunk, button and cheese heads, set screws."""

from __future__ import annotations

from math import sqrt
from random import Random
from typing import Any

from build123d import Box, Pos

from brepfind.corpus.sample.family import Dim, Facts, Family, Words
from brepfind.corpus.sample.screws import hex_socket, lengths_for, shank
from brepfind.corpus.sample.shapes import Corner, turned
from brepfind.corpus.sample.threads import COARSE, pitch_diameter, screw_sizes

# ISO 10642: diameter to theoretical head diameter dk, socket across flats s, socket depth t, mm.
CSK_SOCKET = {
    3: (6.72, 2, 1.1), 4: (8.96, 2.5, 1.5), 5: (11.2, 3, 1.9), 6: (13.44, 4, 2.2),
    8: (17.92, 5, 3), 10: (22.4, 6, 3.6), 12: (26.88, 8, 4.3), 16: (33.6, 10, 4.8),
    20: (40.32, 12, 5.6),
}  # fmt: skip
# ISO 2009: diameter to head diameter dk, slot width n, slot depth t, mm.
CSK_SLOT = {
    2: (3.8, 0.5, 0.6), 2.5: (4.7, 0.6, 0.75), 3: (5.5, 0.8, 0.85), 4: (8.4, 1.2, 1.3),
    5: (9.3, 1.2, 1.4), 6: (11.3, 1.6, 1.6), 8: (15.8, 2, 2.3), 10: (18.3, 2.5, 2.6),
}  # fmt: skip
# ISO 7380-1: diameter to head diameter dk, head height k, socket s, depth t; and ISO 7380-2:
# collar diameter dc and thickness c; mm.
BUTTON = {
    3: (5.7, 1.65, 2, 1.04, 6.9, 0.7), 4: (7.6, 2.2, 2.5, 1.3, 9.4, 0.8),
    5: (9.5, 2.75, 3, 1.56, 11.8, 1.0), 6: (10.5, 3.3, 4, 2.08, 13.6, 1.2),
    8: (14, 4.4, 5, 2.6, 17.8, 1.5), 10: (17.5, 5.5, 6, 3.12, 21.9, 2.0),
    12: (21, 6.6, 8, 4.16, 26, 2.4), 16: (28, 8.8, 10, 5.2, 34, 3.0),
}  # fmt: skip
# ISO 1207: diameter to head diameter dk, head height k, slot width n, slot depth t, mm.
CHEESE = {
    1.6: (3, 1.1, 0.4, 0.45), 2: (3.8, 1.4, 0.5, 0.6), 2.5: (4.5, 1.8, 0.6, 0.7),
    3: (5.5, 2, 0.8, 0.85), 4: (7, 2.6, 1.2, 1.1), 5: (8.5, 3.3, 1.2, 1.3),
    6: (10, 3.9, 1.6, 1.6), 8: (13, 5, 2, 2), 10: (16, 6, 2.5, 2.4),
}  # fmt: skip
# ISO 4026 to ISO 4029: diameter to socket across flats s, dog diameter, dog length, cup diameter.
SET = {
    3: (1.5, 2, 1.5, 1.4), 4: (2, 2.5, 2, 2), 5: (2.5, 3.5, 2.5, 2.5), 6: (3, 4, 3, 3),
    8: (4, 5.5, 4, 5), 10: (5, 7, 5, 6), 12: (6, 8.5, 6, 8), 16: (8, 12, 8, 10),
    20: (10, 15, 10, 14),
}  # fmt: skip


def _draw_countersunk(rng: Random) -> Facts:
    drive = rng.choice(("hex", "slot"))
    d = rng.choice(list(CSK_SOCKET if drive == "hex" else CSK_SLOT))
    return {"d": d, "drive": drive, "length": rng.choice(lengths_for(d, 2, 10))}


def _build_countersunk(facts: Facts) -> Any:
    d, length = facts["d"], facts["length"]
    radius = pitch_diameter(d, COARSE[d]) / 2
    head = (CSK_SOCKET[d] if facts["drive"] == "hex" else CSK_SLOT[d])[0] / 2
    rim = 0.05 * d
    top = [(0, 0), (head, 0), (head, -rim), (radius, -rim - (head - radius))]
    end = 0.1 * d
    screw = turned([*top, (radius, end - length), (radius - end, -length), (0, -length)])
    if facts["drive"] == "hex":
        return screw - hex_socket(CSK_SOCKET[d][1], CSK_SOCKET[d][2], 0)
    return screw - _slot(CSK_SLOT[d][1], CSK_SLOT[d][2], 0, 2.2 * head)


def _slot(width: float, depth: float, top: float, length: float) -> Any:
    return Pos(0, 0, top - depth / 2) * Box(length, width, depth)


def _say_countersunk(facts: Facts) -> Words:
    d, length, hexed = facts["d"], facts["length"], facts["drive"] == "hex"
    head = (CSK_SOCKET[d] if hexed else CSK_SLOT[d])[0]
    return Words(
        names=("countersunk screw", "flat head screw", "CSK screw", "flush head screw"),
        broad=("screw", "machine screw", "threaded fastener", "bolt"),
        looks=("round rod that widens to a cone with a flat top", "cone-headed pin"),
        uses=("a flush surface", "fastening hinges", "sitting flush in a chamfered hole"),
        traits=(("with a hexagon socket", "Allen drive") if hexed else ("slotted", "with a slot"),),
        size=screw_sizes(d, length, False),
        standards=("ISO 10642", "DIN 7991") if hexed else ("ISO 2009", "DIN 963"),
        dims=(
            Dim.length(length, "overall length", "long over all", "L"),
            Dim.diameter(head, "head diameter", "head", "DK"),
        ),
        longest=max(length, head),
    )


def _draw_button(rng: Random) -> Facts:
    d = rng.choice(list(BUTTON))
    return {
        "d": d,
        "length": rng.choice(lengths_for(d, 1, 8)),
        "collar": rng.random() < 0.4,
    }


def _build_button(facts: Facts) -> Any:
    d, length = facts["d"], facts["length"]
    head, height, socket, depth, collar, thick = BUTTON[d]
    flat = socket * 0.62  # radius of the flat on top, just wider than the socket's corners
    base = thick if facts["collar"] else 0.15 * height
    mid = ((head / 2 * 0.82 + flat * 0.18), base + (height - base) * 0.66)
    dome: list[Corner] = [(flat, height), (*mid, head / 2, base)]
    rim: list[Corner] = (
        [(collar / 2, base), (collar / 2, 0)] if facts["collar"] else [(head / 2, 0)]
    )
    body = shank(d, COARSE[d], length, length)
    screw = turned([(0, height), *dome, *rim, *body, (0, -length)])
    return screw - hex_socket(socket, depth, height)


def _say_button(facts: Facts) -> Words:
    d, length = facts["d"], facts["length"]
    head, height, socket, _, collar, _ = BUTTON[d]
    wide = facts["collar"]
    return Words(
        names=("button head screw", "round head socket screw", "dome head screw", "BHCS"),
        broad=("screw", "machine screw", "threaded fastener", "bolt"),
        looks=("rod with a low dome on top that has a six-sided recess", "mushroom with a pocket"),
        uses=("covers and guards", "sheet metal", "a low rounded head"),
        traits=(("with a collar under the head", "flanged") if wide else ("without a collar",),),
        size=screw_sizes(d, length, False),
        standards=("ISO 7380-2",) if wide else ("ISO 7380-1", "ISO 7380"),
        dims=(
            Dim.length(length, "length under the head", "long", "L"),
            Dim.diameter(collar if wide else head, "head diameter", "head", "DK"),
            Dim.length(socket, "key size", "Allen key", "S"),
        ),
        longest=max(length + height, head),
    )


def _draw_cheese(rng: Random) -> Facts:
    d = rng.choice(list(CHEESE))
    return {"d": d, "length": rng.choice(lengths_for(d, 1.2, 10))}


def _build_cheese(facts: Facts) -> Any:
    d, length = facts["d"], facts["length"]
    head, height, width, depth = CHEESE[d]
    edge = 0.15 * height
    top = [(0, height), (head / 2 - edge, height), (head / 2, height - edge), (head / 2, 0)]
    screw = turned([*top, *shank(d, COARSE[d], length, length), (0, -length)])
    return screw - _slot(width, depth, height, 1.2 * head)


def _say_cheese(facts: Facts) -> Words:
    d, length = facts["d"], facts["length"]
    head, height, width, _ = CHEESE[d]
    return Words(
        names=("slotted cheese head screw", "slotted screw", "cheese head screw"),
        broad=("screw", "machine screw", "threaded fastener", "bolt"),
        looks=("rod with a drum-shaped head cut by a straight groove", "round head with a slot"),
        uses=("a flat screwdriver", "electrical terminals", "instrument making"),
        size=screw_sizes(d, length, False),
        standards=("ISO 1207", "DIN 84"),
        dims=(
            Dim.length(length, "length under the head", "long", "L"),
            Dim.diameter(head, "head diameter", "head", "DK"),
            Dim.length(height, "head height", "high head", "K"),
            Dim.length(width, "slot width", "slot", "N"),
        ),
        longest=length + height,
    )


_POINTS: dict[str, tuple[tuple[str, ...], str]] = {
    "flat": (("with a flat point", "flat-ended"), "ISO 4026"),
    "cone": (("with a cone point", "pointed"), "ISO 4027"),
    "dog": (("with a dog point", "with a cylindrical tip"), "ISO 4028"),
    "cup": (("with a cup point", "with a hollow ring-shaped end"), "ISO 4029"),
}


def _draw_set(rng: Random) -> Facts:
    d, point = rng.choice(list(SET)), rng.choice(list(_POINTS))
    return {"d": d, "point": point, "length": rng.choice(lengths_for(d, 1.3, 5))}


def _build_set(facts: Facts) -> Any:
    d, length = facts["d"], facts["length"]
    socket, dog, dog_length, cup = SET[d]
    r, c = pitch_diameter(d, COARSE[d]) / 2, 0.08 * d
    tip: dict[str, list[Corner]] = {
        "flat": [(r, c), (r - c, 0), (0, 0)],
        "cone": [(r, 0.9 * r), (0.1 * r, 0), (0, 0)],
        "dog": [
            (r, dog_length + c),
            (r - c, dog_length),
            (dog / 2, dog_length),
            (dog / 2, 0),
            (0, 0),
        ],
        "cup": [(r, r - cup / 2), (cup / 2, 0), (0, cup * 0.3)],
    }
    profile = [(0, length), (r - c, length), (r, length - c), *tip[facts["point"]]]
    depth = min(1.1 * socket, 0.45 * length)
    # The drill's cone below the socket must stay clear of a dog or a cup.
    assert depth + socket / sqrt(3) * 0.55 < length * 0.8
    return turned(profile) - hex_socket(socket, depth, length)


def _say_set(facts: Facts) -> Words:
    d, length = facts["d"], facts["length"]
    trait, standard = _POINTS[facts["point"]]
    return Words(
        names=("set screw", "grub screw", "headless socket screw"),
        broad=("screw", "small threaded part", "threaded fastener", "stud"),
        looks=("short headless cylinder with a hexagonal pocket in one end", "threaded plug"),
        uses=("clamping a hub on a shaft", "locking a collar", "fixing a pulley"),
        traits=(trait,),
        size=screw_sizes(d, length, False),
        standards=(standard,),
        dims=(
            Dim.length(length, "length", "long", "L"),
            Dim.length(SET[d][0], "key size", "Allen key", "S"),
        ),
        longest=max(length, d),
    )


COUNTERSUNK_SCREW = Family(
    name="countersunk_screw",
    draw=_draw_countersunk,
    build=_build_countersunk,
    words=_say_countersunk,
)
BUTTON_SCREW = Family(
    name="button_screw", draw=_draw_button, build=_build_button, words=_say_button
)
CHEESE_SCREW = Family(
    name="cheese_screw", draw=_draw_cheese, build=_build_cheese, words=_say_cheese
)
SET_SCREW = Family(name="set_screw", draw=_draw_set, build=_build_set, words=_say_set)
