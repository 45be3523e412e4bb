"""Store: the MLflow store itself. Every method may raise what the store raises."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

# Read by MLflow when it is imported, so they stand before the import. A dead server may cost
# seconds, not the four minutes of the default.
for _name, _value in {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}.items():
    os.environ.setdefault(_name, _value)

import logging  # noqa: E402

from mlflow.entities import Metric, Param, Run, RunTag  # noqa: E402
from mlflow.exceptions import MlflowException  # noqa: E402
from mlflow.tracking import MlflowClient  # noqa: E402

from brepfind.files import locked  # noqa: E402
from brepfind.log import get_logger  # noqa: E402
from brepfind.processes import is_alive  # noqa: E402

# The migrations of a fresh database tell things that nobody asked.
for _noisy in ("alembic", "mlflow.store.db.utils"):
    logging.getLogger(_noisy).setLevel(logging.WARNING)

TAG = "brepfind."
_PARENT = "mlflow.parentRunId"
_NOTE = "mlflow.note.content"
_BATCH, _SMALL_BATCH = 1000, 100  # metrics; params or tags
# The store understood and said no: asking again gives the same answer.
_REFUSED = {
    "INVALID_PARAMETER_VALUE",
    "BAD_REQUEST",
    "INVALID_STATE",
    "RESOURCE_DOES_NOT_EXIST",
    "RESOURCE_ALREADY_EXISTS",
}

log = get_logger(__name__)


def default_uri(main: Path) -> str:
    """The store used where ``MLFLOW_TRACKING_URI`` names none: a SQLite file of the checkout.

    Absolute, because DVC runs experiments in copies that are deleted afterwards.
    """
    return f"sqlite:///{(main / 'mlflow.db').resolve()}"


def metric_name(name: str) -> str:
    """A name that MLflow takes; ``R@1`` becomes ``R_at_1``."""
    return re.sub(r"[^\w\-. :/]", "_", name.replace("@", "_at_"))


class Store:
    """A tracking store that answers; every method may raise what the store raises."""

    def __init__(self, home: Path, uri: str, experiment: str, artifacts: Path, keep: str) -> None:
        self._lock = home / "locks" / "mlflow.lock"
        self._runs: dict[str, tuple[str, str]] = {}
        # Two processes on a fresh database collide in its migrations, hence the lock; the
        # client already opens the database.
        with locked(self._lock):
            self._client = MlflowClient(uri)
            self._experiment = self._find_experiment(uri, experiment, artifacts)
            self._replay(home / "tracking")
            self._sweep(keep)

    def apply(self, op: dict[str, Any]) -> None:
        """Do what ``op`` says. What the store refuses for good is said and left out."""
        # Two stages that look for their pipeline run at once would make two.
        with locked(self._lock) if op["op"] == "start" else nullcontext():
            self._apply(op)

    def _apply(self, op: dict[str, Any]) -> None:
        try:
            if op["op"] == "start":
                self._start(op)
            else:
                stage, pipeline = self._runs[op["key"]]
                getattr(self, f"_{op['op']}")(op, pipeline if op.get("pipeline") else stage)
        except MlflowException as error:
            if error.error_code not in _REFUSED:
                raise
            log.warning("MLflow refused %r: %s", op["op"], one_line(error))

    def _find_experiment(self, uri: str, name: str, artifacts: Path) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is None:
            # Absolute, because an experiment of DVC runs in a copy that is deleted afterwards.
            # A server has its own place for artifacts.
            local = None if uri.startswith("http") else artifacts.resolve().as_uri()
            return self._client.create_experiment(name, artifact_location=local)
        return found.experiment_id

    def _search(self, query: str) -> list[Run]:
        return list(
            self._client.search_runs(
                [self._experiment], query, order_by=["attributes.start_time DESC"]
            )
        )

    def _replay(self, folder: Path) -> None:
        """Deliver what earlier commands had to leave behind."""
        for spool in sorted(folder.glob("*.jsonl")):
            try:
                ops = _read_spool(spool)
            except ValueError:
                log.warning("%s is damaged; what it records is not delivered", spool)
                spool.rename(spool.with_suffix(".damaged"))
                continue
            if ops and ops[0]["op"] == "start" and is_alive(ops[0]["process"]) is not False:
                continue  # still running, or another machine's
            for op in ops:
                self._apply(op)  # the lock is held
            spool.unlink()
            shutil.rmtree(spool.with_suffix(""), ignore_errors=True)
            log.info("MLflow: delivered the record of an earlier run (%s)", spool.name)

    def _sweep(self, keep: str) -> None:
        """Mark runs whose process is gone as KILLED."""
        running = self._search(f"attributes.status = 'RUNNING' AND tags.`{TAG}kind` != ''")
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
        self._client.log_batch(run.info.run_id, tags=_tags({f"{TAG}reason": reason, _NOTE: reason}))
        self._client.set_terminated(run.info.run_id, "KILLED")

    def _pipeline(self, op: dict[str, Any]) -> str:
        """The open pipeline run of this state, or a new attempt; the lock is held."""
        same = self._search(
            f"tags.`{TAG}kind` = 'pipeline' AND tags.`{TAG}fingerprint` = '{op['fingerprint']}'"
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
            f"{TAG}kind": "pipeline",
            f"{TAG}fingerprint": op["fingerprint"],
            f"{TAG}attempt": str(attempt),
            f"{TAG}process": op["owner"],
        }
        name = op["tags"].get(f"{TAG}experiment_name") or f"state {op['fingerprint'][:8]}"
        return self._create(op, tags, f"{name} #{attempt}", op["pipeline_params"])

    def _start(self, op: dict[str, Any]) -> None:
        known = self._search(f"tags.`{TAG}key` = '{op['key']}'")
        if known:  # it began while the store was there, or a replay was itself cut short
            self._runs[op["key"]] = known[0].info.run_id, known[0].data.tags[_PARENT]
            return
        pipeline = self._pipeline(op)
        tags = {
            **op["tags"],
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
            self._experiment, start_time=op["time"], tags=tags, run_name=name
        )
        for some in chunks(list(params.items()), _SMALL_BATCH):
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
            reason = {f"{TAG}reason": op["reason"], _NOTE: op["reason"]}
            self._client.log_batch(run_id, tags=_tags(reason))
            self._client.log_batch(
                pipeline, tags=_tags({**reason, f"{TAG}stopped_at": op["stage"]})
            )
        ends_it = status != "FINISHED" or op["closes"]
        # FAILED stays FAILED, whatever other stages say afterwards.
        if ends_it and self._client.get_run(pipeline).info.status != "FAILED":
            self._client.set_terminated(pipeline, status, op["time"])
        self._client.set_terminated(run_id, status, op["time"])


def _tags(tags: Mapping[str, str]) -> list[RunTag]:
    return [RunTag(key, value) for key, value in tags.items()]


def chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _read_spool(path: Path) -> list[dict[str, Any]]:
    lines: Iterable[str] = path.read_text(encoding="utf-8").splitlines(keepends=True)
    # A last line without its end was cut by a crash.
    return [json.loads(line) for line in lines if line.endswith("\n")]


def one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
