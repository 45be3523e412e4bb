"""The tracker against a real SQLite store, and against one that is away."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import mlflow.data
import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from brepfind.processes import is_alive, owner_process, this_process
from brepfind.tracking.spool import Spool
from brepfind.tracking.store import TAG, Store, default_uri, metric_name, shown_uri
from brepfind.tracking.tracker import State, Tracker, flat
from tests.tracking.server import mlflow_server

# SQLAlchemy 2.1 deprecates what MLflow 3.17 does with it.
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")

RAW = {
    "name": "parts",
    "digest": "0123456789ab",
    "source": "data/raw",
    "context": "raw",
    "profile": {"files": 3},
}
GONE = "999999/1.00@" + this_process().partition("@")[2]


@pytest.fixture(scope="module")
def main(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose store was made once: its migrations cost a second."""
    return tmp_path_factory.mktemp("checkout with spaces")


@pytest.fixture
def experiment(request: pytest.FixtureRequest) -> str:
    return request.node.name


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """brepfind's own log, whatever an earlier command set up."""
    logger = logging.getLogger("brepfind")
    before = logger.propagate, logger.level
    logger.propagate, logger.level = True, logging.INFO
    yield caplog
    logger.propagate, logger.level = before


def tracker(main: Path, experiment: str, stage: str, state: State, uri: str = "") -> Tracker:
    return Tracker(
        home=main / ".brepfind",
        uri=uri or default_uri(main),
        experiment=experiment,
        stage=stage,
        state=state,
        params={"train.lr": 1e-5},
        artifacts=main / "mlartifacts",
    )


def state(fingerprint: str = "f1", owner: str = "") -> State:
    return State(
        fingerprint=fingerprint,
        params={"train.lr": 1e-5, "train.freeze": ["surface_cnn"], "sanitize.checkpoint": None},
        tags={"mlflow.source.git.commit": "abc"},
        datasets=[RAW],
        owner=owner or this_process(),
    )


def runs(main: Path, experiment: str, kind: str) -> list[Run]:
    client = MlflowClient(default_uri(main))
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return client.search_runs(
        [found.experiment_id], f"tags.`{TAG}kind` = '{kind}'", order_by=["attributes.start_time"]
    )


def test_stages_of_one_command_share_a_pipeline_run_that_publish_closes(
    main: Path, experiment: str, tmp_path: Path
) -> None:
    for stage in ("prepare", "publish"):
        one = tracker(main, experiment, stage, state())
        one.point("train/loss", 2.5, 1)
        one.numbers({"text_to_cad": {"R@1": 0.25, "n_queries": 8}, "said": "words"}, "test")
        one.numbers({"R_at_1": 0.25}, "test", pipeline=True)
        file = tmp_path / "note.txt"
        file.write_text("x")
        one.artifact(file, "notes")
        one.end("FINISHED")
        (pipeline,) = runs(main, experiment, "pipeline")
        assert pipeline.info.status == ("FINISHED" if stage == "publish" else "RUNNING")
    first, second = runs(main, experiment, "stage")
    assert (first.info.run_name, second.info.run_name) == ("prepare", "publish")
    assert first.data.tags["mlflow.parentRunId"] == pipeline.info.run_id
    assert first.info.status == second.info.status == "FINISHED"
    assert first.data.metrics == {
        "train/loss": 2.5,
        "test/text_to_cad/R_at_1": 0.25,
        "test/text_to_cad/n_queries": 8.0,
    }
    assert pipeline.data.metrics == {"test/R_at_1": 0.25}
    assert pipeline.data.params == {
        "train.lr": "1e-05",
        "train.freeze": '["surface_cnn"]',
        "sanitize.checkpoint": "null",
    }
    assert pipeline.data.tags["mlflow.source.git.commit"] == "abc"
    assert Path(first.info.artifact_uri.removeprefix("file://").replace("%20", " ")).is_relative_to(
        main / "mlartifacts"
    )
    client = MlflowClient(default_uri(main))
    assert [f.path for f in client.list_artifacts(first.info.run_id, "notes")] == ["notes/note.txt"]


def test_failed_stays_failed_and_the_repair_is_a_new_attempt(main: Path, experiment: str) -> None:
    tracker(main, experiment, "sanitize", state(owner="1/1.00@elsewhere")).end("FAILED", "NaN in w")
    (failed,) = runs(main, experiment, "pipeline")
    assert failed.info.status == "FAILED"
    assert failed.data.tags[f"{TAG}reason"] == "NaN in w"
    assert failed.data.tags["mlflow.note.content"].startswith("**Stopped at sanitize**: NaN in w\n")
    assert failed.data.tags[f"{TAG}stopped_at"] == "sanitize"
    (stage,) = runs(main, experiment, "stage")
    assert stage.info.status == "FAILED"
    assert stage.data.tags[f"{TAG}reason"] == "NaN in w"

    tracker(main, experiment, "publish", state()).end("FINISHED")
    first, second = runs(main, experiment, "pipeline")
    assert (first.info.status, second.info.status) == ("FAILED", "FINISHED")
    assert second.data.tags[f"{TAG}attempt"] == "2"


def test_nothing_a_failed_run_hears_later_makes_it_well(main: Path, experiment: str) -> None:
    first = tracker(main, experiment, "split", state())
    second = tracker(main, experiment, "publish", state())
    first.end("FAILED", "leaks")
    second.end("FINISHED")
    (pipeline,) = runs(main, experiment, "pipeline")
    assert pipeline.info.status == "FAILED"


def test_a_later_command_goes_on_with_an_open_run_whose_command_ended_between_stages(
    main: Path, experiment: str
) -> None:
    tracker(main, experiment, "prepare", state(owner=GONE)).end("FINISHED")
    tracker(main, experiment, "extract", state()).end("FINISHED")
    (pipeline,) = runs(main, experiment, "pipeline")
    assert pipeline.info.status == "RUNNING"
    assert pipeline.data.tags[f"{TAG}process"] == this_process()


def test_a_state_that_another_living_command_works_on_is_left_to_it(
    main: Path, experiment: str
) -> None:
    tracker(main, experiment, "prepare", state(owner="1/1.00@elsewhere")).end("FINISHED")
    tracker(main, experiment, "prepare", state()).end("FINISHED")
    assert len(runs(main, experiment, "pipeline")) == 2


def test_runs_whose_process_is_gone_are_marked_killed_by_the_next_command(
    main: Path, experiment: str
) -> None:
    code = textwrap.dedent(f"""
        import os, signal
        from pathlib import Path
        from brepfind.tracking.tracker import State, Tracker
        from brepfind.tracking.store import default_uri
        main = Path({str(main)!r})
        Tracker(home=main / ".brepfind", uri=default_uri(main), experiment={experiment!r},
                stage="train", state=State(fingerprint="f1", params={{}}), params={{}},
                artifacts=main / "mlartifacts")
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert runs(main, experiment, "stage")[0].info.status == "RUNNING"

    tracker(main, experiment, "train", state("f1")).end("FINISHED")
    killed, again = runs(main, experiment, "stage")
    assert killed.info.status == "KILLED"
    assert "ended without a word in train" in killed.data.tags[f"{TAG}reason"]
    assert again.info.status == "FINISHED"
    assert [run.info.status for run in runs(main, experiment, "pipeline")] == ["KILLED", "RUNNING"]


def test_an_open_run_of_another_state_whose_command_is_gone_is_marked_killed(
    main: Path, experiment: str
) -> None:
    tracker(main, experiment, "prepare", state("f1", owner=GONE)).end("FINISHED")
    tracker(main, experiment, "prepare", state("f2")).end("FINISHED")
    old, new = runs(main, experiment, "pipeline")
    assert (old.info.status, new.info.status) == ("KILLED", "RUNNING")
    assert "before publish" in old.data.tags[f"{TAG}reason"]


def test_a_number_that_is_not_finite_becomes_a_tag_and_never_a_metric(
    main: Path, experiment: str
) -> None:
    one = tracker(main, experiment, "health", state())
    for step, value in enumerate((1.0, math.nan, math.inf), start=1):
        one.point("train/loss", value, step)
    one.numbers({"recall": math.nan}, "test")
    one.end("FAILED", "NaN")
    (run,) = runs(main, experiment, "stage")
    assert run.data.metrics == {"train/loss": 1.0}
    assert run.data.tags[f"{TAG}nonfinite.train/loss"] == "nan at step 2"
    assert run.data.tags[f"{TAG}nonfinite.test/recall"] == "nan"


def test_data_sets_are_inputs_of_the_pipeline_run_and_of_the_stage_that_reads_them(
    main: Path, experiment: str
) -> None:
    side = {**RAW, "name": "train", "digest": "ba9876543210", "context": "train"}
    for stage in ("train", "publish"):
        one = tracker(main, experiment, stage, state())
        one.inputs([side], pipeline=stage == "publish")
        one.end("FINISHED")

    def inputs(run: Run) -> dict[str, tuple[str, str]]:
        return {
            one.dataset.name: (one.dataset.digest, one.tags[0].value)
            for one in run.inputs.dataset_inputs
        }

    (pipeline,) = runs(main, experiment, "pipeline")
    raw, train = ("0123456789ab", "raw"), ("ba9876543210", "train")
    assert inputs(pipeline) == {"parts": raw, "train": train}
    stages = {run.info.run_name: inputs(run) for run in runs(main, experiment, "stage")}
    assert stages == {"train": {"train": train}, "publish": {}}
    (found,) = [
        one.dataset for one in pipeline.inputs.dataset_inputs if one.dataset.name == "parts"
    ]
    assert mlflow.data.get_source(found).uri == "data/raw"
    assert json.loads(found.profile) == {"files": 3}


def test_the_machine_is_watched_while_training_runs_and_not_afterwards(
    main: Path, experiment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.1")
    one = tracker(main, experiment, "train", state())
    time.sleep(1.0)
    one.point("train/loss", 1.0, 1)
    one.flush(force=True)
    client = MlflowClient(default_uri(main))
    cpu = "system/cpu_utilization_percentage"
    (run,) = runs(main, experiment, "stage")
    live = client.get_metric_history(run.info.run_id, cpu)
    assert live, "nothing arrives while the stage runs"
    one.end("FINISHED")
    assert not [thread for thread in threading.enumerate() if thread.name == "machine"]
    points = client.get_metric_history(run.info.run_id, cpu)
    assert len(points) > len(live)
    assert [point.step for point in points] == list(range(len(points)))
    assert all(0 <= point.value <= 100 for point in points)
    assert any(point.value > 0 for point in points)
    tracker(main, experiment, "health", state()).end("FINISHED")
    _, health = runs(main, experiment, "stage")
    assert not [name for name in health.data.metrics if name.startswith("system/")]


def test_what_happens_is_counted_as_a_series(main: Path, experiment: str) -> None:
    one = tracker(main, experiment, "train", state())
    for step in (4, 9):
        one.happened("step_skipped", {"step": step})
    one.end("FINISHED")
    (run,) = runs(main, experiment, "stage")
    client = MlflowClient(default_uri(main))
    history = client.get_metric_history(run.info.run_id, "events/step_skipped")
    assert [(point.step, point.value) for point in history] == [(1, 1.0), (2, 2.0)]


def test_thousands_of_points_arrive_in_few_calls(main: Path, experiment: str) -> None:
    one = tracker(main, experiment, "train", state())
    began = time.monotonic()
    for step in range(2500):
        one.point("train/loss", 1 / (step + 1), step)
    one.end("FINISHED")
    assert time.monotonic() - began < 10
    (run,) = runs(main, experiment, "stage")
    client = MlflowClient(default_uri(main))
    assert len(client.get_metric_history(run.info.run_id, "train/loss")) == 2500


def test_an_outage_stops_nothing_and_the_next_command_delivers(
    main: Path, experiment: str, tmp_path: Path, heard: pytest.LogCaptureFixture
) -> None:
    # A folder stands where the database should be, until the store "comes back".
    uri = f"sqlite:///{tmp_path / 'away' / 'mlflow.db'}"
    (tmp_path / "away").write_text("in the way")
    home = tmp_path / ".brepfind"

    def open_one(stage: str) -> Tracker:
        return Tracker(
            home=home,
            uri=uri,
            experiment=experiment,
            stage=stage,
            state=state(owner=GONE),
            params={},
            artifacts=tmp_path / "artifacts",
        )

    one = open_one("health")
    one.point("train/loss", 2.0, 1)
    evidence = tmp_path / "evidence"
    evidence.mkdir()
    (evidence / "why.txt").write_text("because")
    one.artifact(evidence, "postmortem")
    one.end("FAILED", "NaN loss")
    assert "MLflow cannot be reached, going on without" in heard.text
    assert "delivered by the next command" in heard.text
    (evidence / "why.txt").unlink()
    evidence.rmdir()

    (spool,) = (home / "tracking").glob("*.jsonl")
    ops = [json.loads(line) for line in spool.read_text().splitlines()]
    assert [op["op"] for op in ops] == ["start", "points", "artifact", "end"]
    # As if that process had ended since.
    spool.write_text("".join(json.dumps({**op, "process": GONE}) + "\n" for op in ops))

    (tmp_path / "away").unlink()
    (tmp_path / "away").mkdir()
    open_one("health").end("FINISHED")
    client = MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    old, new = client.search_runs(
        [found.experiment_id],
        f"tags.`{TAG}kind` = 'stage'",
        order_by=["attributes.start_time"],
    )
    assert (old.info.status, new.info.status) == ("FAILED", "FINISHED")
    assert old.data.metrics == {"train/loss": 2.0}
    assert old.data.tags[f"{TAG}reason"] == "NaN loss"
    assert client.list_artifacts(old.info.run_id, "postmortem")[0].path == "postmortem/why.txt"
    assert not list((home / "tracking").glob("*"))


def test_an_outage_in_the_middle_is_made_up_for_by_the_same_command(
    main: Path, experiment: str, monkeypatch: pytest.MonkeyPatch, heard: pytest.LogCaptureFixture
) -> None:
    one = tracker(main, experiment, "train", state())
    apply = Store.apply

    def away(self: Store, op: dict[str, object]) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(Store, "apply", away)
    one.point("train/loss", 2.0, 1)
    one.flush(force=True)
    assert list((main / ".brepfind" / "tracking").glob("*.jsonl"))
    monkeypatch.setattr(Store, "apply", apply)
    one.point("train/loss", 1.0, 2)
    one.end("FINISHED")
    (run,) = runs(main, experiment, "stage")
    client = MlflowClient(default_uri(main))
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert [point.value for point in history] == [2.0, 1.0]
    assert "everything was delivered" in heard.text
    assert not list((main / ".brepfind" / "tracking").glob("*.jsonl"))


def test_a_server_that_is_killed_and_comes_back_has_missed_nothing(
    tmp_path: Path, experiment: str, heard: pytest.LogCaptureFixture
) -> None:
    server = mlflow_server(default_uri(tmp_path), tmp_path / "artifacts")
    server.start()
    try:
        one = tracker(tmp_path, experiment, "train", state(), server.uri)
        one.point("train/loss", 3.0, 1)
        one.flush(force=True)
        server.kill()
        began = time.monotonic()
        for step in range(2, 200):  # what training says goes on
            one.point("train/loss", 3.0 / step, step)
        one.happened("step_skipped", {"step": 7})
        one.flush(force=True)
        assert time.monotonic() - began < 20
        assert "MLflow cannot be reached, going on without" in heard.text
        server.start()
        one.point("train/loss", 0.01, 200)
        one.end("FINISHED")
        client = MlflowClient(server.uri)
        found = client.get_experiment_by_name(experiment)
        assert found is not None
        (run,) = client.search_runs([found.experiment_id], f"tags.`{TAG}kind` = 'stage'")
        history = client.get_metric_history(run.info.run_id, "train/loss")
        assert sorted(point.step for point in history) == list(range(1, 201))
        assert run.data.metrics["events/step_skipped"] == 1.0
        assert run.info.status == "FINISHED"
        assert not list((tmp_path / ".brepfind" / "tracking").glob("*"))
    finally:
        server.kill()


def test_what_the_store_refuses_is_said_and_does_not_hold_up_the_rest(
    main: Path, experiment: str, heard: pytest.LogCaptureFixture
) -> None:
    one = tracker(main, experiment, "train", state())
    one.tags({"x" * 300: "a key longer than MLflow takes"})
    one.tags({"fine": "yes"})
    one.end("FINISHED")
    assert "MLflow refused 'tags'" in heard.text
    (run,) = runs(main, experiment, "stage")
    assert run.data.tags["fine"] == "yes"


def test_a_run_that_the_store_refuses_is_said_and_holds_up_no_other(
    main: Path, experiment: str, heard: pytest.LogCaptureFixture
) -> None:
    tracker(main, experiment, "train", state()).end("FINISHED")
    client = MlflowClient(default_uri(main))
    deleted = client.get_experiment_by_name(experiment)
    assert deleted is not None
    client.delete_experiment(deleted.experiment_id)  # MLflow takes no run into it, for good
    one = tracker(main, experiment, "health", state())
    one.point("cost/seconds", 1.0, 1)
    one.end("FINISHED")
    assert "the health run is not recorded in MLflow" in heard.text
    assert "cannot be reached" not in heard.text
    assert not list((main / ".brepfind" / "tracking").glob("*"))
    tracker(main, f"{experiment} again", "train", state()).end("FINISHED")
    assert len(runs(main, f"{experiment} again", "stage")) == 1


def test_a_kept_record_goes_to_its_own_store_and_experiment(
    tmp_path: Path, heard: pytest.LogCaptureFixture
) -> None:
    start = {
        "op": "start",
        "key": "k1",
        "time": 1,
        "store": default_uri(tmp_path),
        "experiment": "theirs",
        "stage": "train",
        "fingerprint": "f0",
        "owner": GONE,
        "process": GONE,
        "pipeline_params": {},
        "params": {},
        "tags": {},
    }
    folder = tmp_path / ".brepfind" / "tracking"
    folder.mkdir(parents=True)
    cut = '{"op": "end", "key": "k1", "ti'
    (folder / "k1.jsonl").write_text(json.dumps(start) + "\n" + cut)
    elsewhere = json.dumps({**start, "key": "k2", "store": "http://user.example:5000"})
    (folder / "k2.jsonl").write_text(elsewhere + "\n")
    (folder / "k3.jsonl").write_text('{"op": "end", "key": "k3"}\n')
    (folder / "k4.jsonl").write_text("no JSON\n")

    tracker(tmp_path, "ours", "train", state()).end("FINISHED")
    assert len(runs(tmp_path, "theirs", "stage")) == len(runs(tmp_path, "ours", "stage")) == 1
    left = sorted(path.name for path in folder.iterdir())
    assert left == ["k2.jsonl", "k3.damaged", "k4.damaged"]
    assert "less a last line that a crash had cut" in heard.text
    assert "waits for the MLflow store http://user.example:5000" in heard.text
    assert "k3.damaged is damaged (it does not say whose record it is)" in heard.text


def test_the_password_of_a_store_is_not_written_down() -> None:
    assert shown_uri("https://me:secret@host:5000/x") == "https://host:5000/x"
    assert shown_uri("sqlite:////a b/mlflow.db") == "sqlite:////a b/mlflow.db"


def test_a_line_that_a_full_disk_cut_is_written_anew(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "k.jsonl")
    spool.append([{"op": "start", "key": "k"}])
    with spool.path.open("a") as file:
        file.write('{"op": "po')  # what a write that failed in its middle leaves
    spool.append([{"op": "end", "key": "k"}])
    assert spool.read() == ([{"op": "start", "key": "k"}, {"op": "end", "key": "k"}], False)


def test_where_nothing_can_be_kept_nothing_is_said_to_be_kept(
    tmp_path: Path, experiment: str, heard: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / ".brepfind"
    home.mkdir()
    (home / "tracking").write_text("a file in the way")
    (tmp_path / "mlflow.db").mkdir()  # no database either
    tracker(tmp_path, experiment, "train", state()).end("FINISHED")
    assert "this run is not recorded" in heard.text
    assert "delivered by the next command" not in heard.text


@pytest.mark.slow
def test_many_processes_on_a_fresh_store_make_one_pipeline_run(tmp_path: Path) -> None:
    code = textwrap.dedent(f"""
        from pathlib import Path
        from brepfind.tracking.tracker import State, Tracker
        from brepfind.tracking.store import default_uri
        main = Path({str(tmp_path)!r})
        Tracker(home=main / ".brepfind", uri=default_uri(main), experiment="e", stage="train",
                state=State(fingerprint="f", params={{"a": 1}}, owner={this_process()!r}),
                params={{}}, artifacts=main / "mlartifacts").end("FINISHED")
    """)
    crowd = [
        subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(4)
    ]
    for one in crowd:
        _, complaints = one.communicate(timeout=120)
        assert (one.returncode, complaints) == (0, b"")
    assert len(runs(tmp_path, "e", "pipeline")) == 1
    assert len(runs(tmp_path, "e", "stage")) == 4


def test_names_and_nested_values() -> None:
    assert metric_name("test/R@1 (%)") == "test/R_at_1 ___"
    assert flat({"a": {"b": 1, "c": {"d": 2}}, "e": 3}) == {"a.b": 1, "a.c.d": 2, "e": 3}


def test_a_process_is_known_by_more_than_its_number() -> None:
    me = this_process()
    assert is_alive(me) is True
    assert is_alive(GONE) is False
    assert is_alive(f"{os.getpid()}/1.00@{me.partition('@')[2]}") is False
    assert is_alive("1/1.00@another-machine") is None


def test_the_owner_of_a_stage_is_dvc_and_not_its_shell() -> None:
    code = "from brepfind.processes import owner_process; print(owner_process())"
    # The second command keeps the shell from handing its own process over to Python.
    shell = ["sh", "-c", f"{sys.executable} -c '{code}'; exit 0"]
    env = {**os.environ, "DVC_STAGE": "train"}
    said = subprocess.run(shell, env=env, capture_output=True, text=True, check=True).stdout
    assert said.strip() == this_process()
    assert owner_process() == this_process()
