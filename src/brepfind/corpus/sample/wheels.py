"""Sprockets and pulleys."""

from __future__ import annotations

from math import pi, radians, sin, tan
from random import Random
from typing import Any

from build123d import Cylinder, Pos

from brepfind.corpus.sample.family import Dim, Facts, Family, Words
from brepfind.corpus.sample.gears import draw_bore, hub_diameter, hub_height, wheel_traits
from brepfind.corpus.sample.keys import keyway_cutter
from brepfind.corpus.sample.shapes import Corner, ring_of, turned
from brepfind.corpus.sample.warehouse import Sprocket

# ISO 606 and ASME B29.1: chain to pitch, roller diameter and tooth width, mm.
CHAINS = {
    "25": (6.35, 3.3, 2.8), "35": (9.525, 5.08, 4.3), "40": (12.7, 7.92, 7.2),
    "50": (15.875, 10.16, 8.7), "60": (19.05, 11.91, 11.7), "06B": (9.525, 6.35, 5.2),
    "08B": (12.7, 8.51, 7.0), "10B": (15.875, 10.16, 9.1), "12B": (19.05, 12.07, 11.1),
    "16B": (25.4, 15.88, 16.2),
}  # fmt: skip

# ISO 4183: profile to groove width at the datum line, height above it, depth below it, distance
# of grooves, distance to the rim, mm; and datum diameters, mm.
BELTS: dict[str, tuple[float, float, float, float, float, tuple[int, ...]]] = {
    "SPZ": (8.5, 2.0, 9.0, 12, 8, (56, 63, 71, 80, 90, 100, 112, 125, 140, 160)),
    "SPA": (11.0, 2.75, 11.0, 15, 10, (71, 80, 90, 100, 112, 125, 140, 160, 180, 200)),
    "SPB": (14.0, 3.5, 14.0, 19, 12.5, (112, 125, 140, 160, 180, 200, 224, 250)),
    "SPC": (19.0, 4.8, 19.0, 25.5, 17, (180, 200, 224, 250, 280, 315)),
}


def _pitch_diameter(facts: Facts) -> float:
    return CHAINS[facts["chain"]][0] / sin(pi / facts["teeth"])


def _draw_sprocket(rng: Random) -> Facts:
    chain, teeth = rng.choice(list(CHAINS)), rng.choice((*range(9, 20), 21, 23))
    pitch, roller, _ = CHAINS[chain]
    root = pitch / sin(pi / teeth) - roller
    return {"chain": chain, "teeth": teeth, **draw_bore(rng, root * 0.9)}


def _build_sprocket(facts: Facts) -> Any:
    pitch, roller, width = CHAINS[facts["chain"]]
    plate = Sprocket(
        num_teeth=facts["teeth"],
        chain_pitch=pitch,
        roller_diameter=roller,
        clearance=0.0,
        thickness=width,
        bolt_circle_diameter=0.0,
        num_mount_bolts=0,
        mount_bolt_diameter=0.0,
        bore_diameter=0.0,
    )
    wheel = Pos(0, 0, -plate.bounding_box().min.Z) * plate
    height = width
    if facts["hub"]:
        height = width + hub_height(facts)
        wheel += Pos(0, 0, (width + height) / 2) * Cylinder(hub_diameter(facts) / 2, height - width)
    wheel -= Pos(0, 0, height / 2) * Cylinder(facts["bore"] / 2, height)
    return wheel - keyway_cutter(facts["bore"], height) if facts["keyway"] else wheel


def _say_sprocket(facts: Facts) -> Words:
    pitch, _, width = CHAINS[facts["chain"]]
    chain, teeth = facts["chain"], facts["teeth"]
    european = chain.endswith("B")
    dims = [
        Dim.count(teeth, "teeth"),
        Dim.length(pitch, "chain pitch", "pitch", "P"),
        Dim.diameter(facts["bore"], "bore", symbol="B"),
        Dim.length(width, "tooth width", "wide teeth", "W"),
        Dim.diameter(round(_pitch_diameter(facts), 1), "pitch diameter", symbol="PD"),
    ]
    if facts["hub"]:
        dims.append(Dim.diameter(hub_diameter(facts), "hub diameter", "hub", "HUB"))
    return Words(
        names=("sprocket", "chain wheel", "roller chain sprocket", "chain sprocket"),
        broad=("toothed wheel", "cog", "drive part", "gear"),
        looks=("disc with rounded notches between pointed teeth", "star-like wheel with a hole"),
        uses=("a roller chain", "a conveyor drive", "a motorcycle chain", "a chain drive"),
        traits=wheel_traits(facts),
        size=(f"{chain} x {teeth}T", f"{chain}-{teeth}", f"{teeth} teeth for {chain} chain"),
        standards=("ISO 606",) if european else ("ASME B29.1", "ANSI B29.1"),
        dims=tuple(dims),
        longest=_pitch_diameter(facts) + 0.6 * pitch,
    )


def _draw_pulley(rng: Random) -> Facts:
    belt = rng.choice(list(BELTS))
    datum = rng.choice(BELTS[belt][5])
    core = datum - 2 * BELTS[belt][2]
    facts = {
        "belt": belt,
        "datum": datum,
        "grooves": rng.choice((1, 1, 2, 2, 3)),
        **draw_bore(rng, core * 0.9),
        "hub": rng.random() < 0.4,
    }
    room = core / 2 - hub_diameter(facts) / 2
    facts["holes"] = room > 22 and facts["grooves"] < 3 and rng.random() < 0.5
    return facts


def _build_pulley(facts: Facts) -> Any:
    wide, above, below, step, rim, _ = BELTS[facts["belt"]]
    datum, n = facts["datum"], facts["grooves"]
    angle = radians(17 if datum < 12 * wide else 19)
    width = 2 * rim + (n - 1) * step
    top, floor = datum / 2 + above, datum / 2 - below
    opening = wide / 2 + above * tan(angle)
    bottom = wide / 2 - below * tan(angle)
    profile: list[Corner] = [(facts["bore"] / 2, 0), (top, 0)]
    for i in range(n):
        z = rim + i * step
        profile += [(top, z - opening), (floor, z - bottom)]
        profile += [(floor, z + bottom), (top, z + opening)]
    profile.append((top, width))
    height = width
    if facts["hub"]:
        height = width + hub_height(facts)
        profile += [(hub_diameter(facts) / 2, width), (hub_diameter(facts) / 2, height)]
    pulley = turned([*profile, (facts["bore"] / 2, height)])
    if facts["holes"]:
        core = floor - 4
        circle, hole = core + hub_diameter(facts) / 2, 0.55 * (core - hub_diameter(facts) / 2)
        holes = [Pos(x, y, width / 2) * Cylinder(hole / 2, width) for x, y in ring_of(4, circle)]
        pulley -= holes
    return pulley - keyway_cutter(facts["bore"], height) if facts["keyway"] else pulley


def _say_pulley(facts: Facts) -> Words:
    belt, datum, n = facts["belt"], facts["datum"], facts["grooves"]
    _, above, _, step, rim, _ = BELTS[belt]
    traits = [
        ("with one groove", "single groove")
        if n == 1
        else (f"with {n} grooves", f"{('two', 'three')[n - 2]} grooves"),
        *wheel_traits(facts),
    ]
    if facts["holes"]:
        traits.append(("with four round openings in its web", "with lightening holes"))
    return Words(
        names=("V-belt pulley", "grooved pulley", "belt sheave", "wedge belt pulley"),
        broad=("pulley", "wheel", "drive part", "round machine part"),
        looks=("wheel with wedge-shaped channels around its rim", "disc with a V-shaped groove"),
        uses=("a V-belt", "a belt drive", "a fan motor", "a compressor"),
        traits=tuple(traits),
        size=(f"{belt} {datum}-{n}", f"{belt} {datum}x{n}", f"{datum} {belt}/{n}"),
        standards=("ISO 4183", "DIN 2211"),
        dims=(
            Dim.diameter(datum, "datum diameter", symbol="DD"),
            Dim.diameter(facts["bore"], "bore", symbol="B"),
            Dim.length(2 * rim + (n - 1) * step, "rim width", "wide rim", "W"),
            Dim.diameter(datum + 2 * above, "outer diameter", symbol="OD"),
        ),
        longest=datum + 2 * above,
    )


SPROCKET = Family(name="sprocket", draw=_draw_sprocket, build=_build_sprocket, words=_say_sprocket)
PULLEY = Family(name="v_pulley", draw=_draw_pulley, build=_build_pulley, words=_say_pulley)
