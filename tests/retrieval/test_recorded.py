import numpy as np
import pytest

from brepfind.retrieval.evaluate import EvaluateConfig, evaluate
from brepfind.retrieval.recorded import agreement, mean_recall


def test_mean_recall_by_hand(embeddings_of):
    """Two parts, the caption "x" of both counted once: all six recalls by hand."""
    rows = [("p0", "x", 0), ("p1", "x", 0), ("p0", "y", 0)]
    text = [[1, 0], [1, 0], [0, 1]]
    # x finds p0, which is right; y finds p1, which is wrong (R@1 1/2, R@5 1). p0 finds x, p1 finds
    # y, whose part is p0: wrong (R@1 1/2, R@5 1).
    found = mean_recall(embeddings_of(np.eye(2), rows, text))
    assert found == pytest.approx((0.5 + 1 + 1) * 2 / 6)


def test_parts_without_a_caption_are_left_out(embeddings_of):
    rows = [("p0", "x", 0), ("p1", "y", 0)]
    assert mean_recall(embeddings_of(np.eye(3), rows, np.eye(3)[:2])) == 1.0


def test_it_is_the_mean_of_the_tables_for_distinct_captions(embeddings_of):
    rng = np.random.default_rng(0)
    rows = [(f"p{i}", f"caption {i} {k}", k) for i in range(30) for k in range(2)]
    some = embeddings_of(rng.standard_normal((30, 6)), rows, rng.standard_normal((60, 6)))
    tables = evaluate(some, EvaluateConfig(bootstrap=0, seed=0, min_self_retrieval=0.0))
    wanted = np.mean(
        [tables[way][f"R_at_{k}"] for way in ("text_to_cad", "cad_to_text") for k in (1, 5, 10)]
    )
    assert mean_recall(some) == pytest.approx(wanted)


def test_agreement(embeddings_of):
    some = embeddings_of(np.eye(2), [("p0", "x", 0), ("p1", "y", 0)], np.eye(2))
    assert agreement(1.0, some).verdict == "ok"
    assert agreement(0.98, some).verdict == "failed"
    assert "saved with 0.9800" in agreement(0.98, some).advice
    assert agreement(float("nan"), some).verdict == "failed"
