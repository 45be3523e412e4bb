"""Registering models in a real store and through a real server; who is the champion."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from brepfind.processes import this_process
from brepfind.tracking import registry
from brepfind.tracking.package import mlflow
from brepfind.tracking.store import NOTE, TAG, default_uri
from brepfind.tracking.tracker import State, Tracker
from tests.tracking.server import mlflow_server
from tests.tracking.standings import standing

# SQLAlchemy 2.1 deprecates what MLflow 3.17 does with it.
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")

NAME = "parts"
Publish = Callable[..., Run]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return default_uri(tmp_path)


@pytest.fixture
def copy(model: Path, tmp_path: Path) -> Callable[..., Path]:
    """The function ``copy(hits, split)``: the model, with another standing on validation."""
    count = iter(range(100))

    def make(hits: list[float], split: str = "s" * 64) -> Path:
        folder = tmp_path / f"model {next(count)}"
        shutil.copytree(model, folder)
        (folder / registry.STANDING).write_text(json.dumps(standing(hits, split)))
        return folder

    return make


@pytest.fixture
def publish(tmp_path: Path) -> Publish:
    """The function ``publish(folder, uri)``: the end of the publish stage of another state."""
    states = iter(range(100))

    def act(folder: Path, uri: str) -> Run:
        one = open_publish(tmp_path, uri, f"state {next(states)}")
        one.model(folder, NAME, "**Every gate passed.**", {"test_R_at_1": "0.5000"})
        one.end("FINISHED")
        return newest(uri)

    return act


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """brepfind's own log, whatever an earlier command set up."""
    logger = logging.getLogger("brepfind")
    before = logger.propagate, logger.level
    logger.propagate, logger.level = True, logging.INFO
    yield caplog
    logger.propagate, logger.level = before


def open_publish(main: Path, uri: str, state: str = "f1") -> Tracker:
    return Tracker(
        home=main / ".brepfind",
        uri=uri,
        experiment=NAME,
        stage="publish",
        state=State(fingerprint=state, params={}, owner=this_process()),
        params={},
        artifacts=main / "mlartifacts",
    )


def newest(uri: str) -> Run:
    client = MlflowClient(uri)
    found = client.get_experiment_by_name(NAME)
    assert found is not None
    return client.search_runs([found.experiment_id], f"tags.`{TAG}kind` = 'pipeline'")[0]


def champion(uri: str) -> str:
    return str(MlflowClient(uri).get_model_version_by_alias(NAME, registry.ALIAS).version)


def test_the_first_is_champion_a_better_one_takes_over_and_an_equal_one_does_not(
    uri: str, copy: Callable[..., Path], publish: Publish, heard: pytest.LogCaptureFixture
) -> None:
    first = publish(copy([0.5] * 20), uri)
    assert champion(uri) == "1"
    assert first.data.tags[f"{TAG}model_version"] == "1"
    assert "is the champion, the first" in first.data.tags[f"{TAG}champion"]
    equal = publish(copy([0.4] * 10 + [0.6] * 10), uri)
    assert champion(uri) == "1"
    assert "champion stays version 1" in equal.data.tags[f"{TAG}champion"]
    better = publish(copy([0.9] * 20), uri)
    assert champion(uri) == "3"
    assert "+40.0 points against version 1" in better.data.tags[f"{TAG}champion"]
    client = MlflowClient(uri)
    for run, version in ((first, "1"), (equal, "2"), (better, "3")):
        sentence = run.data.tags[f"{TAG}champion"]
        assert client.get_model_version(NAME, version).description == sentence
        assert run.data.tags[NOTE].startswith("**Every gate passed.**\n\n")
        assert sentence in run.data.tags[NOTE]
        assert f"model {NAME} version {version}: {sentence}" in heard.text
    tags = client.get_model_version(NAME, "3").tags
    assert tags.pop("model_id") == better.outputs.model_outputs[0].model_id
    assert tags == {"validation_recall": "0.9000", "test_R_at_1": "0.5000", "split": "s" * 12}


def test_the_model_is_the_runs_own_and_loads_by_its_alias(
    uri: str, copy: Callable[..., Path], publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = publish(copy([0.5] * 20), uri)
    (output,) = run.outputs.model_outputs
    logged = MlflowClient(uri).get_logged_model(output.model_id)
    assert (logged.status, logged.source_run_id) == ("READY", run.info.run_id)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)  # as a person would
    loaded = mlflow.pyfunc.load_model(f"models:/{NAME}@{registry.ALIAS}")
    assert loaded.metadata.model_id == output.model_id
    assert loaded.metadata.run_id == run.info.run_id
    assert len(loaded.predict({"query": ["a plate"]}, params={"k": 2})) == 2


def test_other_parts_do_not_compare_and_a_champion_that_lost_its_files_stays(
    uri: str, copy: Callable[..., Path], publish: Publish, tmp_path: Path
) -> None:
    publish(copy([0.1] * 20), uri)
    other = publish(copy([1.0] * 20, split="t" * 64), uri)
    assert "validated on other parts" in other.data.tags[f"{TAG}champion"]
    assert champion(uri) == "1"
    for file in (tmp_path / "mlartifacts").rglob(registry.STANDING):
        file.unlink()
    lost = publish(copy([1.0] * 20), uri)
    assert "no longer there" in lost.data.tags[f"{TAG}champion"]
    assert champion(uri) == "1"


def test_a_delivery_that_is_cut_short_makes_one_model_and_one_version(
    uri: str, copy: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = open_publish(tmp_path, uri)
    one.model(copy([0.5] * 20), NAME, "well", {})

    def away(*_: object, **__: object) -> None:
        raise ConnectionError("no route")

    for act in ("finalize_logged_model", "update_model_version"):
        with monkeypatch.context() as patch:
            patch.setattr(MlflowClient, act, away)
            one.flush(force=True)
    one.end("FINISHED")
    client = MlflowClient(uri)
    (version,) = client.search_model_versions(f"name = '{NAME}'")
    assert "is the champion, the first" in version.description
    assert len(client.search_logged_models([newest(uri).info.experiment_id])) == 1
    (output,) = newest(uri).outputs.model_outputs
    assert client.get_logged_model(output.model_id).status == "READY"
    assert not list((tmp_path / ".brepfind/tracking").glob("*"))


def test_a_model_waits_for_a_store_that_is_away(
    copy: Callable[..., Path], tmp_path: Path, heard: pytest.LogCaptureFixture
) -> None:
    away = tmp_path / "away"
    away.write_text("in the way")
    uri = f"sqlite:///{away / 'mlflow.db'}"
    folder = copy([0.5] * 20)
    one = open_publish(tmp_path, uri)
    one.model(folder, NAME, "well", {})
    one.end("FINISHED")
    shutil.rmtree(folder)
    assert "delivered by the next command" in heard.text
    (spool,) = (tmp_path / ".brepfind/tracking").glob("*.jsonl")
    gone = f"999999/1.00@{this_process().partition('@')[2]}"  # as if that process had ended since
    spool.write_text(spool.read_text().replace(this_process(), gone))
    away.unlink()
    away.mkdir()
    open_publish(tmp_path, uri, "f2").end("FINISHED")
    assert champion(uri) == "1"
    assert not list((tmp_path / ".brepfind/tracking").glob("*"))


def test_through_a_server_it_is_the_same(
    uri: str,
    copy: Callable[..., Path],
    publish: Publish,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with mlflow_server(uri, tmp_path / "served") as server:
        publish(copy([0.5] * 20), server.uri)
        better = publish(copy([0.9] * 20), server.uri)
        assert champion(server.uri) == "2"
        assert "against version 1" in better.data.tags[f"{TAG}champion"]
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
        loaded = mlflow.pyfunc.load_model(f"models:/{NAME}@{registry.ALIAS}")
        assert len(loaded.predict({"query": ["a plate"]})) == 5
