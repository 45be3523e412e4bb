"""Pipe flanges, pipes and fittings."""

from __future__ import annotations

from random import Random
from typing import Any

from brepfind.corpus.sample.family import Dim, Facts, Family, Words
from brepfind.corpus.sample.warehouse import (
    BlindFlange,
    Flange,
    LappedFlange,
    SlipOnFlange,
    WeldNeckFlange,
    imperial_str_to_float,
)

# ASME B16.5 by way of bd_warehouse's tables, of which classes 150 and 300 up to NPS 12 are whole.
# Its table of facings has no entry for 1/2 and 3/4.
FLANGE_SIZES = (
    "1", "1 1/4", "1 1/2", "2", "2 1/2", "3", "4", "5", "6", "8", "10", "12",
)  # fmt: skip
FLANGE_CLASSES = (150, 300)

# Kind to its builder, the column of its overall height and of its bore (None: solid), and its
# names, traits and looks.
_FLANGES: dict[str, tuple[Any, int, int | None, tuple[str, ...], tuple[str, ...], str]] = {
    "blind": (
        BlindFlange,
        1,
        None,
        ("blind flange", "blank flange"),
        ("without a bore", "closed, for the end of a line"),
        "thick solid disc with a circle of holes near its rim",
    ),
    "slip-on": (
        SlipOnFlange,
        5,
        9,
        ("slip-on flange", "slip on pipe flange"),
        ("with a low hub that slides over the pipe", "with a short straight hub"),
        "thick ring with a low collar and a circle of holes",
    ),
    "weld neck": (
        WeldNeckFlange,
        7,
        11,
        ("weld neck flange", "welding neck flange"),
        ("with a long tapered hub", "with a conical neck for butt welding"),
        "ring with a circle of holes and a cone-shaped neck",
    ),
    "lap joint": (
        LappedFlange,
        6,
        10,
        ("lap joint flange", "lapped flange"),
        ("with a rounded bore edge for a stub end", "loose, to turn behind a stub end"),
        "thick ring with a low collar, a rounded inner edge and a circle of holes",
    ),
}


def _draw_flange(rng: Random) -> Facts:
    kind = rng.choice(list(_FLANGES))
    return {
        "kind": kind,
        "nps": rng.choice(FLANGE_SIZES),
        "class": rng.choice(FLANGE_CLASSES),
        "raised": kind != "lap joint" and rng.random() < 0.6,
    }


def _build_flange(facts: Facts) -> Any:
    builder = _FLANGES[facts["kind"]][0]
    if facts["kind"] == "lap joint":
        return builder(facts["nps"], facts["class"])
    return builder(facts["nps"], facts["class"], "Raised" if facts["raised"] else "Flat")


def _say_flange(facts: Facts) -> Words:
    _, height, bore, names, kind_trait, looks = _FLANGES[facts["kind"]]
    body, bolts = Flange.get_flange_data(facts["nps"], facts["class"], None)
    face = 2.0 if facts["raised"] else 0.0
    size = facts["nps"].replace(" ", "-")
    pressure = facts["class"]
    traits = [kind_trait]
    if facts["kind"] != "lap joint":
        traits.append(("with a raised face", "raised face") if facts["raised"] else ("flat faced",))
    dims = [
        Dim.diameter(body[0], "outer diameter", symbol="OD"),
        Dim.count(bolts[3], "bolt holes"),
        Dim.diameter(bolts[1], "bolt circle", "bolt circle", "BC"),
        Dim.length(imperial_str_to_float(bolts[2]), "bolt hole diameter", "bolt holes wide", "D"),
        Dim.length(body[height] + face, "overall height", "high", "H"),
    ]
    if bore is not None:
        dims.insert(1, Dim.diameter(body[bore], "bore", symbol="ID"))
    return Words(
        names=names,
        broad=("flange", "pipe flange", "round plate with bolt holes", "pipe part"),
        looks=(looks,),
        uses=("a pipeline", "bolting pipes together", "process piping", "a refinery line"),
        traits=tuple(traits),
        size=(
            f"NPS {size} class {pressure}",
            f'{size}" {pressure}#',
            f"{size} inch {pressure} lb",
            f"DN {_DN[facts['nps']]} class {pressure}",
        ),
        standards=("ASME B16.5", "ANSI B16.5"),
        dims=tuple(dims),
        longest=body[0],
    )


# Nominal pipe size to nominal diameter (ISO 6708).
_DN = {
    "1": 25, "1 1/4": 32, "1 1/2": 40, "2": 50, "2 1/2": 65, "3": 80,
    "4": 100, "5": 125, "6": 150, "8": 200, "10": 250, "12": 300,
}  # fmt: skip

PIPE_FLANGE = Family(name="pipe_flange", draw=_draw_flange, build=_build_flange, words=_say_flange)
