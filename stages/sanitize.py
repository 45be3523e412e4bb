"""sanitize: a pretrained checkpoint to clean weights, every key accounted for.

DVC runs it from the project's root; by hand: ``PYTHONPATH=src python -P stages/sanitize.py``.
(-P keeps this folder off the import path, whose names could be taken for libraries.)
"""

from __future__ import annotations

import sys

from brepfind.pipeline.context import StageFunction
from brepfind.pipeline.runner import run_stage


def load() -> StageFunction:
    """Import the work late, so that a library that cannot be imported is reported, too."""
    from brepfind.pipeline.sanitize import sanitize

    return sanitize


if __name__ == "__main__":
    sys.exit(run_stage("sanitize", load))
