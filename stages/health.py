"""health: are the weights finite, and the embeddings alive?

DVC runs it from the project's root; by hand: ``PYTHONPATH=src python -P stages/health.py``.
(-P keeps this folder off the import path, whose names could be taken for libraries.)
"""

from __future__ import annotations

import sys

from brepfind.pipeline.context import StageFunction
from brepfind.pipeline.runner import run_stage


def load() -> StageFunction:
    """Import the work late, so that a library that cannot be imported is reported, too."""
    from brepfind.pipeline.health import health

    return health


if __name__ == "__main__":
    sys.exit(run_stage("health", load))
