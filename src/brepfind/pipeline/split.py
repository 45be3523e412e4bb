"""split: train, validation and test over the accepted parts, no twin across a border."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from brepfind.checkpoints.sanitize import SanitizeConfig
from brepfind.corpus.manifest import read_corpus
from brepfind.corpus.splits import SplitConfig, leaking_parts, make_split
from brepfind.errors import InputError
from brepfind.files import atomic_path
from brepfind.graphs.store import GraphStore
from brepfind.graphs.twins import twin_groups
from brepfind.pipeline import paths
from brepfind.pipeline.context import StageContext
from brepfind.retrieval.leaks import leaked, read_signatures


def split(context: StageContext) -> Mapping[str, Any]:
    """Write ``data/split/split.parquet``: ``model_id``, ``split`` and ``twin``, the twin group.

    Halts when a side has too few parts, or a user's own split has twins on two sides. What the
    pretrained encoder has seen is for train.
    """
    config = context.section("split", SplitConfig)
    corpus = read_corpus(context.path(paths.CORPUS))
    store = GraphStore(context.path(paths.GRAPHS))
    if not len(store):
        raise InputError("no part was accepted by extract, so there is nothing to split")
    parts = corpus.parts.set_index("model_id").loc[list(store.ids)]
    twins = twin_groups(store.signatures)
    asked = parts["split"].tolist()
    known = _known(context, store)
    table = make_split(
        store.ids, parts["family"].tolist(), twins, asked if any(asked) else None, config, known
    )
    group_of = dict(zip(store.ids, twins.tolist(), strict=True))
    table = table.assign(twin=[group_of[model_id] for model_id in table["model_id"]])
    with atomic_path(context.path(paths.SPLIT)) as aside:
        table.to_parquet(aside, index=False)
    orphaned = ~corpus.captions["model_id"].isin(table["model_id"])
    counts = table["split"].value_counts()
    _, sizes = np.unique(twins, return_counts=True)
    return {
        "parts": {side: int(counts.get(side, 0)) for side in ("train", "validation", "test")},
        "captions_orphaned_by_rejects": int(orphaned.sum()),
        "twin_groups": int((sizes > 1).sum()),
        "parts_with_twins": int(sizes[sizes > 1].sum()),
        "known_to_pretraining": len(known),
        "leaking_parts": len(leaking_parts(table["twin"].to_numpy(), table["split"].tolist())),
    }


def _known(context: StageContext, store: GraphStore) -> list[str]:
    """Parts whose shape the encoder was pretrained on, as far as anybody kept that."""
    checkpoint = context.section("sanitize", SanitizeConfig).checkpoint
    if checkpoint is None:
        return []
    seen = read_signatures(context.path(Path(checkpoint)))
    return [] if seen is None else leaked(store.ids, store.signatures, seen)
