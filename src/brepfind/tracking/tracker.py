"""Tracker: what a stage tells, buffered, and kept in a spool file while the store is away."""

from __future__ import annotations

import getpass
import json
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from brepfind.log import get_logger
from brepfind.processes import owner_process, this_process
from brepfind.tracking.machine import Machine
from brepfind.tracking.spool import Spool
from brepfind.tracking.store import NOTE, TAG, Store, chunks, metric_name, one_line, shown_uri

Status = Literal["FINISHED", "FAILED", "KILLED"]

_FLUSH_EVERY_S = 2.0
_RETRY_AFTER_S = 15.0
_WATCHED = ("extract", "train")  # stages whose load of the machine is worth a curve
# MLflow's own limits.
_MAX_PARAM, _MAX_TAG, _BATCH = 6000, 8000, 1000

log = get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class State:
    """What a pipeline run stands for.

    Attributes:
        fingerprint: digest of the effective params and of the raw data.
        params: flat, ``train.lr`` to value.
        tags: facts beside the state, such as the git commit.
        datasets: the raw data, as :meth:`Tracker.inputs` takes it.
        owner: the command that the stages of this run belong to.
    """

    fingerprint: str
    params: Mapping[str, Any]
    tags: Mapping[str, str] = field(default_factory=dict)
    datasets: Sequence[Mapping[str, Any]] = ()
    owner: str = field(default_factory=owner_process)


def flat(values: Mapping[str, Any], prefix: str = "", dot: str = ".") -> dict[str, Any]:
    """Nested mappings as one, the keys joined: ``{"a": {"b": 1}}`` is ``{"a.b": 1}``."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{dot}{key}" if prefix else str(key)
        if isinstance(value, Mapping):
            result.update(flat(value, name, dot))
        else:
            result[name] = value
    return result


class Tracker:
    """The MLflow run of one stage; an :class:`brepfind.events.Events` listener.

    Args:
        home: the folder of locks and spool files, in the main checkout.
        uri: the tracking store.
        experiment: its experiment, made if it is missing.
        stage: name of the stage.
        state: what the pipeline run around it stands for.
        params: flat params of the stage's own run.
        artifacts: where a store without a server keeps artifacts.

    The load of the machine is recorded for stages that work long on all of it.
    """

    def __init__(
        self,
        *,
        home: Path,
        uri: str,
        experiment: str,
        stage: str,
        state: State,
        params: Mapping[str, Any],
        artifacts: Path,
    ) -> None:
        self.stage = stage
        self._key = uuid.uuid4().hex
        self._open = lambda: Store(home, uri, artifacts, keep=(experiment, state.fingerprint))
        self._store: Store | None = None
        self._spool = Spool(home / "tracking" / f"{self._key}.jsonl")
        self._pending: list[dict[str, Any]] = []
        self._points: list[tuple[str, float, int, int]] = []  # name, value, step, milliseconds
        self._counts: dict[str, int] = {}
        self._odd: set[str] = set()
        self._spooled = 0
        self._last_flush = 0.0
        self._not_before = 0.0
        self._machine: Machine | None = None
        self._start = self._add(
            "start",
            store=shown_uri(uri),
            experiment=experiment,
            stage=stage,
            fingerprint=state.fingerprint,
            owner=state.owner,
            process=this_process(),
            pipeline_params=_texts(state.params, _MAX_PARAM),
            params=_texts(params, _MAX_PARAM),
            tags=_texts({**_who(), **state.tags}, _MAX_TAG),
            datasets=[dict(one) for one in state.datasets],
        )
        if stage in _WATCHED:
            self._machine = Machine()
        self.flush(force=True)

    # What is told

    def point(self, name: str, value: float, step: int) -> None:
        """One point of a curve of the stage's run; NaN and infinity become a tag instead."""
        if math.isfinite(value):
            self._points.append((metric_name(name), float(value), step, _now()))
        elif name not in self._odd:
            self._odd.add(name)
            self.tags({f"{TAG}nonfinite.{metric_name(name)}": f"{value} at step {step}"})
        self.flush()

    def happened(self, what: str, facts: Mapping[str, Any]) -> None:
        """Counted as the series ``events/<what>``; the facts are in the stage's own evidence."""
        self._counts[what] = self._counts.get(what, 0) + 1
        self.point(f"events/{what}", self._counts[what], self._counts[what])

    def numbers(self, values: Mapping[str, Any], prefix: str, *, pipeline: bool = False) -> None:
        """The numbers of a nested mapping, named ``prefix/key/key``, on the stage's run or on
        the pipeline run; what is not a number is left to the JSON file it comes from.
        """
        points, odd = [], {}
        for name, value in flat(values, prefix, "/").items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if math.isfinite(value):
                points.append((metric_name(name), float(value), 0, _now()))
            else:
                odd[f"{TAG}nonfinite.{metric_name(name)}"] = str(value)
        self._add("points", points=points, pipeline=pipeline)
        if odd:
            self.tags(odd, pipeline=pipeline)

    def tags(self, tags: Mapping[str, str], *, pipeline: bool = False) -> None:
        """Set tags on the stage's run or on the pipeline run."""
        self._add("tags", tags=_texts(tags, _MAX_TAG), pipeline=pipeline)

    def describe(self, note: str) -> None:
        """Set the description of the pipeline run, in Markdown."""
        self.tags({NOTE: note}, pipeline=True)

    def artifact(self, path: Path, folder: str = "", *, pipeline: bool = False) -> None:
        """Keep a file, or all files of a folder, with the run."""
        self._add("artifact", path=str(path.resolve()), folder=folder, pipeline=pipeline)

    def inputs(self, datasets: Sequence[Mapping[str, Any]], *, pipeline: bool = False) -> None:
        """Data sets that went in: each ``name, digest, source, context`` and ``profile``, a mapping
        of plain numbers.
        """
        self._add("inputs", datasets=[dict(one) for one in datasets], pipeline=pipeline)

    def model(self, folder: Path, name: str, note: str, tags: Mapping[str, str]) -> None:
        """Keep the model with the pipeline run, register it, and settle who is the champion.

        Args:
            folder: what :func:`brepfind.tracking.package.write_model` wrote; kept until delivered.
            name: of the registered model.
            note: what the description of the pipeline run begins with.
            tags: for the registered version.
        """
        told = _texts(tags, _MAX_TAG)
        self._add(
            "model", path=str(folder.resolve()), name=name, note=note, tags=told, pipeline=True
        )

    def end(self, status: Status, reason: str = "") -> None:
        """End the stage's run. FAILED and KILLED end the pipeline run too, with the reason as a
        tag; only ``publish`` ends it well.
        """
        if self._machine is not None:
            self._machine.stop()
        self._add(
            "end",
            status=status,
            reason=reason[:_MAX_TAG],
            stage=self.stage,
            closes=self.stage == "publish" and status == "FINISHED",
        )
        self.flush(force=True)
        if self._spooled < len(self._pending):
            log.warning("MLflow is away and nothing could be kept: this run is not recorded")
        elif self._pending:
            log.warning(
                "MLflow is away; the record of this run is kept in %s and delivered by the next "
                "command",
                self._spool.path,
            )

    # How it gets there

    def flush(self, *, force: bool = False) -> None:
        """Deliver what is due; at most every two seconds unless forced. Never raises."""
        now = time.monotonic()
        if not force and now - self._last_flush < _FLUSH_EVERY_S:
            return
        self._last_flush = now
        self._take_points()
        if force or now >= self._not_before:
            try:
                self._deliver()
                return
            # Whatever a store, a driver or a network can raise: tracking never stops the work.
            except Exception as error:
                if not self._spooled:
                    log.warning("MLflow cannot be reached, going on without (%s)", one_line(error))
                self._not_before = now + _RETRY_AFTER_S
        self._keep()

    def _take_points(self) -> None:
        points, self._points = self._points, []
        points += self._machine.taken() if self._machine is not None else ()
        for some in chunks(points, _BATCH):
            self._add("points", points=some, pipeline=False)

    def _add(self, kind: str, **content: Any) -> dict[str, Any]:
        self._take_points()  # what was told first is delivered first
        op = {"op": kind, "key": self._key, "time": _now(), **content}
        self._pending.append(op)
        return op

    def _deliver(self) -> None:
        if self._store is None:
            self._store = self._open()
        while self._pending:
            self._store.apply(self._pending[0])
            del self._pending[0]
            self._spooled = max(0, self._spooled - 1)
        if not self._spool.is_empty:
            self._spool.remove()
            log.info("MLflow is back; everything was delivered")
        self._spooled = 0

    def _keep(self) -> None:
        """Write what is pending and not yet on the disk to the spool file."""
        new = self._pending[self._spooled :]
        if not new:
            return
        if self._spool.is_empty and new[0] is not self._start:
            new = [self._start, *new]  # who the rest is about
        try:
            self._spool.append(new)
            self._spooled = len(self._pending)
        except OSError as error:
            log.warning("%s: cannot be written (%s)", self._spool.path, error.strerror)


def _who() -> dict[str, str]:
    """What MLflow's page calls user and source."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a number that no user list knows, as in containers
        user = ""
    return {"mlflow.user": user or "unknown", "mlflow.source.type": "LOCAL"}


def _texts(values: Mapping[str, Any], limit: int) -> dict[str, str]:
    """Values as MLflow keeps them: text, a number as JSON writes it, cut visibly at the limit."""
    texts = {}
    for key, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        texts[metric_name(key)] = text if len(text) <= limit else text[: limit - 3] + "..."
    return texts


def _now() -> int:
    """Milliseconds since the epoch, as MLflow counts."""
    return int(time.time() * 1000)
