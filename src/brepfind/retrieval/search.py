"""Finding parts from a sentence, from a part of the index, or from a part of anybody's."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from brepfind.cad.arrays import PartArrays
from brepfind.errors import InputError
from brepfind.graphs.collate import collate
from brepfind.graphs.pairwise import AngleRule, pairwise
from brepfind.log import get_logger
from brepfind.models.dual import DualEncoder
from brepfind.retrieval.embed import embed_texts
from brepfind.retrieval.index import Index, read_index, require_model
from brepfind.retrieval.model import load_trained
from brepfind.retrieval.parts import Filters, size
from brepfind.retrieval.relevant import plain_caption

if TYPE_CHECKING:
    from brepfind.retrieval.shape import Limits

log = get_logger(__name__)

_ALL = Filters()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One part that was found.

    Attributes:
        model_id: which. score: cosine, at most 1. facts: the index's other columns.
    """

    model_id: str
    score: float
    facts: Mapping[str, Any]

    @property
    def size(self) -> tuple[float, float, float] | None:
        """The sides of the bounding box, mm, if the index knows them."""
        return size(self.facts)


class Searcher:
    """A model and the index it made. Any number of threads may ask; the model answers one at a
    time, for tokenizers keep state.

    Attributes:
        folder: where the index was read from, or None. STEP files are found from there.

    Raises:
        VersionMismatch: if another model made the index.
    """

    def __init__(
        self, model: DualEncoder, index: Index, digest: str, folder: Path | None = None
    ) -> None:
        require_model(index.model, digest, "the index")
        self.index = index
        self.folder = folder
        self._model = model.eval()
        self._busy = threading.Lock()

    @classmethod
    def open(cls, model: Path, folder: Path) -> Searcher:
        """From a weights file and the folder of the index it made.

        Raises:
            CheckpointError, VersionMismatch, InputError: if one cannot be used.
        """
        trained = load_trained(model)
        return cls(trained.model, read_index(folder, trained.digest), trained.digest, folder)

    def search(self, text: str, k: int = 10, filters: Filters = _ALL) -> list[Hit]:
        """The parts nearest to a sentence, best first.

        Raises:
            InputError: if the sentence says nothing, or k is not positive.
        """
        if not plain_caption(text):
            raise InputError("the search text is empty; say what the part looks like")
        with self._busy:
            _, vector, truncated = embed_texts(self._model, [text])
        if truncated.any():
            log.warning("the search text is longer than the model reads; its end does not count")
        return self.nearest(vector, k, filters)

    def like(
        self,
        part: PartArrays,
        k: int = 10,
        angle_rule: AngleRule = "inside",
        filters: Filters = _ALL,
    ) -> list[Hit]:
        """The parts nearest to a part, best first."""
        batch = collate([part], [pairwise(part, angle_rule)]).to(self._model.logit_scale.device)
        with self._busy, torch.inference_mode():
            vector = self._model.embed_parts(batch).projected.float().cpu().numpy()
        return self.nearest(vector, k, filters)

    def like_file(
        self,
        path: Path,
        k: int = 10,
        filters: Filters = _ALL,
        limits: Limits | None = None,
        name: str | None = None,
    ) -> list[Hit]:
        """The parts nearest to that in a STEP file, best first; see
        :func:`~brepfind.retrieval.shape.read_shape`.
        """
        from brepfind.retrieval.shape import Limits, read_shape  # Open CASCADE, a second of it

        most = self._model.encoder.config.max_faces
        part = read_shape(
            path, grid=self.index.grid, max_faces=most, limits=limits or Limits(), name=name
        )
        return self.like(part, k, filters=filters)

    def more_like(self, model_id: str, k: int = 10, filters: Filters = _ALL) -> list[Hit]:
        """The parts nearest to one of the index, without itself, best first.

        Raises:
            InputError: if the index holds no such part.
        """
        vector = self.index.vector(model_id)
        # One more than asked for: it is nearest to itself, unless a filter keeps it out.
        found = self.nearest(vector[None], k + 1, filters)
        return [hit for hit in found if hit.model_id != model_id][:k]

    def nearest(
        self, vector: NDArray[np.float32], k: int = 10, filters: Filters = _ALL
    ) -> list[Hit]:
        """The parts nearest to a vector (1, E) of the model's space; none if no part passes."""
        scores, rows = self.index.nearest(vector, k, filters.allowed(self.index.parts))
        found = self.index.parts.iloc[rows[0]].to_dict("records")
        return [
            Hit(model_id=str(facts.pop("model_id")), score=float(score), facts=facts)
            for score, facts in zip(scores[0], found, strict=True)
        ]
