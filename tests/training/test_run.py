import csv
import json

import pytest
import torch

from brepfind.checkpoints.weights import load_weights
from brepfind.events import read_events
from tests.ranks import run_ranks
from tests.training.runs import codes, reason, train, weights
from tests.training.tiny import make_job


@pytest.fixture(scope="module")
def unbroken(inputs, tmp_path_factory):
    """A run that nothing happens to, for each number of ranks."""
    done = {}

    def of(world):
        if world not in done:
            run = tmp_path_factory.mktemp(f"unbroken{world}")
            assert codes(train(inputs, run, world)) == [0] * world
            done[world] = run
        return done[world]

    return of


def same_bits(one, other) -> bool:
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


def history(run) -> list[dict]:
    with (run / "out" / "history.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_run_leaves_weights_numbers_and_a_history_and_no_state(unbroken) -> None:
    run = unbroken(1)
    tensors, metadata = load_weights(run / "out" / "best.safetensors")
    assert metadata["kind"] == "dual"
    assert json.loads(metadata["encoder"])["dim"] == 16
    assert all(torch.isfinite(t).all() for t in tensors.values() if t.is_floating_point())
    rows = history(run)
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]
    assert rows[0]["loss"] == "" and float(rows[2]["loss"]) < float(rows[1]["loss"])
    numbers = json.loads((run / "out" / "train.json").read_text())
    best = max(float(row["recall"]) for row in rows[1:])
    assert numbers["best"]["recall"] == pytest.approx(best, abs=1e-9)
    assert (numbers["steps"], numbers["skipped_steps"]) == (8, 0)
    # 36 parts in batches of 8: 4 sit out each epoch.
    assert (numbers["pairs"], numbers["parts_sitting_out_an_epoch"]) == (64, 4)
    assert numbers["parts_never_trained_on"] <= 4
    (row,) = [row for row in rows if row["epoch"] == metadata["epoch"]]
    assert float(metadata["held_out_loss"]) == pytest.approx(float(row["held_out_loss"]))
    assert not list((run / "state").glob("*/state-*"))
    records = [record for record, _ in read_events(run / "events.jsonl")]
    points = {record["point"] for record in records if "point" in record}
    cost = json.loads((run / "cost.json").read_text())
    parts = {"load", "forward", "gather", "loss", "guard", "agree", "backward", "clip"}
    assert parts | {"optimizer", "account", "scan"} == cost["share_of_a_step"].keys()
    assert sum(cost["share_of_a_step"].values()) == pytest.approx(1)
    assert {"train/loss", "train/lr", "train/skipped_steps", "validation/recall"} <= points


def test_the_same_run_gives_the_same_bytes(inputs, tmp_path, unbroken) -> None:
    assert codes(train(inputs, tmp_path)) == [0]
    for name in ("best.safetensors", "last.safetensors", "history.csv", "train.json"):
        assert (tmp_path / "out" / name).read_bytes() == (unbroken(1) / "out" / name).read_bytes()


def test_what_repeats_in_a_part_is_learned_from(inputs, tmp_path) -> None:
    assert codes(train(inputs, tmp_path, 2, pattern_features=True)) == [0, 0]
    learned = weights(tmp_path)["patterns.weight"]
    # It starts with rows at right angles; weight decay alone moves this by 5e-4, learning by 9e-3.
    assert (learned @ learned.T - torch.eye(len(learned))).abs().max() > 2e-3


@pytest.mark.parametrize(
    ("world", "fault"),
    [
        (1, "sigkill@3"),
        (2, "sigkill@6@1"),
        (1, "sigterm@2"),
        (2, "sigterm@5@1"),
        (1, "sigkill_best@4"),
        (2, "sigterm_validate@4@1"),
        *(
            pytest.param(world, f"sigkill@{step}@{world - 1}", marks=pytest.mark.slow)
            for world in (1, 2)
            for step in (1, 4, 5, 7)
        ),
        pytest.param(2, "sigkill_best@4@0", marks=pytest.mark.slow),
        pytest.param(1, "sigterm_validate@8", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_was_ended_goes_on_with_the_same_bits(
    inputs, tmp_path, unbroken, world, fault
) -> None:
    ended = codes(train(inputs, tmp_path, world, fault, save_every=2))
    if "sigterm" in fault:
        assert ended == [130] * world
        assert list((tmp_path / "state").glob("*/state-*.pt"))
        assert reason(tmp_path)["check"] == "interrupted"
    else:
        assert -9 in ended and 0 not in ended
    assert codes(train(inputs, tmp_path, world, save_every=2)) == [0] * world
    assert_same_results(tmp_path, unbroken(world))


def assert_same_results(run, other) -> None:
    assert same_bits(weights(run), weights(other))
    for name in ("best.safetensors", "history.csv"):
        assert (run / "out" / name).read_bytes() == (other / "out" / name).read_bytes()
    mine, theirs = (json.loads((a / "out" / "train.json").read_text()) for a in (run, other))
    # Someone may be editing the code while the tests run.
    assert {**mine, "resumed_under_other_code": 0} == theirs


def test_a_damaged_newest_state_is_passed_over_loudly_and_an_older_one_used(
    inputs, tmp_path, unbroken
) -> None:
    train(inputs, tmp_path, 1, "sigkill@7", save_every=1)
    older, newest = sorted((tmp_path / "state").glob("*/state-*.pt"))
    with newest.open("rb+") as file:
        file.seek(newest.stat().st_size // 2)
        file.write(b"\xff" * 4)
    assert codes(train(inputs, tmp_path, 1, save_every=1)) == [0]
    records = [record for record, _ in read_events(tmp_path / "events.jsonl")]
    (facts,) = [r["facts"] for r in records if r.get("happened") == "resumed"]
    assert facts["passed_over"] == [newest.name]
    assert f"{facts['step']:09d}" in older.name
    assert_same_results(tmp_path, unbroken(1))


def test_states_that_are_all_damaged_are_an_error_that_names_them(inputs, tmp_path) -> None:
    train(inputs, tmp_path, 1, "sigkill@3", save_every=1)
    for state in (tmp_path / "state").glob("*/state-*.pt"):
        state.write_bytes(state.read_bytes()[:-100])
    assert codes(train(inputs, tmp_path, 1)) == [2]
    assert "none of its 2 states is whole" in reason(tmp_path)["reason"]


def test_best_weights_that_are_gone_are_an_error_and_not_left_out(inputs, tmp_path) -> None:
    train(inputs, tmp_path, 1, "sigkill@6", save_every=2)
    (best,) = (tmp_path / "state").glob("*/best-*.safetensors")
    best.unlink()
    assert codes(train(inputs, tmp_path, 1)) == [2]
    assert f"{best}: there is no such file" in reason(tmp_path)["reason"]


def _nan_alignment(job: str) -> None:
    """A training whose validation gives a number that is none."""
    from brepfind.training import loop
    from brepfind.training.__main__ import main

    def judge(*args, **kwargs):
        numbers, findings = judged(*args, **kwargs)
        return {**numbers, "alignment": float("nan")}, findings

    judged, loop.judge = loop.judge, judge
    raise SystemExit(main([job]))


def test_a_validation_number_that_is_none_stops_the_run_and_is_named(inputs, tmp_path) -> None:
    make_job(inputs, tmp_path).write(tmp_path / "job.json")
    assert codes(run_ranks(_nan_alignment, 1, str(tmp_path / "job.json"))) == [1]
    assert reason(tmp_path)["reason"] == "validation: not finite: alignment"


def test_a_loss_that_stays_at_chance_is_counted_and_stops_the_run_if_asked(
    inputs, tmp_path
) -> None:
    assert codes(train(inputs, tmp_path, 1, lr=1e-12, text_lr=1e-12)) == [0]
    numbers = json.loads((tmp_path / "out" / "train.json").read_text())
    assert (numbers["epochs_at_chance"], numbers["epochs_at_chance_at_the_end"]) == (2, 2)
    records = [record for record, _ in read_events(tmp_path / "events.jsonl")]
    said = [r["facts"]["name"] for r in records if r.get("happened") == "finding"]
    assert said.count("train.loss_below_chance") == 2
    ended = train(inputs, tmp_path, 1, lr=1e-12, text_lr=1e-12, max_epochs_at_chance=1)
    assert codes(ended) == [1]
    assert "train.epochs_at_chance is 1" in reason(tmp_path)["reason"]


def test_a_nan_loss_on_one_rank_halts_all_and_is_written_down(inputs, tmp_path) -> None:
    assert codes(train(inputs, tmp_path, 2, "nan_loss@5@1", save_every=2)) == [1, 1]
    why = reason(tmp_path)
    assert (why["check"], why["cause"], why["step"], why["rank"]) == ("nonfinite", "loss", 5, 1)
    assert len(why["part_ids"]) == 4
    assert why["reason"].startswith("training stopped at step 5 (epoch 2): the loss is not finite")
    assert not (tmp_path / "out").exists()
    # What was good is still there: a run without the fault goes on from it.
    assert codes(train(inputs, tmp_path, 2, save_every=2)) == [0, 0]


def test_skipped_steps_are_events_with_their_cause_and_parts(inputs, tmp_path) -> None:
    ended = train(inputs, tmp_path, 1, "nan_loss@1,inf_gradient@6", nonfinite="skip")
    assert codes(ended) == [0]
    records = [record for record, _ in read_events(tmp_path / "events.jsonl")]
    facts = [r["facts"] for r in records if r.get("happened") == "step_skipped"]
    assert [(f["step"], f["cause"], len(f["part_ids"])) for f in facts] == [
        (1, "loss", 8),
        (6, "gradient", 8),
    ]
    skips = [r["value"] for r in records if r.get("point") == "train/skipped_steps"]
    assert max(skips) == 2


def test_a_changed_parameter_starts_afresh(inputs, tmp_path) -> None:
    assert codes(train(inputs, tmp_path, 1, "sigterm@2")) == [130]
    ended = train(inputs, tmp_path, 1, lr=1e-4)
    assert codes(ended) == [0]
    records = [record for record, _ in read_events(tmp_path / "events.jsonl")]
    assert not [r for r in records if r.get("happened") == "resumed"]


def test_a_dead_tower_stops_the_run_at_validation(inputs, tmp_path) -> None:
    assert codes(train(inputs, tmp_path, 1, min_embedding_std=1.0)) == [1]
    assert "train.cad.embedding_std" in reason(tmp_path)["reason"]
    assert not (tmp_path / "out").exists()


def test_too_large_a_batch_names_the_setting(inputs, tmp_path) -> None:
    assert codes(train(inputs, tmp_path, 1, batch_size=64)) == [2]
    assert "train.batch_size is 64 but there are 36 training parts" in reason(tmp_path)["reason"]
