"""The families of the sample, in the order in which they take turns."""

from __future__ import annotations

from brepfind.corpus.sample.brackets import CLEVIS, PILLOW_BLOCK, U_BRACKET
from brepfind.corpus.sample.family import Family
from brepfind.corpus.sample.gears import SPUR_GEAR
from brepfind.corpus.sample.handles import HANDLE, KNOB, SPACER
from brepfind.corpus.sample.housings import BEAM, ENCLOSURE, HEAT_SINK
from brepfind.corpus.sample.nuts import HEX_NUT, PLAIN_WASHER
from brepfind.corpus.sample.pipes import PIPE_FLANGE
from brepfind.corpus.sample.plates import L_BRACKET, MOUNTING_PLATE
from brepfind.corpus.sample.rings import BEARING, BUSHING, O_RING, RETAINING_RING
from brepfind.corpus.sample.screws import HEX_BOLT, SOCKET_SCREW
from brepfind.corpus.sample.shafts import PARALLEL_KEY, PIN, SHAFT, SHAFT_COLLAR
from brepfind.corpus.sample.small_screws import (
    BUTTON_SCREW,
    CHEESE_SCREW,
    COUNTERSUNK_SCREW,
    SET_SCREW,
)
from brepfind.corpus.sample.special_nuts import CAP_NUT, FLANGE_NUT
from brepfind.corpus.sample.tubes import HOSE_BARB, PIPE, PIPE_FITTING
from brepfind.corpus.sample.wheels import PULLEY, SPROCKET

FAMILIES: tuple[Family, ...] = (
    HEX_BOLT,
    SOCKET_SCREW,
    HEX_NUT,
    PLAIN_WASHER,
    PIPE_FLANGE,
    SPUR_GEAR,
    L_BRACKET,
    MOUNTING_PLATE,
    COUNTERSUNK_SCREW,
    BUTTON_SCREW,
    CHEESE_SCREW,
    SET_SCREW,
    FLANGE_NUT,
    CAP_NUT,
    BEARING,
    BUSHING,
    O_RING,
    RETAINING_RING,
    PIPE,
    PIPE_FITTING,
    HOSE_BARB,
    SPROCKET,
    PULLEY,
    SHAFT,
    PARALLEL_KEY,
    PIN,
    SHAFT_COLLAR,
    U_BRACKET,
    CLEVIS,
    PILLOW_BLOCK,
    BEAM,
    HEAT_SINK,
    ENCLOSURE,
    KNOB,
    HANDLE,
    SPACER,
)

FAMILY_BY_NAME = {family.name: family for family in FAMILIES}
