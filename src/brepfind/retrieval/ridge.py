"""The baseline that a learned encoder has to beat: ridge regression from simple descriptors.

From ``descriptors.py`` of a part to the embedding that the text tower, as it came, gives its
captions. A caption then looks for the part whose predicted embedding is nearest. The strength of
the regularisation is chosen on the validation parts; the test parts are looked at once.

Shapes: P parts, C captions, K descriptors, T dimensions of the text embedding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from brepfind.corpus.manifest import Corpus
from brepfind.errors import InputError
from brepfind.graphs.descriptors import describe_all
from brepfind.graphs.store import GraphStore
from brepfind.metrics.counting import count_ranks
from brepfind.metrics.ranks import RankCounts, summarise
from brepfind.metrics.relevance import Relevance
from brepfind.metrics.rows import Rows
from brepfind.models.text import TextTower
from brepfind.retrieval.embed import sentence_vectors
from brepfind.retrieval.relevant import caption_ids, plain_caption, text_to_cad_relevance

ALPHAS = tuple(10.0**power for power in range(-2, 6))

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RidgeData:
    """Parts of all splits with the captions that say something.

    Attributes:
        split: str (P,), ``train``, ``validation`` or ``test``.
        descriptors: float64 (P, K).
        text: float32 (C, T), of the text tower before any training here.
        captions: int64 (C,), equal for the very same caption.
        caption_part: int64 (C,), row of each caption's part.
        twins: int64 (P,), equal for geometric twins.
    """

    split: NDArray[np.str_]
    descriptors: Matrix
    text: NDArray[np.float32]
    captions: NDArray[np.int64]
    caption_part: NDArray[np.int64]
    twins: NDArray[np.int64]


def ridge_data(
    store: GraphStore,
    corpus: Corpus,
    split: pd.DataFrame,
    twins: Mapping[str, int],
    tower: TextTower,
) -> RidgeData:
    """The baseline's data from what the pipeline has.

    Args:
        split: columns ``model_id, split``. tower: as it came, not the trained one.
    """
    split = split.sort_values("model_id", ignore_index=True)
    ids = split["model_id"].tolist()
    row = {model_id: i for i, model_id in enumerate(ids)}
    captions = corpus.captions[corpus.captions["model_id"].isin(ids)]
    captions = captions[[bool(plain_caption(text)) for text in captions["caption"]]]
    texts = captions["caption"].tolist()
    return RidgeData(
        split=split["split"].to_numpy(str),
        descriptors=describe_all(store.load(model_id) for model_id in ids),
        text=sentence_vectors(tower, texts),
        captions=caption_ids(texts),
        caption_part=np.array([row[model_id] for model_id in captions["model_id"]], np.int64),
        twins=np.array([twins[model_id] for model_id in ids], np.int64),
    )


def ridge_baseline(data: RidgeData) -> dict[str, Any]:
    """The table of text_to_cad on the test parts, with ``alpha`` and its validation MRR.

    Raises:
        InputError: if a split has no part with a caption.
    """
    counts, alpha, tried = ridge_counts(data)
    return summarise(counts) | {"alpha": alpha, "validation_MRR": tried}


def ridge_counts(data: RidgeData) -> tuple[RankCounts, float, float]:
    """The ranks of the test parts' captions in the order of ``data``, alpha and its validation MRR.

    Raises:
        InputError: if a split has no part with a caption.
    """
    rows, alpha, tried = ridge_rows(data, "test")
    return count_ranks(*rows), alpha, tried


def ridge_rows(data: RidgeData, split: str) -> tuple[tuple[Rows, Rows, Relevance], float, float]:
    """Captions (c, T + 1) and parts (p, T + 1) of a split in the order of ``data`` as directions
    whose products are the scores, what answers what, alpha and its validation MRR.

    Raises:
        InputError: if a split has no part with a caption.
    """
    fit = _Fit(data)
    tried = [
        float(summarise(count_ranks(*fit.rows("validation", alpha)))["MRR"]) for alpha in ALPHAS
    ]
    alpha = ALPHAS[int(np.argmax(tried))]
    return fit.rows(split, alpha), alpha, max(tried)


class _Fit:
    """Descriptors standardised and text centred by the training parts, factored once."""

    def __init__(self, data: RidgeData) -> None:
        self._data = data
        for split in ("train", "validation", "test"):
            if not (data.split[data.caption_part] == split).any():
                raise InputError(f"ridge baseline: no {split} part has a caption")
        rows = np.flatnonzero(data.split[data.caption_part] == "train")
        x, y = data.descriptors[data.caption_part[rows]], data.text[rows].astype(np.float64)
        mean, std = x.mean(axis=0), x.std(axis=0)
        # A descriptor that no training part varies says nothing, and is not let loose on others.
        self._x = np.where(std > 0, (data.descriptors - mean) / np.where(std > 0, std, 1.0), 0.0)
        self._centre = y.mean(axis=0)
        y -= self._centre
        left, self._singular, self._right = np.linalg.svd(
            self._x[data.caption_part[rows]], full_matrices=False
        )
        self._target = left.T @ y

    def rows(self, split: str, alpha: float) -> tuple[Rows, Rows, Relevance]:
        data = self._data
        parts = np.flatnonzero(data.split == split)
        rows = np.flatnonzero(data.split[data.caption_part] == split)
        place = np.full(len(data.split), -1)
        place[parts] = np.arange(len(parts))
        shrink = self._singular / (self._singular**2 + alpha)
        weights = self._right.T @ (shrink[:, None] * self._target)
        relevance = text_to_cad_relevance(
            data.captions[rows], place[data.caption_part[rows]], data.twins[parts]
        )
        text = _directions(data.text[rows].astype(np.float64) - self._centre)
        return text, _directions(self._x[parts] @ weights), relevance


def _directions(rows: Matrix) -> NDArray[np.float32]:
    """Unit rows with one more column; a zero row points along it and scores 0 with the rest."""
    norm = np.linalg.norm(rows, axis=1, keepdims=True)
    zero = norm == 0.0
    return np.hstack([rows / np.where(zero, 1.0, norm), zero]).astype(np.float32)
