"""How a model does on each validation part, in the plain form by which two models are compared.

Queries and gallery are those by which training chose the weights: each distinct caption once, and
each part that has any. So the mean over them is the recall of training's validation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from brepfind.errors import InputError
from brepfind.files import digest
from brepfind.metrics.counting import count_both
from brepfind.metrics.ranks import RankCounts
from brepfind.metrics.relevance import Relevance
from brepfind.metrics.rows import unit_rows
from brepfind.models.dual import DualEncoder
from brepfind.retrieval.embed import embed_texts
from brepfind.retrieval.relevant import caption_ids, plain_caption

_KS = (1, 5, 10)


def standing(
    model: DualEncoder,
    ids: Sequence[str],
    cad: NDArray[np.float32],
    captions: pd.DataFrame,
    twins: Mapping[str, int],
    files: Mapping[str, str],
) -> dict[str, Any]:
    """The standing of a model; see :mod:`brepfind.tracking.champion` for its fields.

    Args:
        ids: of the validation parts. cad: (P, E), their embeddings in this order.
        captions: rows of ``model_id, caption``; those of other parts are left out.
        twins: the twin group of each part. files: the digest of each part's STEP file.

    Raises:
        InputError: if no part has a caption.
    """
    told = captions[captions["model_id"].isin(list(ids))]
    told = told[[bool(plain_caption(text)) for text in told["caption"]]]
    told = told.sort_values(["model_id", "caption"], ignore_index=True)
    parts = sorted(set(told["model_id"]))
    if not parts:
        raise InputError("no validation part has a caption; raise split.validation")
    row, place = {part: n for n, part in enumerate(parts)}, {part: n for n, part in enumerate(ids)}
    owner = np.array([row[part] for part in told["model_id"]], np.int64)
    kinds = caption_ids(told["caption"])
    _, first = np.unique(kinds, return_index=True)
    group = np.array([twins[part] for part in parts], np.int64)
    said_of: list[set[int]] = [set() for _ in first]
    for kind, part in zip(kinds.tolist(), owner.tolist(), strict=True):
        said_of[kind].add(int(group[part]))
    relevance = Relevance.from_group_sets([sorted(groups) for groups in said_of], group)
    _, text, _ = embed_texts(model, told["caption"].iloc[first].tolist())
    rows = unit_rows("CAD", cad[[place[part] for part in parts]], parts)
    forward, backward = count_both(unit_rows("text", text), rows, relevance)
    said = told[["model_id", "caption"]].to_numpy().tolist()
    return {
        "split": digest([[[part, files[part]] for part in parts], said]),
        "parts": parts,
        "queries": np.bincount(owner[first], minlength=len(parts)).tolist(),
        "caption_hits": np.bincount(owner[first], _mean_hits(forward), len(parts)).tolist(),
        "part_hits": _mean_hits(backward).tolist(),
    }


def _mean_hits(counts: RankCounts) -> NDArray[np.float64]:
    """float64 (Q,): the mean hit at 1, 5 and 10."""
    return np.mean([counts.hits(k) for k in _KS], axis=0)
