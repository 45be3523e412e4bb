"""A model's standing on validation, against a naive count."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from brepfind.errors import InputError
from brepfind.retrieval.embed import embed_texts
from brepfind.retrieval.standing import standing
from brepfind.tracking.champion import recall

IDS = ["b", "a", "c", "d", "silent"]
TWINS = {"a": 0, "b": 1, "c": 1, "d": 2, "silent": 3}  # b and c are the same shape
SAID = pd.DataFrame(
    [
        ("a", "plate 1"),
        ("a", "plate 2 mm"),
        ("b", "shaft 3"),
        ("b", "plate 1"),  # said of two parts: either answers it
        ("c", "bracket 4"),
        ("d", "shaft 5 mm"),
        ("d", " "),
        ("elsewhere", "plate 9"),
    ],
    columns=["model_id", "caption"],
)
ANSWERS = {
    "plate 1": {"a", "b", "c"},
    "plate 2 mm": {"a"},
    "shaft 3": {"b", "c"},
    "bracket 4": {"b", "c"},
    "shaft 5 mm": {"d"},
}


@pytest.fixture
def cad():
    return np.random.default_rng(4).standard_normal((5, 8)).astype(np.float32)


def _standing(dual, cad, order=(0, 1, 2, 3, 4), captions=SAID, files=None):
    ids = [IDS[n] for n in order]
    digests = files or {part: f"file of {part}" for part in IDS}
    return standing(dual, ids, cad[list(order)], captions, TWINS, digests)


def _place(scores, right):
    """The rank of the best right answer, by sorting."""
    best_first = sorted(scores, key=scores.get, reverse=True)
    return 1 + next(n for n, name in enumerate(best_first) if name in right)


def test_the_recall_is_that_of_a_naive_count(dual, cad):
    found = _standing(dual, cad)
    parts = ["a", "b", "c", "d"]  # of a part that nobody says anything of, nothing is asked
    assert found["parts"] == parts
    assert found["queries"] == [2, 1, 1, 1]  # "plate 1" once
    rows = {p: cad[IDS.index(p)] / np.linalg.norm(cad[IDS.index(p)]) for p in parts}
    _, texts, _ = embed_texts(dual, list(ANSWERS))
    texts = {t: row / np.linalg.norm(row) for t, row in zip(ANSWERS, texts, strict=True)}
    score = {t: {p: float(texts[t] @ rows[p]) for p in parts} for t in ANSWERS}
    ranks = [_place(score[t], ANSWERS[t]) for t in ANSWERS]
    back = [
        _place({t: score[t][p] for t in ANSWERS}, {t for t in ANSWERS if p in ANSWERS[t]})
        for p in parts
    ]
    hits = [np.mean([[rank <= k for k in (1, 5, 10)] for rank in some]) for some in (ranks, back)]
    assert recall(found) == pytest.approx(np.mean(hits))
    assert 0.0 < recall(found) < 1.0


def test_order_does_not_matter_and_content_does(dual, cad):
    found = _standing(dual, cad)
    shuffled = _standing(dual, cad, order=(3, 0, 4, 2, 1), captions=SAID.iloc[::-1])
    assert shuffled == found
    files = {part: f"file of {part}" for part in IDS} | {"a": "another file"}
    assert _standing(dual, cad, files=files)["split"] != found["split"]
    said = SAID.replace("bracket 4", "bracket 5")
    assert _standing(dual, cad, captions=said)["split"] != found["split"]


def test_a_split_of_which_nothing_is_said_is_refused(dual, cad):
    with pytest.raises(InputError, match="no validation part has a caption"):
        _standing(dual, cad, captions=SAID.iloc[-2:])
