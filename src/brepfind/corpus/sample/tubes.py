"""Pipes, butt-welding fittings and hose barbs."""

from __future__ import annotations

from math import radians, tan
from random import Random
from typing import Any

from build123d import Axis, Cylinder, Face, Plane, Pos, Rot, Wire, revolve

from brepfind.corpus.sample.family import Dim, Facts, Family, Words
from brepfind.corpus.sample.shapes import Corner, hexagon, prism, turned

# ASME B36.10M: nominal size to outer diameter and the walls of schedules 40, 80 and 160; then ASME
# B16.9: radius of the long elbow, centre to end of the tee, length of a reducer to this size; mm.
PIPES: dict[str, tuple[float, tuple[float, float, float], float, float, float]] = {
    "1/2": (21.34, (2.77, 3.73, 4.78), 38, 25, 0),
    "3/4": (26.67, (2.87, 3.91, 5.56), 38, 29, 38),
    "1": (33.4, (3.38, 4.55, 6.35), 38, 38, 51),
    "1-1/4": (42.16, (3.56, 4.85, 6.35), 48, 48, 51),
    "1-1/2": (48.26, (3.68, 5.08, 7.14), 57, 57, 64),
    "2": (60.33, (3.91, 5.54, 8.74), 76, 64, 76),
    "2-1/2": (73.03, (5.16, 7.01, 9.53), 95, 76, 89),
    "3": (88.9, (5.49, 7.62, 11.13), 114, 86, 89),
    "4": (114.3, (6.02, 8.56, 13.49), 152, 105, 102),
    "5": (141.3, (6.55, 9.53, 15.88), 190, 124, 127),
    "6": (168.28, (7.11, 10.97, 18.26), 229, 143, 140),
    "8": (219.08, (8.18, 12.7, 23.01), 305, 178, 152),
}
SCHEDULES = (40, 80, 160)
PIPE_LENGTHS = (50, 75, 100, 150, 200, 250, 300, 400, 500, 600, 800, 1000)

# Hose barbs: hose bore to outer diameter of the barbs and through bore, mm.
BARBS = {
    4: (4.8, 2.5), 6: (7.2, 4), 8: (9.4, 5.5), 10: (11.6, 7), 13: (14.8, 9.5), 16: (18, 12),
    19: (21.4, 14.5), 25: (28, 20),
}  # fmt: skip
# ISO 228-1: pipe thread to major diameter, and a usual width across flats, mm.
PIPE_THREADS = {
    "1/8": (9.73, 12), "1/4": (13.16, 17), "3/8": (16.66, 19), "1/2": (20.96, 24),
    "3/4": (26.44, 30), "1": (33.25, 36),
}  # fmt: skip


def _tube(facts: Facts) -> tuple[float, float]:
    """Outer and inner radius."""
    outer, walls = PIPES[facts["nps"]][:2]
    wall = walls[SCHEDULES.index(facts["schedule"])]
    return outer / 2, outer / 2 - wall


def _draw_pipe(rng: Random) -> Facts:
    nps = rng.choice(list(PIPES))
    lengths = [n for n in PIPE_LENGTHS if PIPES[nps][0] < n < 20 * PIPES[nps][0]]
    return {
        "nps": nps,
        "schedule": rng.choice(SCHEDULES),
        "length": rng.choice(lengths),
        "bevel": rng.random() < 0.4,
    }


def _build_pipe(facts: Facts) -> Any:
    big, r = _tube(facts)
    length = facts["length"]
    if not facts["bevel"]:
        return turned([(r, 0), (big, 0), (big, length), (r, length)])
    land = min(1.6, 0.4 * (big - r))
    slope = (big - r - land) * tan(radians(37.5))
    ends: list[Corner] = [(r + land, 0), (big, slope), (big, length - slope), (r + land, length)]
    return turned([(r, 0), *ends, (r, length)])


def _sizes(facts: Facts) -> tuple[str, ...]:
    return (
        f"NPS {facts['nps']} schedule {facts['schedule']}",
        f'{facts["nps"]}" sch {facts["schedule"]}',
        f"{facts['nps']} inch SCH{facts['schedule']}",
    )


def _say_pipe(facts: Facts) -> Words:
    big, r = _tube(facts)
    return Words(
        names=("steel pipe", "pipe", "length of pipe", "seamless pipe"),
        broad=("tube", "hollow cylinder", "round tube", "pipe part"),
        looks=("long hollow cylinder, open at both ends", "straight round tube"),
        uses=("a steam line", "carrying water", "a handrail", "process piping"),
        traits=(
            ("with ends bevelled for welding", "weld-prepared ends")
            if facts["bevel"]
            else ("cut square", "plain ends"),
        ),
        size=_sizes(facts),
        standards=("ASME B36.10", "ANSI B36.10"),
        dims=(
            Dim.length(facts["length"], "length", "long", "L"),
            Dim.diameter(2 * big, "outer diameter", symbol="OD"),
            Dim.length(big - r, "wall thickness", "wall", "T"),
        ),
        longest=facts["length"],
    )


_FITTINGS: dict[str, tuple[tuple[str, ...], str]] = {
    "elbow 90": (
        ("90 degree elbow", "long radius elbow", "pipe bend of 90 degrees"),
        "quarter of a hollow ring",
    ),
    "elbow 45": (
        ("45 degree elbow", "half-right pipe bend", "pipe bend of 45 degrees"),
        "eighth of a hollow ring",
    ),
    "elbow 180": (
        ("180 degree return bend", "U-bend", "return elbow"),
        "half of a hollow ring",
    ),
    "tee": (
        ("equal tee", "pipe tee", "T-piece"),
        "short tube with another of the same size standing on its side",
    ),
    "reducer": (
        ("concentric reducer", "pipe reducer", "reducing cone"),
        "hollow cone between two short tubes",
    ),
}


def _draw_fitting(rng: Random) -> Facts:
    kind = rng.choice(list(_FITTINGS))
    nps = rng.choice(list(PIPES)[2:] if kind == "reducer" else list(PIPES))
    facts: dict[str, Any] = {"kind": kind, "nps": nps, "schedule": rng.choice(SCHEDULES)}
    if kind == "reducer":
        smaller = list(PIPES)[: list(PIPES).index(nps)]
        facts["to"] = rng.choice(smaller[-3:])
    return facts


def _build_fitting(facts: Facts) -> Any:
    big, r = _tube(facts)
    kind = facts["kind"]
    _, _, bend, run, length = PIPES[facts["nps"]]
    if kind.startswith("elbow"):
        # A ring beside the Z axis, in the XZ plane, swept about Z.
        centre = Plane(origin=(bend, 0, 0), z_dir=(0, 1, 0))
        ring = Face(Wire.make_circle(big, centre), [Wire.make_circle(r, centre)])
        return revolve(ring, Axis.Z, float(kind.split()[1]))
    if kind == "tee":
        branch = Pos(0, run / 2, 0) * Rot(90, 0, 0)
        outer = Cylinder(big, 2 * run) + branch * Cylinder(big, run)
        return outer - Cylinder(r, 2 * run) - branch * Cylinder(r, run)
    small, inner = _tube({**facts, "nps": facts["to"]})
    a, b = 0.2 * length, 0.8 * length
    outside = [(big, 0), (big, a), (small, b), (small, length)]
    inside = [(inner, length), (inner, b), (r, a), (r, 0)]
    return turned([*outside, *inside])


def _say_fitting(facts: Facts) -> Words:
    big, r = _tube(facts)
    kind = facts["kind"]
    names, looks = _FITTINGS[kind]
    _, _, bend, run, length = PIPES[facts["nps"]]
    sizes = _sizes(facts)
    dims = [Dim.diameter(2 * big, "outer diameter", symbol="OD")]
    longest = bend + big
    if kind == "tee":
        dims.append(Dim.length(run, "centre to end", "from centre to end", "C"))
        longest = 2 * run
    elif kind == "reducer":
        small = _tube({**facts, "nps": facts["to"]})[0]
        dims.append(Dim.diameter(2 * small, "small end diameter", "small end", "D2"))
        dims.append(Dim.length(length, "length", "long", "H"))
        sizes = tuple(s.replace(facts["nps"], f"{facts['nps']} x {facts['to']}", 1) for s in sizes)
        longest = max(length, 2 * big)
    else:
        dims.append(Dim.length(bend, "bend radius", "centre line radius", "R"))
        longest = {
            "elbow 45": 0.72 * (bend + big),
            "elbow 90": bend + big,
            "elbow 180": 2 * (bend + big),
        }[kind]
    dims.append(Dim.length(big - r, "wall thickness", "wall", "T"))
    return Words(
        names=names,
        broad=("pipe fitting", "pipe part", "plumbing part", "tube connection"),
        looks=(looks,),
        uses=("a pipeline", "butt welding", "turning or joining a pipe", "a heating system"),
        size=sizes,
        standards=("ASME B16.9",),
        dims=tuple(dims),
        longest=longest,
    )


def _draw_barb(rng: Random) -> Facts:
    hose, thread = rng.choice(list(BARBS)), rng.choice(list(PIPE_THREADS))
    return {"hose": hose, "thread": thread, "barbs": rng.choice((2, 3, 4, 5))}


def _build_barb(facts: Facts) -> Any:
    crest, bore = BARBS[facts["hose"]]
    major, across = PIPE_THREADS[facts["thread"]]
    hose, n = facts["hose"], facts["barbs"]
    bore = min(bore, 0.6 * major)
    across = max(across, hose * 1.2 + 1)
    low, high = 0.6 * major, 0.9 * major  # the hexagon stands between these
    pitch, neck = 0.55 * hose + 1, hose / 2
    profile: list[Corner] = [(bore / 2, 0), (0.93 * major / 2, 0), (major / 2, 0.07 * major)]
    profile += [(major / 2, low), (neck, low)]
    z = high + 0.5 * pitch
    profile.append((neck, z))
    for _ in range(n):
        profile += [(crest / 2, z), (neck, z + pitch)]
        z += pitch
    fitting = turned([*profile, (bore / 2, z)])
    ring = prism(hexagon(across), high - low, low)
    return fitting + (ring - turned([(0, low), (bore / 2, low), (bore / 2, high), (0, high)]))


def _say_barb(facts: Facts) -> Words:
    hose, thread = facts["hose"], facts["thread"]
    major, across = PIPE_THREADS[thread]
    length = 0.9 * major + (facts["barbs"] + 0.5) * (0.55 * hose + 1)
    across = max(across, hose * 1.2 + 1)
    return Words(
        names=("hose barb", "hose nipple", "barbed hose fitting", "hose tail"),
        broad=("pipe fitting", "plumbing part", "tube connection", "hollow turned part"),
        looks=(
            "hollow stem with saw-tooth rings and a hexagon",
            "ridged tube, then a six-sided nut",
        ),
        uses=("pushing on a rubber hose", "compressed air", "a garden pump"),
        size=(f"G{thread} x {hose} mm", f'{thread}" BSP, {hose} mm hose', f"G{thread} to {hose}mm"),
        standards=("ISO 228",),
        dims=(
            Dim.count(facts["barbs"], "barbs"),
            Dim.diameter(hose, "hose bore", "hose", "H"),
            Dim.length(round(length, 1), "overall length", "long", "L"),
            Dim.length(round(across, 1), "width across flats", "across flats", "S"),
        ),
        longest=length,
    )


PIPE = Family(name="pipe", draw=_draw_pipe, build=_build_pipe, words=_say_pipe)
PIPE_FITTING = Family(
    name="pipe_fitting", draw=_draw_fitting, build=_build_fitting, words=_say_fitting
)
HOSE_BARB = Family(name="hose_barb", draw=_draw_barb, build=_build_barb, words=_say_barb)
