"""The same work on a Dask cluster: each thread of a Dask worker keeps one isolated process.

Limits, second attempts and reasons are those of :mod:`brepfind.cad.isolation`: a bad file ends the
process below the Dask worker, not the worker. A Dask worker that ends takes nothing with it: the
scheduler gives its files to others.

What the cluster needs: workers that may have children (``distributed.worker.daemon: false``), that
see the files under the same paths, and that have the same brepfind.
"""

from __future__ import annotations

import multiprocessing
import threading
import uuid
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from brepfind.cad.extract import ExtractConfig
from brepfind.cad.isolation import RENEW_AFTER, Attempt, File, Work, Worker
from brepfind.cad.pool import Outcome, twice
from brepfind.cad.version import extractor_version
from brepfind.errors import InputError, RejectedPart, VersionMismatch

try:
    from distributed import Client, Future, KilledWorker, as_completed
except ImportError as error:
    raise InputError(
        f"extract.cluster needs Dask ({error}): install brepfind[cluster], or set it to local"
    ) from None

T = TypeVar("T")

_CONNECT_S = 10.0
_WORKERS_S = 60.0  # until the first worker must be there


@dataclass(frozen=True, slots=True)
class _Job(Generic[T]):
    """What all tasks of one call have in common.

    Attributes:
        token: names the processes that were started for it.
        version: of the extractor on the machine that asks.
    """

    token: str
    work: Work[T]
    config: ExtractConfig
    version: str


def work_on_cluster(
    files: Sequence[File], work: Work[T], config: ExtractConfig
) -> Generator[Outcome[T], None, None]:
    """Do ``work`` on each file on the cluster at ``config.cluster``.

    Raises:
        InputError: if its scheduler does not answer, is lost, or its workers cannot be used.
        VersionMismatch: if a worker has another brepfind.
    """
    job = _Job(uuid.uuid4().hex, work, config, extractor_version())
    with _connected(config.cluster) as client:

        def one_round(some: Sequence[File], alone: bool) -> Iterator[tuple[str, Attempt[T]]]:
            return _attempts(client, some, job, alone)

        try:
            yield from twice(files, one_round)
        finally:
            # A scheduler that is lost at this moment must not hide why the loop ended.
            with suppress(OSError):
                if client.status == "running":
                    client.run(_stop_processes, job.token, on_error="ignore")


def _connected(address: str) -> Client:
    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"extract.cluster: no Dask scheduler answers at {address} "
            f"({type(error).__name__}: {' '.join(str(error).split())[:200]}); "
            "start it, mend the address, or set it to local"
        ) from None
    try:
        client.wait_for_workers(1, timeout=_WORKERS_S)
    except TimeoutError:
        client.close()
        raise InputError(
            f"extract.cluster: the scheduler at {address} has had no worker for {_WORKERS_S:g} s; "
            "start one with `DASK_DISTRIBUTED__WORKER__DAEMON=False dask worker ADDRESS`"
        ) from None
    return client


def _attempts(
    client: Client, files: Sequence[File], job: _Job[T], alone: bool
) -> Iterator[tuple[str, Attempt[T]]]:
    """One attempt at each file, by key, as they are completed."""
    names: dict[Future, str] = {}

    def submit(file: File) -> Future:
        key, path = file
        future = client.submit(_task, job, path.absolute(), path.exists(), alone, pure=False)
        names[future] = key
        return future

    waiting = iter(files)
    # Enough that no thread waits; not so many that results pile up here.
    at_once = 1 if alone else 4 * max(1, sum(client.nthreads().values()))
    flow = as_completed([submit(file) for file in islice(waiting, at_once)], loop=client.loop)
    for future in flow:
        # The next before the caller is busy with the last one's arrays.
        flow.update([submit(file) for file in islice(waiting, 1)])
        yield names.pop(future), _result(future, job.config)
        future.release()


def _result(future: Future, config: ExtractConfig) -> Attempt[Any]:
    """What came of a task; one that was lost with the worker that held it is done again."""
    try:
        result: Attempt[Any] = future.result()
    except KilledWorker:  # it was given to several, and all of them ended
        return Attempt([], RejectedPart("crash", "its Dask workers ended"), 0.0, sure=False)
    except CancelledError:
        raise InputError(
            f"extract.cluster: the scheduler at {config.cluster} was lost; "
            "run again when it is back"
        ) from None
    return result


# On a Dask worker --------------------------------------------------------------------------------

_mine = threading.local()
_by_job: dict[str, list[Worker[Any]]] = {}


def _task(job: _Job[T], path: Path, seen: bool, alone: bool) -> Attempt[T]:
    """One attempt at a file; ``seen`` says that it exists for the machine that asks."""
    if multiprocessing.current_process().daemon:
        raise InputError(
            "extract.cluster: its Dask workers are daemons, which may not have children; start "
            "them with DASK_DISTRIBUTED__WORKER__DAEMON=False"
        )
    if extractor_version() != job.version:
        raise VersionMismatch(
            "extract.cluster: a Dask worker has another version of brepfind, Open CASCADE or NumPy "
            "than this machine; results would depend on where a file lands"
        )
    if seen and not path.exists():
        raise InputError(
            f"extract.cluster: a Dask worker does not see {path}; all must see the files under "
            "the same paths"
        )
    if not alone:
        return _process(job).run(path)
    worker = Worker(job.work, job.config, renew_after=1)
    try:
        return worker.run(path)
    finally:
        worker.stop()


def _process(job: _Job[T]) -> Worker[T]:
    """The isolated process of this thread; it stays for the next file of the job."""
    if getattr(_mine, "token", None) != job.token:
        if hasattr(_mine, "worker"):
            _mine.worker.stop()
        _mine.worker, _mine.token = Worker(job.work, job.config, RENEW_AFTER), job.token
        _by_job.setdefault(job.token, []).append(_mine.worker)
    worker: Worker[T] = _mine.worker
    return worker


def _stop_processes(token: str) -> None:
    """End the isolated processes of a job that is over."""
    for worker in _by_job.pop(token, []):
        worker.stop()
