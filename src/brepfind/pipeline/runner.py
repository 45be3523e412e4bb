"""run_stage: what is the same for every stage, whatever it does.

It reads the params, finds the stage's place in MLflow, runs the function, and sees to it that a
stage that stops says why: one sentence on the terminal, a report in ``reports/``, the evidence in
``.brepfind/postmortem/`` of the main checkout, the reason as a tag on the MLflow runs, and only
then the exit code. (DVC turns every code but 0 into 255: a code means something only here.)
"""

from __future__ import annotations

import math
import os
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import brepfind
from brepfind.errors import CheckFailed, Interrupted, UserError
from brepfind.files import write_json, write_text
from brepfind.log import console, get_logger, setup_logging
from brepfind.params import check_section, read_params
from brepfind.pipeline import page, paths
from brepfind.pipeline.config import RuntimeConfig
from brepfind.pipeline.context import StageContext, StageFunction
from brepfind.pipeline.datasets import raw_data, split_data
from brepfind.pipeline.failure import Failure, explain, report
from brepfind.pipeline.fingerprint import effective, git_tags, state_files, state_fingerprint
from brepfind.processes import is_alive, owner_process, this_process
from brepfind.tracking.store import default_uri
from brepfind.tracking.tracker import State, Tracker, flat

log = get_logger(__name__)

_WATCH_EVERY_S = 2.0
# Of one file of evidence; a batch of large parts or a dump can be gigabytes.
_MAX_SENT_BYTES = 200 * 2**20
# Hundreds of numbers that a page of MLflow cannot show; the JSON file, an artifact, has them.
_BREAKDOWNS = frozenset(
    {"by_family", "by_level", "own_part_only", "optimistic", "pessimistic", "step0"}
)


def run_stage(name: str, load: Callable[[], StageFunction], project: Path | None = None) -> int:
    """Run one stage and return the exit code of its script.

    Args:
        name: the stage; its section of params.yaml and its metrics file have the same name.
        load: imports the stage's function. It is called late, so that what cannot even be
            imported is reported like any other failure.
        project: the project's root; the current folder by default.
    """
    setup_logging()
    attempt = _Attempt(name, (project or Path.cwd()).resolve())
    try:
        with _stop_signals() as told, _owner_watched(told):
            context = attempt.open()
            attempt.passed(load()(context), context.cost)
    # Whatever ends a stage is reported: SystemExit of a library and KeyboardInterrupt, too.
    except BaseException as error:
        with _signals_ignored():
            return attempt.failed(explain(name, error))
    return 0


class _Attempt:
    """One attempt at a stage, from the reading of its params to its exit code."""

    def __init__(self, name: str, project: Path) -> None:
        self.name = name
        self.project = project
        # Under `dvc exp run --temp` and `--queue` the project is a copy that goes away, and
        # DVC_ROOT names the checkout that stays.
        self.main = Path(os.environ.get("DVC_ROOT") or project).resolve()
        self.home = self.main / ".brepfind"
        self.began = datetime.now(UTC)
        self.clock = time.monotonic()
        self.evidence = (
            self.home / "postmortem" / f"{self.began:%Y%m%dT%H%M%S.%f}-{name}-{os.getpid()}"
        )
        self.fingerprint = ""
        self.tracker: Tracker | None = None

    def open(self) -> StageContext:
        """Everything a stage needs."""
        # DVC has done so already; a stage run by hand must not leave an older verdict behind.
        for old in (paths.metrics_file(self.name), paths.cost_file(self.name)):
            (self.project / old).unlink(missing_ok=True)
        page.began(self.project, self.name)
        params = read_params(self.project / paths.PARAMS)
        self.tracker = self._track(params)
        _require_own_source(self.project)
        runtime = check_section(params.get("runtime"), "runtime", RuntimeConfig)
        # Read by OpenMP when the first heavy library is imported, which has not happened yet.
        os.environ.setdefault("OMP_NUM_THREADS", str(runtime.threads_here()))
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        self.evidence.mkdir(parents=True)
        self.tracker.inputs(split_data(self.project, self.name), pipeline=self.name == "publish")
        return StageContext(
            name=self.name,
            project=self.project,
            home=self.home,
            params=params,
            fingerprint=self.fingerprint,
            evidence=self.evidence,
            tracker=self.tracker,
            runtime=runtime,
        )

    def _track(self, params: Mapping[str, Any]) -> Tracker:
        files = state_files(params, self.project, self.home)
        self.fingerprint = state_fingerprint(params, files)
        runtime = params.get("runtime") if isinstance(params.get("runtime"), Mapping) else {}
        assert isinstance(runtime, Mapping)
        sections = {name: params.get(name) or {} for name in (self.name, "runtime")}
        return Tracker(
            home=self.home,
            uri=os.environ.get("MLFLOW_TRACKING_URI") or default_uri(self.main),
            experiment=str(runtime.get("experiment") or "brepfind"),
            stage=self.name,
            state=State(
                fingerprint=self.fingerprint,
                params=flat(effective(params)),
                tags=git_tags(self.project),
                datasets=raw_data(params, files),
            ),
            params=flat(sections),
            artifacts=self.main / "mlartifacts",
        )

    def passed(self, metrics: Mapping[str, Any], took: Mapping[str, Any]) -> None:
        """Write the metrics, then what they took, then close the record.

        Raises:
            CheckFailed: if a number is not finite: DVC would take it and go on.
        """
        assert self.tracker is not None
        odd = [name for name, value in flat(metrics).items() if not _is_finite(value)]
        if odd:
            raise CheckFailed(f"{self.name}: not finite in its metrics: {', '.join(odd)}")
        file = self.project / paths.metrics_file(self.name)
        write_json(file, metrics)
        cost = {
            **took,
            "seconds": round(time.monotonic() - self.clock, 3),
            "peak_memory_mb": _peak_mb(),
        }
        write_json(self.project / paths.cost_file(self.name), cost)
        # Those before it passed too, or it could not have run; DVC may have taken them from its
        # cache, where nobody clears their reports.
        for stage in paths.STAGES[: paths.STAGES.index(self.name) + 1]:
            (self.project / paths.failure_report(stage)).unlink(missing_ok=True)
        self.tracker.numbers(_without(metrics, _BREAKDOWNS), prefix(self.name))
        self.tracker.numbers(cost, f"cost/{self.name}")
        self.tracker.artifact(file, "metrics")
        self.tracker.end("FINISHED")
        shutil.rmtree(self.evidence, ignore_errors=True)

    def failed(self, failure: Failure) -> int:
        """Say why, keep the evidence, and return the exit code."""
        where = paths.failure_report(self.name)
        try:
            self._keep_evidence(failure, self.project / where)
            said = f"Evidence: {where} and {_short(self.evidence)}"
        # A full disk, or whatever else is wrong with the evidence, must not hide the reason.
        except Exception as error:
            said = f"The evidence could not be written: {error}"
        if self.tracker is not None:
            self._send_evidence(self.tracker)
            self.tracker.end("KILLED" if failure.status == "KILLED" else "FAILED", failure.reason)
        sentence = f"STOPPED at {self.name}: {failure.reason.rstrip('.')}. {said}"
        console.print(sentence, style="bold red", markup=False, highlight=False, soft_wrap=True)
        return failure.exit_code

    def _send_evidence(self, tracker: Tracker) -> None:
        """The evidence to MLflow, less what is too large to send; that stays where it is."""
        for file in sorted(self.evidence.rglob("*")):
            folder = Path("postmortem") / file.relative_to(self.evidence).parent
            if not file.is_file():
                continue
            if (size := file.stat().st_size) > _MAX_SENT_BYTES:
                name = file.relative_to(self.evidence).as_posix()
                tracker.tags({f"brepfind.not_sent.{name}": f"{size} bytes, kept in {file}"})
            else:
                tracker.artifact(file, folder.as_posix())
        for name in ("report.md", paths.PAGE.name):
            tracker.artifact(self.evidence / name, "postmortem", pipeline=True)

    def _keep_evidence(self, failure: Failure, where: Path) -> None:
        self.evidence.mkdir(parents=True, exist_ok=True)
        if failure.evidence is not None and failure.evidence.is_file():
            with suppress(shutil.SameFileError):
                shutil.copy2(failure.evidence, self.evidence)
        with suppress(OSError):  # a missing params.yaml may be the very reason
            shutil.copy2(self.project / paths.PARAMS, self.evidence)
        write_json(self.evidence / "findings.json", [item.as_json() for item in failure.findings])
        facts = {
            "time (UTC)": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}",
            "evidence": str(self.evidence),
            "state": self.fingerprint[:12] or "unknown",
            "commit": git_tags(self.project).get("mlflow.source.git.commit", "none"),
            "command": " ".join(sys.argv),
        }
        text = report(failure, facts)
        write_text(self.evidence / "report.md", text)
        write_text(where, text)
        shown = page.stopped(self.project, self.fingerprint, failure, self.evidence)
        shutil.copy2(shown, self.evidence)


def _is_finite(value: object) -> bool:
    """False where NaN or infinity is a value, or stands in a list of values."""
    if isinstance(value, float):
        return math.isfinite(value)
    return all(map(_is_finite, value)) if isinstance(value, list | tuple) else True


def _without(metrics: Mapping[str, Any], keys: Container[str]) -> dict[str, Any]:
    return {
        name: _without(value, keys) if isinstance(value, Mapping) else value
        for name, value in metrics.items()
        if name not in keys
    }


def prefix(stage: str) -> str:
    """What the names of a stage's numbers begin with in MLflow."""
    return "test" if stage == "evaluate" else stage


def _require_own_source(project: Path) -> None:
    used, own = Path(brepfind.__file__).resolve().parent, (project / "src/brepfind").resolve()
    if used != own:
        raise UserError(
            f"the code in use is {used}, not {own}; start stages with make or dvc, or set "
            "PYTHONPATH=src"
        )


def _peak_mb() -> float:
    """Peak memory of this process or of its largest child, whichever is more."""
    peaks = [
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    per_mb = 2**20 if sys.platform == "darwin" else 2**10  # macOS counts bytes, Linux kB
    return round(max(peaks) / per_mb, 1)


def _short(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Turn SIGTERM, SIGINT and SIGHUP into :class:`Interrupted`; the event is set once one came."""
    told = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        told.set()
        raise Interrupted(f"stopped from outside ({signal.Signals(number).name})")

    before = {number: signal.signal(number, stop) for number in _STOPS}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _signals_ignored() -> Iterator[None]:
    """A second Ctrl-C must not cost the evidence."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextmanager
def _owner_watched(told: threading.Event) -> Iterator[None]:
    """Stop this stage when the command it belongs to is gone: a killed ``dvc repro`` would leave
    it working on outputs that the next one deletes.

    One that was ``told`` to stop is not told again: a job scheduler's signal reaches the command
    and the stage at once, and a second one would mean that training may not save its state.
    """
    owner, done = owner_process(), threading.Event()

    def watch() -> None:
        while not done.wait(_WATCH_EVERY_S):
            if is_alive(owner) is False:
                if told.is_set():
                    return
                log.warning("the command that started this stage is gone")
                os.kill(os.getpid(), signal.SIGTERM)
                return

    if owner == this_process():
        yield
        return
    threading.Thread(target=watch, name="owner-watch", daemon=True).start()
    try:
        yield
    finally:
        done.set()
