"""split: train, validation and test, no twin across a border.

DVC runs it from the project's root; by hand: ``PYTHONPATH=src python -P stages/split.py``.
(-P keeps this folder off the import path, whose names could be taken for libraries.)
"""

from __future__ import annotations

import sys

from brepfind.pipeline.context import StageFunction
from brepfind.pipeline.runner import run_stage


def load() -> StageFunction:
    """Import the work late, so that a library that cannot be imported is reported, too."""
    from brepfind.pipeline.split import split

    return split


if __name__ == "__main__":
    sys.exit(run_stage("split", load))
