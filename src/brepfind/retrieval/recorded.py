"""Does a checkpoint, loaded afresh, give the loss and the recall it was saved with?

A half-loaded tower, another text tower of the same width, features of another version, or weights
mixed up with those of a copy: all load without complaint and answer otherwise than in training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from brepfind.findings import Finding, at_most
from brepfind.metrics.contrast import held_out_loss
from brepfind.metrics.counting import count_both
from brepfind.metrics.ranks import summarise
from brepfind.metrics.rows import unit_rows
from brepfind.retrieval.embeddings import Embeddings
from brepfind.retrieval.relevant import text_to_cad_relevance

KS = (1, 5, 10)

# Both are of a few hundred queries: one that falls the other way, because batches were cut
# otherwise, moves the recall by less than this.
_RECALL_OFF = 0.01
# As a share of the loss; float32 in other batches, or on another machine, moves it by 1e-5.
_LOSS_OFF = 0.01


@dataclass(frozen=True, slots=True)
class Validation:
    """What is recorded of a checkpoint, taken again.

    Attributes:
        recall: by which the best weights are chosen: mean of R@1, 5 and 10, both directions.
        loss: over all captions and parts of the set, see :func:`held_out_loss`.
    """

    recall: float
    loss: float


def validate(embeddings: Embeddings, scale: float) -> Validation:
    """Recall and loss as validation in training takes them: over parts with a caption, and each
    distinct caption (letter by letter) once.

    Args:
        embeddings: of the validation parts.
        scale: exp of the model's logit scale.

    Raises:
        CheckFailed: if an embedding is not finite or is zero.
    """
    told = embeddings.select(set(embeddings.captions["model_id"]))
    captions = told.captions["caption"]
    known = {caption: number for number, caption in enumerate(dict.fromkeys(captions))}
    numbers = np.array([known[caption] for caption in captions], np.int64)
    _, once = np.unique(numbers, return_index=True)
    relevance = text_to_cad_relevance(numbers, told.caption_part, told.twins).select(once)
    text, cad = unit_rows("text", told.text[once]), unit_rows("CAD", told.cad)
    tables = [summarise(one, KS) for one in count_both(text, cad, relevance)]
    recalls = [table[f"R_at_{k}"] for table in tables for k in KS]
    return Validation(float(np.mean(recalls)), held_out_loss(text, cad, relevance, scale))


def agreement(
    recorded: Mapping[str, str], embeddings: Embeddings, scale: float, *, prefix: str = "health"
) -> list[Finding]:
    """Whether loss and recall on validation are the recorded ones, within the noise of batching.

    Args:
        recorded: what the weights file says of itself: ``held_out_loss`` and ``recall``. What is
            missing or no number fails: nothing vouches for such weights.
        embeddings, scale: as for :func:`validate`, by the loaded model.
    """
    found = validate(embeddings, scale)
    loss, recall = (float(recorded.get(name, "nan")) for name in ("held_out_loss", "recall"))
    meaning = (
        "what was loaded is not what was trained; run `brepfind doctor` on it, and look for a "
        "changed text tower, corpus or graph store"
    )
    return [
        at_most(
            f"{prefix}.loss_off_record",
            abs(found.loss - loss) / max(loss, 0.1),
            _LOSS_OFF,
            advice=f"the loss on validation is {found.loss:.4f}, the checkpoint was saved with "
            f"{loss:.4f}: {meaning}",
        ),
        at_most(
            f"{prefix}.recall_off_record",
            abs(found.recall - recall),
            _RECALL_OFF,
            advice=f"validation recall is {found.recall:.4f}, the checkpoint was saved with "
            f"{recall:.4f}: {meaning}",
        ),
    ]
