"""Finding parts from a sentence, or from a part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from brepfind.cad.arrays import PartArrays
from brepfind.errors import InputError
from brepfind.graphs.collate import collate
from brepfind.graphs.pairwise import AngleRule, pairwise
from brepfind.models.dual import DualEncoder
from brepfind.retrieval.embed import embed_texts
from brepfind.retrieval.index import Index, require_model
from brepfind.retrieval.relevant import plain_caption


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One part that was found.

    Attributes:
        model_id: which. score: cosine, at most 1. facts: the index's other columns.
    """

    model_id: str
    score: float
    facts: Mapping[str, Any]


class Searcher:
    """A model and the index it made.

    Raises:
        VersionMismatch: if another model made the index.
    """

    def __init__(self, model: DualEncoder, index: Index, digest: str) -> None:
        require_model(index.model, digest, "the index")
        self._model = model.eval()
        self._index = index

    def search(self, text: str, k: int = 10) -> list[Hit]:
        """The parts nearest to a sentence, best first.

        Raises:
            InputError: if the sentence says nothing, or k is not positive.
        """
        if not plain_caption(text):
            raise InputError("the search text is empty; say what the part looks like")
        _, vector, _ = embed_texts(self._model, [text])
        return self.nearest(vector, k)

    @torch.inference_mode()
    def like(self, part: PartArrays, k: int = 10, angle_rule: AngleRule = "inside") -> list[Hit]:
        """The parts nearest to a part, best first."""
        batch = collate([part], [pairwise(part, angle_rule)]).to(self._model.logit_scale.device)
        return self.nearest(self._model.embed_parts(batch).projected.float().cpu().numpy(), k)

    def nearest(self, vector: NDArray[np.float32], k: int = 10) -> list[Hit]:
        """The parts nearest to a vector (1, E) of the model's space."""
        scores, rows = self._index.nearest(vector, k)
        found = self._index.parts.iloc[rows[0]].to_dict("records")
        return [
            Hit(model_id=str(facts.pop("model_id")), score=float(score), facts=facts)
            for score, facts in zip(scores[0], found, strict=True)
        ]
