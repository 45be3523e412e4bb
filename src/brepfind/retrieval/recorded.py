"""Does a checkpoint, loaded afresh, give the recall it was saved with?

A half-loaded tower, another text tower of the same width, features of another version, or weights
mixed up with those of a copy: all load without complaint and answer otherwise than in training.
"""

from __future__ import annotations

import numpy as np

from brepfind.findings import Finding, at_most
from brepfind.metrics.counting import count_both
from brepfind.metrics.ranks import summarise
from brepfind.metrics.rows import unit_rows
from brepfind.retrieval.embeddings import Embeddings
from brepfind.retrieval.relevant import text_to_cad_relevance

KS = (1, 5, 10)


def mean_recall(embeddings: Embeddings) -> float:
    """The recall by which the best weights are chosen: mean of R@1, 5 and 10, both directions.

    As validation in training takes it: over parts with a caption, and each distinct caption (letter
    by letter) once.

    Raises:
        CheckFailed: if an embedding is not finite or is zero.
    """
    told = embeddings.select(set(embeddings.captions["model_id"]))
    captions = told.captions["caption"]
    known = {caption: number for number, caption in enumerate(dict.fromkeys(captions))}
    numbers = np.array([known[caption] for caption in captions], np.int64)
    _, once = np.unique(numbers, return_index=True)
    relevance = text_to_cad_relevance(numbers, told.caption_part, told.twins).select(once)
    counts = count_both(unit_rows("text", told.text[once]), unit_rows("CAD", told.cad), relevance)
    tables = [summarise(one, KS) for one in counts]
    return float(np.mean([table[f"R_at_{k}"] for table in tables for k in KS]))


def agreement(
    recorded: float, embeddings: Embeddings, *, tolerance: float = 0.01, prefix: str = "health"
) -> Finding:
    """Whether the recall on validation is the recorded one, within the noise of batching.

    Args:
        recorded: what the weights file says of itself. NaN or a wild number fails.
        embeddings: of the validation parts, by the loaded model.
    """
    found = mean_recall(embeddings)
    return at_most(
        f"{prefix}.recall_off_record",
        abs(found - recorded),
        tolerance,
        advice=f"validation recall is {found:.4f}, the checkpoint was saved with {recorded:.4f}: "
        "what was loaded is not what was trained; run `brepfind doctor` on it, and look for a "
        "changed text tower, corpus or graph store",
    )
