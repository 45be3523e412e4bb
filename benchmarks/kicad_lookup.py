"""What a person does today: look for words in the names of files. BM25 over their paths."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# Letters and numbers apart: "L7.0mm" holds the word "l", the number 7 and the word "mm".
_WORD = re.compile(r"[^\W\d_]+|\d+(?:\.\d+)?")


def path_scores(queries: Sequence[str], paths: Sequence[str]) -> NDArray[np.float64]:
    """float64 (queries, paths), BM25 with its usual settings; 0 where no word is shared."""
    import bm25s

    model = bm25s.BM25()
    model.index([words(path) for path in paths], show_progress=False)
    rows = []
    for query in queries:
        asked = [word for word in words(query) if word in model.vocab_dict]
        rows.append(model.get_scores(asked) if asked else np.zeros(len(paths)))
    return np.stack(rows).astype(np.float64)


def words(text: str) -> list[str]:
    """Lower-case words and numbers; a number is the same however many zeros it ends in."""
    return [
        f"{float(word):g}" if word[0].isdigit() else word for word in _WORD.findall(text.casefold())
    ]
