"""Processes that work on one file each, so that no file can harm another.

A worker has a time limit per file, a memory limit, and an end after some hundred files, so that
what Open CASCADE leaks stays small. pebble looks after the workers; they are forked from a server
in which the libraries are loaded already. What a process's end says of the file it worked on is
decided in one place, ``_attempt``.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.popen_forkserver
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ThreadPoolExecutor,
    TimeoutError,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import context, forkserver
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from pebble import ProcessExpired, ProcessPool

from brepfind.cad.extract import ExtractConfig
from brepfind.cad.reading import quiet
from brepfind.errors import RejectedPart

T = TypeVar("T")

# What is done with a file: in a worker, so it must be importable there.
Work = Callable[[Path, ExtractConfig], list[T]]
File = tuple[str, Path]

# A worker ends after this many files.
RENEW_AFTER = 200

# What workers need is loaded once, in the server they are forked from.
_PRELOAD = ["brepfind.cad.isolation"]

# Seconds beyond the time limit after which a worker ends by itself, should nobody be there to end
# it: a killed command leaves a worker in an endless loop otherwise.
_ORPHAN_GRACE_S = 10.0

# Between looks at whether the pool itself still lives.
_LOOK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Attempt(Generic[T]):
    """How one attempt at a file went.

    Attributes:
        parts: what the work returned; empty if it was rejected.
        reject: why it was rejected, or None.
        seconds: how long its worker took.
        sure: False where the machine may have decided rather than the file: it ran out of time,
            or its process ended. Such a file deserves a second attempt alone.
    """

    parts: list[T]
    reject: RejectedPart | None
    seconds: float
    sure: bool


def attempts(
    files: Sequence[File], work: Work[T], config: ExtractConfig, workers: int, alone: bool
) -> Iterator[tuple[str, Attempt[T]]]:
    """One attempt at each file, by key, as they are completed.

    Args:
        files: key and path.
        work: what to do with a path; a function of a module.
        config: the ``extract`` section.
        workers: processes at work at a time.
        alone: one file at a time, each in a process that has seen no other.
    """
    waiting = iter(files)
    renew_after, count = (1, 1) if alone else (RENEW_AFTER, workers)
    everyone = [Worker(work, config, renew_after) for _ in range(count)]
    idle = list(everyone)
    running: dict[Future, tuple[str, Worker[T]]] = {}
    done: list[tuple[str, Attempt[T]]] = []
    try:
        while True:
            # Workers get their next file before the caller is busy with the last one's arrays.
            while idle and (file := next(waiting, None)) is not None:
                worker = idle.pop()
                running[worker.submit(file[1])] = file[0], worker
            yield from done
            if not running:
                return
            ended, _ = wait(running, timeout=_LOOK_EVERY_S, return_when=FIRST_COMPLETED)
            done = []
            for future in ended:
                key, worker = running.pop(future)
                done.append((key, worker.attempt(future)))
                idle.append(worker)
            for future, (_, worker) in running.items():
                worker.see_to(future)
    finally:
        # At the same time, for each that is deep in Open CASCADE is given seconds to end.
        with ThreadPoolExecutor(max_workers=len(everyone)) as threads:
            list(threads.map(Worker.stop, everyone))


class Worker(Generic[T]):
    """One process at a time that works on one file at a time.

    It is a pebble pool of one: in a pool of several a worker that is killed in the middle of its
    answer keeps the lock of the pipe, and all others wait for it until they are taken for dead.
    """

    def __init__(self, work: Work[T], config: ExtractConfig, renew_after: int) -> None:
        self._work = work
        self._config = config
        self._renew_after = renew_after
        self._pool: ProcessPool | None = None

    def submit(self, path: Path) -> Future:
        """Begin work on a file."""
        if self._pool is None:
            start_server()
            self._pool = ProcessPool(
                max_workers=1,
                max_tasks=self._renew_after,
                initializer=_prepare_worker,
                initargs=(self._config.memory_gb,),
                context=_Context(),
            )
        return self._pool.schedule(
            _in_worker, (self._work, path, self._config), timeout=self._config.timeout_s
        )

    def attempt(self, future: Future) -> Attempt[T]:
        """What became of a file whose future is done."""
        attempt = _attempt(future, self._config)
        if not attempt.sure:  # whatever state the pool is in, it is not asked for more
            self.stop()
        return attempt

    def run(self, path: Path) -> Attempt[T]:
        """One attempt at one file, from its begin to its end."""
        future = self.submit(path)
        while not wait([future], timeout=_LOOK_EVERY_S).done:
            self.see_to(future)
        return self.attempt(future)

    def see_to(self, future: Future) -> None:
        """End a future that a broken pool has left open."""
        if self._pool is not None and not self._pool.active and not future.done():
            future.set_exception(BrokenProcessPool())

    def stop(self) -> None:
        """End the process now, whatever it does."""
        if self._pool is not None:
            self._pool.stop()
            self._pool.join()
            self._pool = None


def _attempt(future: Future, config: ExtractConfig) -> Attempt:
    try:
        parts, reject, seconds = future.result()
    except TimeoutError:
        return _out_of_time(config)
    except BrokenProcessPool:
        reject = RejectedPart("crash", "its worker was lost")
    except ProcessExpired as error:
        code = error.exitcode or 0
        if code == -signal.SIGALRM:
            return _out_of_time(config)
        if code == -signal.SIGKILL:
            reject = RejectedPart(
                "memory", "its worker was killed (SIGKILL), most often for want of memory"
            )
        else:
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            reject = RejectedPart("crash", f"Open CASCADE crashed on it ({name})")
    else:
        return Attempt(parts, reject, seconds, sure=True)
    return Attempt([], reject, 0.0, sure=False)


def _out_of_time(config: ExtractConfig) -> Attempt:
    reject = RejectedPart("timeout", f"took longer than {config.timeout_s:g} s")
    return Attempt([], reject, config.timeout_s, sure=False)


# In a worker -------------------------------------------------------------------------------------


def _in_worker(
    work: Work[T], path: Path, config: ExtractConfig
) -> tuple[list[T], RejectedPart | None, float]:
    """Work on one file; whatever is raised becomes a reason."""
    begin = time.perf_counter()
    parts: list[T] = []
    reject = None
    # The kernel's own clock, for no handler of Python's runs while Open CASCADE does.
    signal.setitimer(signal.ITIMER_REAL, config.timeout_s + _ORPHAN_GRACE_S)
    try:
        parts = work(path, config)
    except RejectedPart as error:
        reject = error
    except MemoryError:
        reject = _too_large(config)
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        if "bad_alloc" in text or "OutOfMemory" in text:
            reject = _too_large(config)
        else:
            reject = RejectedPart("crash", f"extraction failed on it ({text})")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return parts, reject, time.perf_counter() - begin


def _too_large(config: ExtractConfig) -> RejectedPart:
    return RejectedPart("memory", f"needs more than {config.memory_gb:g} GiB")


def _prepare_worker(memory_gb: float) -> None:
    """Limit memory and keep quiet; runs in each new worker."""
    with Path("/proc/self/statm").open() as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    # Libraries map far more than they use, so the limit is what may come on top of them.
    limit = mapped + int(memory_gb * 2**30)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    quiet()


# The fork server ---------------------------------------------------------------------------------

# The environment and the main module are the process's, and a Dask worker has several threads.
_starting = threading.RLock()


def start_server() -> None:
    """Start the fork server with the libraries loaded and one thread per worker."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    with _starting:
        multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOAD)
        before = {name: os.environ.get(name) for name in names}
        os.environ.update(dict.fromkeys(names, "1"))
        try:
            with _without_main():
                forkserver.ensure_running()
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the main module, which a new process would import again, with all it imports.

    Workers must stay small and quick to start, and the caller's script may well import torch.
    """
    with _starting:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


class _Popen(multiprocessing.popen_forkserver.Popen):
    def _launch(self, process_obj: Any) -> None:
        with _without_main():
            super()._launch(process_obj)  # type: ignore[misc]


class _Process(context.ForkServerProcess):
    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 - the name multiprocessing asks for
        return _Popen(process_obj)


class _Context(context.ForkServerContext):
    Process = _Process
