"""Which parts answer which caption: the one rule behind every table.

A caption is answered by its own part, by that part's geometric twins, and by the parts (with
their twins) that carry the very same caption: neither a shape moved in space nor a sentence said
of two parts can be told apart, so no model may be marked down for it. Captions are the very same
if they are equal after Unicode composition (NFC), case folding and collapsing of white space.
The other direction is the same table read by column.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from brepfind.metrics.relevance import Relevance


def plain_caption(caption: str) -> str:
    """The form in which captions are compared; empty if the caption says nothing."""
    return " ".join(unicodedata.normalize("NFC", caption).casefold().split())


def caption_ids(captions: Iterable[str]) -> NDArray[np.int64]:
    """int64 (C,), equal for captions that are the very same, counted in order of appearance."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(plain_caption(c), len(known)) for c in captions], np.int64)


def text_to_cad_relevance(
    captions: NDArray[np.int64], caption_part: NDArray[np.int64], twins: NDArray[np.int64]
) -> Relevance:
    """Captions as queries, parts as items.

    Args:
        captions: int64 (C,), from :func:`caption_ids`.
        caption_part: int64 (C,), the row of each caption's part.
        twins: int64 (P,), equal for geometric twins.
    """
    said_of: dict[int, set[int]] = {}
    for caption, group in zip(captions.tolist(), twins[caption_part].tolist(), strict=True):
        said_of.setdefault(caption, set()).add(group)
    return Relevance.from_group_sets(
        [tuple(said_of[caption]) for caption in captions.tolist()], twins
    )


def own_part_relevance(caption_part: NDArray[np.int64], n_parts: int) -> Relevance:
    """Captions as queries, parts as items, and only a caption's own part answers it."""
    rows = np.arange(len(caption_part))
    return Relevance.from_pairs(rows, caption_part, len(caption_part), n_parts)
