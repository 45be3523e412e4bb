"""What, beside a file's bytes and the settings, decides what becomes of it."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
import OCP

from brepfind.cad.arrays import FEATURE_VERSION


@cache
def extractor_version() -> str:
    """A digest of the feature version, this room's source, Open CASCADE's and NumPy's versions.

    ``FEATURE_VERSION`` alone would trust everyone to remember it: with a forgotten one, results
    kept from before a change, or made by a cluster's older workers, would be taken for new.
    """
    found = hashlib.sha256()
    for name, value in (
        ("features", FEATURE_VERSION),
        ("ocp", f"{OCP.__version__} {version('cadquery-ocp-novtk')}"),
        ("numpy", np.__version__),
    ):
        found.update(f"{name} {value}\n".encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        found.update(f"{source.name} {hashlib.sha256(source.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()
