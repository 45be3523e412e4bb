"""The families of the sample, in the order in which they take turns."""

from __future__ import annotations

from brepfind.corpus.sample.family import Family
from brepfind.corpus.sample.gears import SPUR_GEAR
from brepfind.corpus.sample.nuts import HEX_NUT, PLAIN_WASHER
from brepfind.corpus.sample.pipes import PIPE_FLANGE
from brepfind.corpus.sample.plates import L_BRACKET, MOUNTING_PLATE
from brepfind.corpus.sample.screws import HEX_BOLT, SOCKET_SCREW

FAMILIES: tuple[Family, ...] = (
    HEX_BOLT,
    SOCKET_SCREW,
    HEX_NUT,
    PLAIN_WASHER,
    PIPE_FLANGE,
    SPUR_GEAR,
    L_BRACKET,
    MOUNTING_PLATE,
)

FAMILY_BY_NAME = {family.name: family for family in FAMILIES}
