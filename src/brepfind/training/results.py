"""What a run that ended well leaves behind: weights, history, numbers."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from brepfind.checkpoints.state import save_state
from brepfind.checkpoints.weights import load_weights, save_weights
from brepfind.errors import CheckpointError
from brepfind.files import write_json, write_text
from brepfind.training.build import metadata
from brepfind.training.config import TrainConfig
from brepfind.training.prepare import Prepared

# Tensors by name, and what the file says of itself.
Weights = tuple[dict[str, torch.Tensor], dict[str, str]]


def write_weights(
    path: Path, config: TrainConfig, prepared: Prepared, row: Mapping[str, float]
) -> None:
    """Write all weights with the row of the history that belongs to them.

    Raises:
        CheckFailed: if a tensor is not finite; nothing was written.
        CheckpointError: if the disk did not take it; the old file is still there.
    """
    dual = prepared.dual
    tensors = {name: t.detach().cpu().contiguous() for name, t in dual.state_dict().items()}
    facts = {
        "epoch": int(row["epoch"]),
        "step": int(row["step"]),
        "recall": row["recall"],
        "held_out_loss": row["held_out_loss"],
        "fingerprint": prepared.fingerprint,
    }
    save_weights(path, tensors, metadata(config, dual, **facts))


def read_best(
    path: Path, row: Mapping[str, float]
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The best weights, proven to be those that the history tells of.

    Raises:
        CheckpointError: if the file is missing, damaged, or of another step.
    """
    tensors, facts = load_weights(path)
    if int(facts["step"]) != int(row["step"]):
        raise CheckpointError(
            f"{path}: holds the weights of step {facts['step']}, the best was at step "
            f"{int(row['step'])}; delete its folder to start anew"
        )
    return tensors, facts


def write_results(
    out: Path,
    *,
    history: Sequence[Mapping[str, float]],
    numbers: Mapping[str, Any],
    best: Weights,
    optimizer: torch.optim.Optimizer,
) -> None:
    """Write all but the last weights into ``out``; a number that is not finite is an error."""
    save_weights(out / "best.safetensors", *best)
    # The health gate looks at the optimizer's moments too; the resumable state goes.
    save_state(out / "optimizer.pt", {"optimizer": optimizer.state_dict()})
    write_text(out / "history.csv", as_csv(history))
    write_json(out / "train.json", numbers)


def as_csv(rows: Sequence[Mapping[str, float]]) -> str:
    """The rows as CSV; an empty cell where a row has no number."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        # Plots read nan as text. Only the row before the first step may hold one; it is named in
        # train.json.
        writer.writerow(
            {name: f"{value:.10g}" for name, value in row.items() if math.isfinite(value)}
        )
    return buffer.getvalue()
