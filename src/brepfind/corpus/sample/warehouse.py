"""What the sample takes from bd_warehouse, whose import warns of its own outdated file reading."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from bd_warehouse.fastener import imperial_str_to_float
    from bd_warehouse.flange import (
        BlindFlange,
        Flange,
        LappedFlange,
        SlipOnFlange,
        WeldNeckFlange,
    )
    from bd_warehouse.retaining_ring import ExternalSnapRing, InternalSnapRing
    from bd_warehouse.sprocket import Sprocket

__all__ = [
    "BlindFlange",
    "ExternalSnapRing",
    "Flange",
    "InternalSnapRing",
    "LappedFlange",
    "SlipOnFlange",
    "Sprocket",
    "WeldNeckFlange",
    "imperial_str_to_float",
]
