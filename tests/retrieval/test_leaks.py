import numpy as np

from brepfind.retrieval.leaks import leak_findings, leaked

# A row per shape: nine numbers that a motion leaves as they are.
SHAPES = np.linspace(1.0, 2.0, 9) + np.arange(5)[:, None]


def test_only_test_parts_with_a_twin_elsewhere():
    seen = SHAPES[[1, 3]] * (1 + 1e-7)
    assert leaked(["a", "b", "c"], SHAPES[:3], seen) == ["b"]


def test_nothing_seen_nothing_leaked():
    assert leaked(["a"], SHAPES[:1], SHAPES[:0]) == []
    assert leaked([], SHAPES[:0], SHAPES[:1]) == []


def test_twins_within_test_are_no_leak():
    assert leaked(["a", "b"], SHAPES[[0, 0]], SHAPES[1:]) == []


def test_each_place_is_asked():
    found = leak_findings(["a", "b"], SHAPES[:2], {"train": SHAPES[2:], "pretraining": SHAPES[1:]})
    assert [(f.name, f.value, f.verdict) for f in found] == [
        ("evaluate.twins_in_train", 0, "ok"),
        ("evaluate.twins_in_pretraining", 1, "failed"),
    ]
    assert "(b)" in found[1].advice
