"""Query by query: where each caption's part came, and which captions did worst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from brepfind.metrics.counting import count_ranks
from brepfind.metrics.ranks import RankCounts
from brepfind.metrics.rows import unit_rows
from brepfind.retrieval.embeddings import Embeddings
from brepfind.retrieval.relevant import caption_ids, plain_caption, text_to_cad_relevance

# Ends of the bands of ranks, the last one open: first, 2 to 5, 6 to 10, 11 to 50, later.
BANDS = (1, 5, 10, 50)
BAND_NAMES = ("first", "2 to 5", "6 to 10", "11 to 50", "later")


@dataclass(frozen=True, kw_only=True)
class Came:
    """A part that came for a query: its row among the parts, its cosine, whether it is right."""

    part: int
    score: float
    right: bool


@dataclass(frozen=True, kw_only=True)
class Query:
    """A caption, its part's row and expected rank, and the parts that came first."""

    caption: str
    level: int
    part: int
    rank: float
    score: float
    came: Sequence[Came]


class Ranked:
    """Captions that say something, ranked as the evaluation ranks them.

    Attributes:
        captions: their rows of the table of captions.
        counts: by caption; see :class:`~brepfind.metrics.ranks.RankCounts`.
        parts: int64, the row of each caption's part.
    """

    def __init__(self, embeddings: Embeddings) -> None:
        told = np.array([bool(plain_caption(c)) for c in embeddings.captions["caption"]], bool)
        self.captions: pd.DataFrame = embeddings.captions[told].reset_index(drop=True)
        self.parts: NDArray[np.int64] = embeddings.caption_part[told]
        self.families = embeddings.parts["family"].to_numpy(object)[self.parts]
        self._relevance = text_to_cad_relevance(
            caption_ids(self.captions["caption"]), self.parts, embeddings.twins
        )
        self._text = unit_rows("text", embeddings.text[told])
        self._cad = unit_rows("CAD", embeddings.cad)
        self.counts: RankCounts = count_ranks(self._text, self._cad, self._relevance)

    def bands(self, chosen: NDArray[np.bool_]) -> list[float]:
        """The shares of some captions whose part came in each of ``BANDS``, ties by expectation."""
        counts = self.counts.select(chosen)
        up_to = [0.0, *(float(counts.hits(k).mean()) for k in BANDS), 1.0]
        return np.diff(up_to).tolist()

    def worst(self, many: int, came: int = 3) -> list[Query]:
        """The captions whose part came last, worst first; those found first are left out."""
        rank = self.counts.expected
        order = np.lexsort((np.arange(len(rank)), -rank))
        return [self._query(row, came) for row in order[:many] if rank[row] > 1]

    def _query(self, row: int, came: int) -> Query:
        cad = self._cad.astype(np.float64)
        scores = cad @ self._text[row].astype(np.float64)
        _, items = self._relevance.select(np.array([row])).pairs()
        right = set(items.tolist())
        first = np.lexsort((np.arange(len(scores)), -scores))[:came]
        return Query(
            caption=str(self.captions["caption"].iloc[row]),
            level=int(self.captions["level"].iloc[row]),
            part=int(self.parts[row]),
            rank=float(self.counts.expected[row]),
            score=float(scores[self.parts[row]]),
            came=[
                Came(part=int(part), score=float(scores[part]), right=int(part) in right)
                for part in first
            ],
        )
