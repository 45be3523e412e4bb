"""The fault matrix: each cell ends as it should, in time, and loses nothing good."""

import pytest

from tests.training.runs import codes, reason, train

TIMEOUT_S = 4.0
SPARE_S = 10.0

# fault, ranks, exit codes that are right, check in reason.json, words of the reason
CELLS = [
    ("nan_loss", 1, {1}, "nonfinite", "the loss is not finite"),
    ("nan_loss", 2, {1}, "nonfinite", "the loss is not finite"),
    ("inf_gradient", 1, {1}, "nonfinite", "the gradient is not finite"),
    ("inf_gradient", 2, {1}, "nonfinite", "the gradient is not finite"),
    ("nan_weight", 1, {1}, "nonfinite", "weights of"),
    ("nan_weight", 2, {1}, "nonfinite", "weights of"),
    ("nan_statistic", 1, {1}, "nonfinite", "running_mean"),
    ("nan_statistic", 2, {1}, "nonfinite", "running_mean"),
    ("sleep", 1, {1}, "hang", "no progress for 4 s"),
    ("sleep", 2, {1}, "hang", "did not arrive: rank 1"),
    ("die", 2, {1, 7}, "rank", "rank 1 ended without a word"),
    ("skip", 2, {1}, "check", "the ranks are out of step"),
    ("raise", 1, {2}, "input", "the loader fails at step 5"),
    ("raise", 2, {1, 2}, "input", "the loader fails at step 5"),
    ("sigterm", 1, {130}, "interrupted", "saved its state"),
    ("sigint", 2, {130}, "interrupted", "saved its state"),
    ("sigkill", 2, {1, -9}, "rank", "rank 1 ended without a word"),
]
# A few of each kind stay in the quick tests: agreement, a hang, a death, a loader's error.
QUICK = {("sleep", 2), ("die", 2), ("raise", 2)}


@pytest.mark.parametrize(
    ("fault", "world", "right", "check", "words"),
    [
        pytest.param(*cell, marks=() if cell[:2] in QUICK else pytest.mark.slow, id=f"{cell[:2]}")
        for cell in CELLS
    ],
)
def test_a_fault_ends_the_run_as_it_should(
    inputs, tmp_path, fault, world, right, check, words
) -> None:
    last = world - 1
    ended = train(
        inputs,
        tmp_path,
        world,
        f"{fault}@5@{last}",
        limit_s=60.0,
        save_every=2,
        timeout_s=TIMEOUT_S,
    )
    assert set(codes(ended)) <= right, [rank.error for rank in ended]
    assert 0 not in codes(ended)
    # The start of two ranks on a busy machine is not part of the hang.
    assert max(rank.seconds for rank in ended) < TIMEOUT_S + SPARE_S + 20.0
    why = reason(tmp_path)
    assert why["check"] == check
    assert words in why["reason"]
    # Nothing bad was written, and the state before the fault is there to go on from.
    assert not (tmp_path / "out").exists()
    assert list((tmp_path / "state").glob("*/state-*.pt"))
