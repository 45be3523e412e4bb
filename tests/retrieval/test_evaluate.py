"""Tables worked by hand for a handful of parts and captions."""

import json

import numpy as np
import pytest
from pydantic import ValidationError

from brepfind.errors import CheckFailed
from brepfind.retrieval.evaluate import (
    EvaluateConfig,
    evaluate,
    self_retrieval,
    table_findings,
)

CONFIG = EvaluateConfig(bootstrap=50, seed=0, min_self_retrieval=0.99)
KEYS = ("n_queries", "n_items", "R_at_1", "R_at_5", "R_at_10", "median_rank")
# Three parts along the axes, and sentences leaning their way.
AXES = np.eye(3)


def test_several_captions_a_part(embeddings_of):
    """Queries: p0 finds itself; p1's first caption finds p0 first, its second finds p1."""
    rows = [("p0", "one", 0), ("p1", "two", 0), ("p1", "three", 3)]
    text = [[1, 0.5, 0], [1, 0.5, 0], [0, 1, 0.5]]
    found = evaluate(embeddings_of(AXES, rows, text), CONFIG)
    to_cad = found["text_to_cad"]
    assert [to_cad[key] for key in KEYS] == [3.0, 3.0, 2 / 3, 1.0, 1.0, 1.0]
    assert to_cad["by_level"]["0"]["R_at_1"] == 1 / 2
    assert to_cad["by_level"]["3"]["R_at_1"] == 1.0
    # p0: captions one and two tie (the same words would not: these are two rows that are equal);
    # p1: "three" is nearest; p2 has no caption and is no query.
    to_text = found["cad_to_text"]
    assert to_text["n_unanswerable"] == 1.0
    assert [to_text[key] for key in KEYS[:3]] == [2.0, 3.0, 3 / 4]
    # The same search among captions of one level: "one" and "two" tie; "three" stands alone.
    assert to_text["by_level"]["0"]["n_items"] == 2.0
    assert to_text["by_level"]["0"]["R_at_1"] == 1 / 2
    assert to_text["by_level"]["3"]["R_at_1"] == 1.0
    assert json.dumps(found, allow_nan=False)


def test_duplicate_captions_answer_for_each_other(embeddings_of):
    rows = [("p0", "a Plate", 0), ("p1", "a  plate", 0), ("p2", "shaft", 0)]
    text = [[0, 1, 0.1], [0, 1, 0.1], [0, 0, 1]]
    found = evaluate(embeddings_of(AXES, rows, text), CONFIG)
    assert found["text_to_cad"]["R_at_1"] == 1.0
    assert found["text_to_cad"]["own_part_only"]["R_at_1"] == 2 / 3
    assert found["baselines"]["chance"]["text_to_cad"]["R_at_1"] == pytest.approx(5 / 9)


def test_twins_answer_for_each_other(embeddings_of):
    cad = [[1, 0], [1, 0], [0, 1]]
    rows = [("p0", "one", 0), ("p1", "two", 0), ("p2", "three", 0)]
    twins = embeddings_of(cad, rows, cad, twin=[4, 4, 7])
    found = evaluate(twins, CONFIG)
    assert found["text_to_cad"]["R_at_1"] == found["cad_to_cad"]["R_at_1"] == 1.0
    assert self_retrieval(twins) == 1.0
    assert found["text_to_cad"]["own_part_only"]["R_at_1"] == pytest.approx(2 / 3)
    assert found["cad_to_cad"]["own_part_only"]["R_at_1"] == pytest.approx(2 / 3)
    # the same rows without being twins: two shapes that the tower cannot tell apart
    apart = evaluate(embeddings_of(cad, rows, cad), CONFIG)
    assert apart["cad_to_cad"]["R_at_1"] == self_retrieval(embeddings_of(cad, rows, cad))
    assert apart["cad_to_cad"]["R_at_1"] == pytest.approx(2 / 3)
    assert apart["text_to_cad"]["tie_gap"] == pytest.approx(2 / 3)


def test_captions_that_say_nothing_or_too_much(embeddings_of):
    rows = [("p0", "one", 0), ("p1", " ", 0), ("p2", "three", 0)]
    found = evaluate(embeddings_of(AXES, rows, AXES, truncated=[True, True, False]), CONFIG)
    to_cad = found["text_to_cad"]
    assert (to_cad["n_queries"], to_cad["n_empty"], to_cad["n_truncated"]) == (2.0, 1.0, 1.0)
    assert to_cad["n_items"] == 3.0
    assert found["cad_to_text"]["n_unanswerable"] == 1.0
    left_out = embeddings_of(AXES, rows, AXES, notes={"captions_empty": 3})
    assert evaluate(left_out, CONFIG)["text_to_cad"]["n_empty"] == 4.0


def test_one_part(embeddings_of):
    found = evaluate(embeddings_of([[1.0, 0.0]], [("p0", "one", 0)], [[0.0, 1.0]]), CONFIG)
    for direction in ("text_to_cad", "cad_to_text", "cad_to_cad"):
        assert found[direction]["R_at_1"] == found[direction]["median_rank"] == 1.0
        assert found[direction]["interval_95"]["R_at_1"] is None
    assert found["baselines"]["chance"]["text_to_cad"]["R_at_1"] == 1.0


def test_no_caption_at_all(embeddings_of):
    found = evaluate(embeddings_of(AXES, [], np.zeros((0, 3))), CONFIG)
    assert found["text_to_cad"]["n_queries"] == found["cad_to_text"]["n_queries"] == 0.0
    assert found["text_to_cad"]["R_at_1"] is None
    assert found["cad_to_cad"]["R_at_1"] == 1.0
    assert json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("n", [3, 49])
def test_all_equal_is_chance_exactly(embeddings_of, n):
    rows = [(f"p{i}", f"caption {i} {k}", k) for i in range(n) for k in range(2)]
    found = evaluate(embeddings_of(np.ones((n, 5)), rows, np.ones((2 * n, 5))), CONFIG)
    chance = found["baselines"]["chance"]
    for direction in ("text_to_cad", "cad_to_text"):
        for key in (*KEYS, "MRR", "mean_rank"):
            assert found[direction][key] == chance[direction][key]
    assert found["text_to_cad"]["R_at_1"] == found["cad_to_cad"]["R_at_1"] == 1 / n


def test_families(embeddings_of):
    cad = [[1, 0], [1, 0.1], [0, 1], [0.1, 1]]
    rows = [(f"p{i}", f"caption {i}", 0) for i in range(4)]
    text = [[1, 0], [1, 0.1], [0, 1], [0, 1]]
    found = evaluate(embeddings_of(cad, rows, text, family=["a", "a", "b", ""]), CONFIG)
    assert set(found["text_to_cad"]["by_family"]) == {"a", "b"}
    assert found["text_to_cad"]["by_family"]["a"]["R_at_1"] == 1.0
    assert found["text_to_cad"]["by_family"]["a"]["n_items"] == 4.0
    # p0 and p1 are each other's nearest; p2 is alone in its family, p3 in none
    assert found["cad_to_cad"]["nearest_other"] == {
        "n_queries": 2.0,
        "same_family": 1.0,
        "by_family": {"a": 1.0},
    }


def test_an_embedding_that_is_not_finite_names_its_part(embeddings_of):
    cad = AXES.copy()
    cad[1, 1] = np.nan
    rows = [("p0", "one", 0)]
    with pytest.raises(CheckFailed, match=r"CAD: 1 of 3 embeddings hold NaN or infinity \(p1\)"):
        evaluate(embeddings_of(cad, rows, [[1, 0, 0]]), CONFIG)
    with pytest.raises(CheckFailed, match=r"text: 1 of 1 embeddings are zero .*\(p0 caption 0\)"):
        evaluate(embeddings_of(AXES, rows, [[0, 0, 0]]), CONFIG)


def test_self_retrieval_sees_what_float32_cannot(embeddings_of):
    """A healthy tower of near-twins: families of rows 1e-4 apart, cosines of 1 - 5e-9."""
    rng = np.random.default_rng(0)
    family = np.repeat(rng.standard_normal((5, 64)), 10, axis=0)
    near = embeddings_of(family + 1e-4 * rng.standard_normal((50, 64)), [], np.zeros((0, 64)))
    assert self_retrieval(near) == evaluate(near, CONFIG)["cad_to_cad"]["R_at_1"] == 1.0


def test_intervals_hold_the_mean_and_may_be_left_out(embeddings_of):
    rng = np.random.default_rng(0)
    cad = rng.standard_normal((30, 6))
    rows = [(f"p{i}", f"caption {i}", 0) for i in range(30)]
    noisy = embeddings_of(cad, rows, cad + rng.standard_normal((30, 6)))
    table = evaluate(noisy, CONFIG)["text_to_cad"]
    for key in ("R_at_1", "R_at_10", "MRR"):
        low, high = table["interval_95"][key]
        assert low <= table[key] <= high
    none = evaluate(noisy, CONFIG.model_copy(update={"bootstrap": 0}))
    assert "interval_95" not in none["text_to_cad"]


def test_the_config_is_checked():
    with pytest.raises(ValidationError, match="min_self_retrieval"):
        EvaluateConfig(bootstrap=10, seed=0, min_self_retrieval=1.5)


def verdicts(tables):
    return {
        finding.name.removeprefix("evaluate."): finding.verdict
        for finding in table_findings(tables, CONFIG)
        if finding.verdict != "ok"
    }


def test_tables_of_nothing_do_not_pass(embeddings_of):
    """Their numbers are null, which no limit may take for fine."""
    sound = evaluate(embeddings_of(AXES, [(f"p{i}", str(i), 0) for i in range(3)], AXES), CONFIG)
    assert verdicts(sound) == {}
    untold = evaluate(embeddings_of(AXES, [], np.zeros((0, 3))), CONFIG)
    assert verdicts(untold) == {
        "text_to_cad.queries": "failed",
        "text_to_cad.tie_gap": "warning",
        "cad_to_text.queries": "failed",
        "cad_to_text.items": "failed",
        "cad_to_text.tie_gap": "warning",
    }
    empty = evaluate(embeddings_of(AXES[:0], [], np.zeros((0, 3))), CONFIG)
    assert {"cad_to_cad.queries", "cad_to_cad.items", "self_retrieval"} <= set(verdicts(empty))


def test_ties_that_decide_are_a_warning(embeddings_of):
    """Two of three parts have equal rows: their captions' ranks are chance."""
    cad = [[1, 0], [1, 0], [0, 1]]
    rows = [(f"p{i}", str(i), 0) for i in range(3)]
    assert verdicts(evaluate(embeddings_of(cad, rows, cad, twin=[0, 0, 1]), CONFIG)) == {}
    assert verdicts(evaluate(embeddings_of(cad, rows, cad), CONFIG)) == {
        "text_to_cad.tie_gap": "warning",
        "cad_to_text.tie_gap": "warning",
        "cad_to_cad.tie_gap": "warning",
        "self_retrieval": "failed",
    }
