"""Store: the MLflow store itself. Every method may raise what the store raises."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.store.db import utils as mlflow_db
from mlflow.tracking import MlflowClient

from brepfind.files import locked
from brepfind.log import get_logger
from brepfind.processes import is_alive
from brepfind.tracking.registry import register
from brepfind.tracking.spool import Spool

# The migrations of a fresh database, and the writing of a model, tell things that nobody asked.
for _noisy in ("alembic", "mlflow.store.db.utils", "mlflow.pyfunc"):
    logging.getLogger(_noisy).setLevel(logging.WARNING)

# MLflow tries ten times, 102 s in all, to open a database that cannot be opened, and has no
# setting for it. Here the record waits in a file instead.
mlflow_db.MAX_RETRY_COUNT = 3

TAG = "brepfind."
_PARENT = "mlflow.parentRunId"
NOTE = "mlflow.note.content"
_BATCH, _SMALL_BATCH = 1000, 100  # metrics; params or tags
# The store understood and said no: asking again gives the same answer.
_REFUSED = {
    "INVALID_PARAMETER_VALUE",
    "BAD_REQUEST",
    "INVALID_STATE",
    "RESOURCE_DOES_NOT_EXIST",
    "RESOURCE_ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "FEATURE_DISABLED",  # a server without a registry
    "ENDPOINT_NOT_FOUND",
    "NOT_IMPLEMENTED",
}

log = get_logger(__name__)


def default_uri(main: Path) -> str:
    """The store used where ``MLFLOW_TRACKING_URI`` names none: a SQLite file of the checkout.

    Absolute, because DVC runs experiments in copies that are deleted afterwards.
    """
    return f"sqlite:///{(main / 'mlflow.db').resolve()}"


def shown_uri(uri: str) -> str:
    """The store's address without the name and password that may stand in it."""
    return re.sub(r"(?<=://)[^/]*@", "", uri)


def metric_name(name: str) -> str:
    """A name that MLflow takes; ``R@1`` becomes ``R_at_1``."""
    return re.sub(r"[^\w\-. :/]", "_", name.replace("@", "_at_"))


class Store:
    """A tracking store that answers; every method may raise what the store raises.

    Args:
        home: the folder of locks and spool files, in the main checkout.
        uri: the store.
        artifacts: where a store without a server keeps artifacts.
        keep: experiment and fingerprint of the state at work, whose open run is gone on with.
    """

    def __init__(self, home: Path, uri: str, artifacts: Path, keep: tuple[str, str]) -> None:
        self._lock = home / "locks" / "mlflow.lock"
        self._uri = shown_uri(uri)
        # A server has its own place for artifacts. Absolute, because an experiment of DVC runs
        # in a copy that is deleted afterwards.
        self._artifacts = None if uri.startswith("http") else artifacts.resolve().as_uri()
        self._experiments: dict[str, str] = {}
        self._runs: dict[str, tuple[str, str]] = {}
        self._refused: set[str] = set()
        # Two processes on a fresh database collide in its migrations, hence the lock; the
        # client already opens the database.
        with locked(self._lock):
            self._client = MlflowClient(uri)
            self._replay(home / "tracking")
            self._sweep(*keep)

    def apply(self, op: dict[str, Any]) -> None:
        """Do what ``op`` says. What the store refuses for good is said and left out."""
        # Two stages that look for their pipeline run at once would make two; two that look for the
        # champion would both beat the old one.
        with locked(self._lock) if op["op"] in ("start", "model") else nullcontext():
            self._apply(op)

    def _apply(self, op: dict[str, Any]) -> None:
        key = op["key"]
        if key in self._refused:
            return  # said when its start was
        with _refusal_said(op["op"]):
            if op["op"] != "start":
                stage, pipeline = self._runs[key]
                getattr(self, f"_{op['op']}")(op, pipeline if op.get("pipeline") else stage)
                return
            self._start(op)
        if key not in self._runs:
            self._refused.add(key)
            log.warning("the %s run is not recorded in MLflow", op["stage"])

    def _experiment(self, name: str) -> str:
        """The experiment of this name, made if it is missing."""
        if name not in self._experiments:
            found = self._client.get_experiment_by_name(name)
            self._experiments[name] = (
                self._client.create_experiment(name, self._artifacts)
                if found is None
                else found.experiment_id
            )
        return self._experiments[name]

    def _search(self, experiment: str, query: str) -> list[Run]:
        order = ["attributes.start_time DESC"]
        return list(self._client.search_runs([self._experiment(experiment)], query, order_by=order))

    def _replay(self, folder: Path) -> None:
        """Deliver what earlier commands had to leave behind."""
        for path in sorted(folder.glob("*.jsonl")):
            spool = Spool(path)
            try:
                ops, cut = spool.read()
                start = ops[0] if ops else {"op": "nothing"}
                if start["op"] != "start":
                    raise ValueError("it does not say whose record it is")
                for_this = start["store"] == self._uri
                running = is_alive(start["process"]) is not False  # or another machine's
            except (ValueError, KeyError) as error:
                kept = spool.set_aside(".damaged")
                log.warning("%s is damaged (%s); what it records is not delivered", kept, error)
                continue
            if running:
                continue
            if not for_this:
                log.warning("%s waits for the MLflow store %s", path, start["store"])
                continue
            for op in ops:
                self._apply(op)  # the lock is held
            if start["key"] in self._refused:
                log.warning("its record is kept in %s", spool.set_aside(".refused"))
                continue
            spool.remove()
            end = ", less a last line that a crash had cut" if cut else ""
            log.info("MLflow: delivered the record of an earlier run (%s)%s", path.name, end)

    def _sweep(self, experiment: str, keep: str) -> None:
        """Mark runs whose process is gone as KILLED."""
        running = self._search(
            experiment, f"attributes.status = 'RUNNING' AND tags.`{TAG}kind` != ''"
        )
        hit: set[str] = set()
        for run in running:
            tags = run.data.tags
            if tags[f"{TAG}kind"] == "stage" and is_alive(tags[f"{TAG}process"]) is False:
                self._kill(run, f"its process ended without a word in {tags[f'{TAG}stage']}")
                hit.add(tags[_PARENT])
        for run in running:
            tags = run.data.tags
            if tags[f"{TAG}kind"] != "pipeline":
                continue
            if run.info.run_id in hit:
                self._kill(run, "the process of one of its stages ended without a word")
            # One of the same state is gone on with, see _pipeline.
            elif tags[f"{TAG}fingerprint"] != keep and is_alive(tags[f"{TAG}process"]) is False:
                self._kill(run, "its command ended before publish")

    def _kill(self, run: Run, reason: str) -> None:
        self._client.log_batch(run.info.run_id, tags=_tags({f"{TAG}reason": reason, NOTE: reason}))
        self._client.set_terminated(run.info.run_id, "KILLED")

    def _pipeline(self, op: dict[str, Any]) -> str:
        """The open pipeline run of this state, or a new attempt; the lock is held."""
        same = self._search(
            op["experiment"],
            f"tags.`{TAG}kind` = 'pipeline' AND tags.`{TAG}fingerprint` = '{op['fingerprint']}'",
        )
        for run in same:
            if run.data.tags[f"{TAG}process"] == op["owner"]:
                return run.info.run_id
        if same and same[0].info.status == "RUNNING":
            run_id = same[0].info.run_id
            if is_alive(same[0].data.tags[f"{TAG}process"]) is False:
                self._client.log_batch(run_id, tags=_tags({f"{TAG}process": op["owner"]}))
                return run_id
        attempt = len(same) + 1
        tags = {
            **op["tags"],
            "mlflow.source.name": "dvc.yaml",
            f"{TAG}kind": "pipeline",
            f"{TAG}fingerprint": op["fingerprint"],
            f"{TAG}attempt": str(attempt),
            f"{TAG}process": op["owner"],
        }
        name = op["tags"].get(f"{TAG}experiment_name") or f"state {op['fingerprint'][:8]}"
        run_id = self._create(op, tags, f"{name} #{attempt}", op["pipeline_params"])
        self._inputs({"datasets": op.get("datasets", [])}, run_id)
        return run_id

    def _start(self, op: dict[str, Any]) -> None:
        known = self._search(op["experiment"], f"tags.`{TAG}key` = '{op['key']}'")
        if known:  # it began while the store was there, or a replay was itself cut short
            self._runs[op["key"]] = known[0].info.run_id, known[0].data.tags[_PARENT]
            return
        pipeline = self._pipeline(op)
        tags = {
            **op["tags"],
            "mlflow.source.name": f"stages/{op['stage']}.py",
            f"{TAG}kind": "stage",
            f"{TAG}stage": op["stage"],
            f"{TAG}key": op["key"],
            f"{TAG}fingerprint": op["fingerprint"],
            f"{TAG}process": op["process"],
            _PARENT: pipeline,
        }
        stage = self._create(op, tags, op["stage"], op["params"])
        self._runs[op["key"]] = stage, pipeline

    def _create(
        self, op: dict[str, Any], tags: dict[str, str], name: str, params: dict[str, str]
    ) -> str:
        run = self._client.create_run(
            self._experiment(op["experiment"]),
            start_time=op["time"],
            tags=tags,
            run_name=name,
        )
        for some in chunks(list(params.items()), _SMALL_BATCH):
            with _refusal_said("params"):  # the run is there and is worth having without
                self._client.log_batch(run.info.run_id, params=[Param(k, v) for k, v in some])
        return run.info.run_id

    def _points(self, op: dict[str, Any], run_id: str) -> None:
        for some in chunks(op["points"], _BATCH):
            self._client.log_batch(
                run_id, metrics=[Metric(name, value, at, step) for name, value, step, at in some]
            )

    def _tags(self, op: dict[str, Any], run_id: str) -> None:
        for some in chunks(list(op["tags"].items()), _SMALL_BATCH):
            self._client.log_batch(run_id, tags=_tags(dict(some)))

    def _inputs(self, op: dict[str, Any], run_id: str) -> None:
        """Data sets, for MLflow's column of that name."""
        inputs = [
            DatasetInput(
                Dataset(
                    name=one["name"],
                    digest=one["digest"],
                    source_type="local",
                    source=json.dumps({"uri": one["source"]}),
                    profile=json.dumps(one["profile"]),
                ),
                [InputTag("mlflow.data.context", one["context"])],
            )
            for one in op["datasets"]
        ]
        if inputs:
            self._client.log_inputs(run_id, inputs)

    def _model(self, op: dict[str, Any], run_id: str) -> None:
        folder = Path(op["path"])
        if not folder.is_dir():
            log.warning("%s is gone and was not registered in MLflow", folder)
            return
        version, decision = register(self._client, run_id, folder, op["name"], op["tags"])
        said = f"Model {op['name']}, version {version.version}: {decision.sentence}."
        tags = {
            f"{TAG}model_version": str(version.version),
            f"{TAG}champion": decision.sentence,
            NOTE: f"{op['note']}\n\n{said}",
        }
        self._client.log_batch(run_id, tags=_tags(tags))

    def _artifact(self, op: dict[str, Any], run_id: str) -> None:
        path = Path(op["path"])
        if path.is_dir():
            self._client.log_artifacts(run_id, str(path), op["folder"] or None)
        elif path.exists():
            self._client.log_artifact(run_id, str(path), op["folder"] or None)
        else:
            log.warning("%s is gone and was not kept with the MLflow run", path)

    def _end(self, op: dict[str, Any], run_id: str) -> None:
        pipeline = self._runs[op["key"]][1]
        status = op["status"]
        if status != "FINISHED":
            reason = {f"{TAG}reason": op["reason"], f"{TAG}stopped_at": op["stage"]}
            where = f"**Stopped at {op['stage']}**: {op['reason']}"
            note = {NOTE: f"{where}\n\nThe evidence is among the artifacts, in `postmortem`."}
            for one in (run_id, pipeline):
                self._client.log_batch(one, tags=_tags(reason | note))
        ends_it = status != "FINISHED" or op["closes"]
        # FAILED stays FAILED, whatever other stages say afterwards.
        if ends_it and self._client.get_run(pipeline).info.status != "FAILED":
            self._client.set_terminated(pipeline, status, op["time"])
        self._client.set_terminated(run_id, status, op["time"])


@contextmanager
def _refusal_said(what: str) -> Iterator[None]:
    """Say what the store refuses for good and go on; anything else is raised."""
    try:
        yield
    except MlflowException as error:
        if error.error_code not in _REFUSED:
            raise
        log.warning("MLflow refused %r: %s", what, one_line(error))


def _tags(tags: Mapping[str, str]) -> list[RunTag]:
    return [RunTag(key, value) for key, value in tags.items()]


def chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
