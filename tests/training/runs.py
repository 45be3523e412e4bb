"""Whole training runs, one process per rank, without torchrun's start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from brepfind.checkpoints.weights import load_weights
from tests.ranks import Ended, run_ranks
from tests.training.tiny import make_job


def one_rank(job: str) -> None:
    """What a rank does; its exit code is that of the command."""
    from brepfind.training.__main__ import main

    raise SystemExit(main([job]))


def train(
    inputs: Path,
    run: Path,
    world: int = 1,
    fault: str = "",
    limit_s: float = 200.0,
    **changes: Any,
) -> list[Ended]:
    """Run a job with ``world`` ranks; settings of the job and of training in ``changes``."""
    run.mkdir(parents=True, exist_ok=True)
    make_job(inputs, run, processes=world, **changes).write(run / "job.json")
    environment = {"BREPFIND_TEST_FAULT": fault}
    return run_ranks(
        one_rank, world, str(run / "job.json"), limit_s=limit_s, environment=environment
    )


def codes(ended: list[Ended]) -> list[int | None]:
    """The exit code of each rank."""
    return [rank.code for rank in ended]


def reason(run: Path, folder: str = "postmortem") -> dict[str, Any]:
    """Why a run stopped."""
    return json.loads((run / folder / "reason.json").read_text())


def weights(run: Path) -> dict[str, Any]:
    """The last weights of a run, by name."""
    return load_weights(run / "out" / "last.safetensors")[0]
