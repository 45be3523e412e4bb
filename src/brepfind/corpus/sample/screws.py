"""Screws and bolts."""

from __future__ import annotations

from math import sqrt
from random import Random
from typing import Any

from brepfind.corpus.sample.family import Dim, Facts, Family, Words
from brepfind.corpus.sample.shapes import Point, hex_chamfer, hexagon, prism, turned
from brepfind.corpus.sample.threads import (
    FINE,
    LENGTHS,
    pitch_diameter,
    pitch_of,
    screw_sizes,
)

# ISO 4014 and ISO 4017: diameter to width across flats s and head height k, mm.
HEX_HEADS = {
    4: (7, 2.8), 5: (8, 3.5), 6: (10, 4), 8: (13, 5.3), 10: (16, 6.4), 12: (18, 7.5),
    14: (21, 8.8), 16: (24, 10), 18: (27, 11.5), 20: (30, 12.5), 22: (34, 14), 24: (36, 15),
    27: (41, 17), 30: (46, 18.7), 36: (55, 22.5),
}  # fmt: skip

# ISO 4762: diameter to head diameter dk, head height k, socket across flats s, socket depth t, mm.
CAP_HEADS = {
    3: (5.5, 3, 2.5, 1.3), 4: (7, 4, 3, 2), 5: (8.5, 5, 4, 2.5), 6: (10, 6, 5, 3), 8: (13, 8, 6, 4),
    10: (16, 10, 8, 5), 12: (18, 12, 10, 6), 14: (21, 14, 12, 7), 16: (24, 16, 14, 8),
    20: (30, 20, 17, 10), 24: (36, 24, 19, 12), 30: (45, 30, 22, 15.5),
}  # fmt: skip


def thread_length(diameter: float, length: float) -> float:
    """Length of a partial thread on a hexagon bolt (ISO 888)."""
    return 2 * diameter + (6 if length <= 125 else 12 if length <= 200 else 25)


def lengths_for(diameter: float, shortest: float, longest: float) -> list[int]:
    """Standard lengths between two multiples of the diameter."""
    return [n for n in LENGTHS if shortest * diameter <= n <= longest * diameter]


def shank(diameter: float, pitch: float, length: float, threaded: float) -> list[Point]:
    """Outer profile of a shank from z = 0 down to ``-length``, with a chamfered end.

    ``threaded`` is the length of the thread, measured from the end; the whole shank if it is as
    long as ``length``.
    """
    radius = pitch_diameter(diameter, pitch) / 2
    end = min(0.1 * diameter, 0.4 * length)
    profile: list[Point] = []
    if threaded < length:
        profile += [(diameter / 2, 0), (diameter / 2, threaded - length)]
        profile += [(radius, threaded - length)]
    else:
        profile += [(radius, 0)]
    return [*profile, (radius, end - length), (radius - end, -length)]


def thread_traits(facts: Facts) -> tuple[tuple[str, ...], ...]:
    """What is said of a thread that is partial or full, coarse or fine."""
    traits: list[tuple[str, ...]] = []
    if "partial" in facts:
        traits.append(
            ("partly threaded", "with a plain shank below the head", "with partial thread")
            if facts["partial"]
            else ("fully threaded", "threaded up to the head", "with full thread")
        )
    if facts["fine"]:
        traits.append(("with fine thread", "with fine-pitch thread"))
    return tuple(traits)


def _draw_hex_bolt(rng: Random) -> Facts:
    diameter = rng.choice(list(HEX_HEADS))
    fine = diameter in FINE and rng.random() < 0.25
    partial = rng.random() < 0.5
    choices = lengths_for(diameter, 1.2, 10)
    if partial:
        choices = [n for n in choices if n >= thread_length(diameter, n) + 0.5 * diameter]
    return {"d": diameter, "length": rng.choice(choices), "partial": partial, "fine": fine}


def _build_hex_bolt(facts: Facts) -> Any:
    d, length = facts["d"], facts["length"]
    across, height = HEX_HEADS[d]
    threaded = thread_length(d, length) if facts["partial"] else length
    head = prism(hexagon(across), height) & hex_chamfer(across, height, bottom=False, top=True)
    body = turned([(0, 0), *shank(d, pitch_of(d, facts["fine"]), length, threaded), (0, -length)])
    return head + body


def _say_hex_bolt(facts: Facts) -> Words:
    d, length = facts["d"], facts["length"]
    across, height = HEX_HEADS[d]
    return Words(
        names=("hex bolt", "hexagon head bolt", "hex head screw", "hexagon bolt"),
        broad=("bolt", "screw", "threaded fastener", "machine bolt"),
        looks=(
            "round rod with a six-sided head at one end",
            "thin cylinder that carries a hexagonal block on top",
        ),
        uses=("clamping two plates with a spanner", "bolting a frame together", "steelwork"),
        traits=thread_traits(facts),
        size=screw_sizes(d, length, facts["fine"]),
        standards=("ISO 4014", "DIN 931") if facts["partial"] else ("ISO 4017", "DIN 933"),
        dims=(
            Dim.length(length, "shank length", "long", "L"),
            Dim.length(across, "width across flats", "across flats", "S"),
            Dim.length(height, "head height", "high head", "K"),
        ),
        longest=length + height,
    )


def _draw_socket_screw(rng: Random) -> Facts:
    diameter = rng.choice(list(CAP_HEADS))
    fine = diameter in FINE and rng.random() < 0.15
    return {"d": diameter, "length": rng.choice(lengths_for(diameter, 1, 8)), "fine": fine}


def _build_socket_screw(facts: Facts) -> Any:
    d, length = facts["d"], facts["length"]
    head_d, height, socket, depth = CAP_HEADS[d]
    edge = 0.1 * d
    profile = [(0, height), (head_d / 2 - edge, height), (head_d / 2, height - edge)]
    profile += [(head_d / 2, 0), *shank(d, pitch_of(d, facts["fine"]), length, length)]
    return turned([*profile, (0, -length)]) - hex_socket(socket, depth, height)


def hex_socket(across: float, depth: float, top: float) -> Any:
    """What a hexagon socket takes away below ``top``, its cone-shaped bottom included."""
    radius = across / sqrt(3)
    cone = turned([(0, top - depth - radius * 0.55), (across / 2, top - depth), (0, top - depth)])
    return prism(hexagon(across), depth, top - depth) + cone


def _say_socket_screw(facts: Facts) -> Words:
    d, length = facts["d"], facts["length"]
    head_d, height, socket, _ = CAP_HEADS[d]
    return Words(
        names=("socket head cap screw", "Allen bolt", "hexagon socket head screw", "SHCS"),
        broad=("screw", "bolt", "threaded fastener", "machine screw"),
        looks=(
            "cylinder with a thicker round head that has a hexagonal recess",
            "round rod whose cylindrical head is hollowed by a six-sided pocket",
        ),
        uses=("fastening in a counterbore with an Allen key", "machine building", "tool fixtures"),
        traits=thread_traits(facts),
        size=screw_sizes(d, length, facts["fine"]),
        standards=("ISO 4762", "DIN 912"),
        dims=(
            Dim.length(length, "length under the head", "long", "L"),
            Dim.diameter(head_d, "head diameter", "head", "DK"),
            Dim.length(socket, "key size", "Allen key", "S"),
            Dim.length(height, "head height", "high head", "K"),
        ),
        longest=length + height,
    )


HEX_BOLT = Family(name="hex_bolt", draw=_draw_hex_bolt, build=_build_hex_bolt, words=_say_hex_bolt)
SOCKET_SCREW = Family(
    name="socket_screw", draw=_draw_socket_screw, build=_build_socket_screw, words=_say_socket_screw
)
