"""Loss and recall as training took them, and whether they are the recorded ones."""

import math

import numpy as np
import pytest

from brepfind.retrieval.evaluate import EvaluateConfig, evaluate
from brepfind.retrieval.recorded import agreement, validate


def test_mean_recall_by_hand(embeddings_of):
    """Two parts, the caption "x" of both counted once: all six recalls by hand."""
    rows = [("p0", "x", 0), ("p1", "x", 0), ("p0", "y", 0)]
    text = [[1, 0], [1, 0], [0, 1]]
    # x finds p0, which is right; y finds p1, which is wrong (R@1 1/2, R@5 1). p0 finds x, p1 finds
    # y, whose part is p0: wrong (R@1 1/2, R@5 1).
    found = validate(embeddings_of(np.eye(2), rows, text), 2.0)
    assert found.recall == pytest.approx((0.5 + 1 + 1) * 2 / 6)
    # x: both parts answer, loss 0; y: its part has score 0, the other 2. p0: both captions are
    # its own, loss 0; p1: x has score 0, y 2.
    assert found.loss == pytest.approx((0 + math.log1p(math.exp(2))) / 2)


def test_parts_without_a_caption_are_left_out(embeddings_of):
    rows = [("p0", "x", 0), ("p1", "y", 0)]
    assert validate(embeddings_of(np.eye(3), rows, np.eye(3)[:2]), 1.0).recall == 1.0


def test_it_is_the_mean_of_the_tables_for_distinct_captions(embeddings_of):
    rng = np.random.default_rng(0)
    rows = [(f"p{i}", f"caption {i} {k}", k) for i in range(30) for k in range(2)]
    some = embeddings_of(rng.standard_normal((30, 6)), rows, rng.standard_normal((60, 6)))
    tables = evaluate(some, EvaluateConfig(bootstrap=0, seed=0, min_self_retrieval=0.0))
    wanted = np.mean(
        [tables[way][f"R_at_{k}"] for way in ("text_to_cad", "cad_to_text") for k in (1, 5, 10)]
    )
    assert validate(some, 1.0).recall == pytest.approx(wanted)


LOSS = math.log1p(math.exp(-5.0))


@pytest.mark.parametrize(
    ("loss", "recall", "verdicts"),
    [
        (LOSS, 1.0, ["ok", "ok"]),
        (LOSS + 0.0009, 0.991, ["ok", "ok"]),
        (LOSS + 0.0011, 1.0, ["failed", "ok"]),
        (LOSS, 0.98, ["ok", "failed"]),
        (math.nan, math.nan, ["failed", "failed"]),
    ],
)
def test_agreement(embeddings_of, loss, recall, verdicts):
    some = embeddings_of(np.eye(2), [("p0", "x", 0), ("p1", "y", 0)], np.eye(2))
    said = {"held_out_loss": str(loss), "recall": str(recall)}
    found = agreement(said, some, 5.0)
    assert [finding.verdict for finding in found] == verdicts
    for finding, value in zip(found, (loss, recall), strict=True):
        assert finding.verdict == "ok" or f"saved with {value:.4f}" in finding.advice


def test_weights_that_record_nothing_are_not_vouched_for(embeddings_of):
    some = embeddings_of(np.eye(2), [("p0", "x", 0), ("p1", "y", 0)], np.eye(2))
    assert [finding.verdict for finding in agreement({}, some, 5.0)] == ["failed", "failed"]
