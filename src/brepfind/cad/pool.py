"""Many STEP files, each kept from harming the others.

Every worker is a process of its own (pebble, started by a fork server) with a time limit per file,
a memory limit, and an end after some hundred files so that what Open CASCADE leaks stays small. A
crash or an endless loop costs the one file that caused it. A file that ran out of time, or whose
worker was killed from outside, is tried once more alone, so that a busy machine does not decide.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.popen_forkserver
import os
import queue
import resource
import signal
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, TimeoutError
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import context, forkserver
from pathlib import Path
from types import ModuleType
from typing import Any

from pebble import ProcessExpired, ProcessPool

from brepfind.cad.arrays import PartArrays
from brepfind.cad.extract import ExtractConfig, extract_file
from brepfind.cad.reading import quiet
from brepfind.errors import RejectedPart

# A worker ends after this many files.
RENEW_AFTER = 200

# What workers need is loaded once, in the server they are forked from.
_PRELOAD = ["brepfind.cad.pool"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one file.

    Attributes:
        key: the name it was given under.
        parts: its graphs; empty if it was rejected.
        reject: why it was rejected, or None.
        seconds: how long its worker took.
    """

    key: str
    parts: list[PartArrays]
    reject: RejectedPart | None
    seconds: float


def extract_many(
    files: Sequence[tuple[str, Path]], config: ExtractConfig, workers: int
) -> Generator[Outcome, None, None]:
    """Extract ``files`` (key, path), yielding outcomes as they are completed.

    Every file gives exactly one outcome. Closing the generator, or Ctrl-C in the loop over it,
    ends the workers at once; what was yielded stays valid.

    Args:
        files: keys are free to choose and must differ, such as paths below the root.
        config: the ``extract`` section.
        workers: processes at work at a time.
    """
    again: list[tuple[str, Path, RejectedPart]] = []
    for key, path, outcome in _run(files, config, workers):
        if outcome.reject is not None and outcome.reject.reason in _UNDECIDED:
            again.append((key, path, outcome.reject))
        else:
            yield outcome
    # In the order given, whatever order the clock chose.
    place = {key: i for i, (key, _) in enumerate(files)}
    again.sort(key=lambda entry: place[entry[0]])
    for _, _, outcome in _run([(key, path) for key, path, _ in again], config, 1):
        yield outcome


# Reasons that a busy machine can cause.
_UNDECIDED = frozenset({"timeout", "memory"})


def _run(
    files: Sequence[tuple[str, Path]], config: ExtractConfig, workers: int
) -> Iterator[tuple[str, Path, Outcome]]:
    if not files:
        return
    workers = max(1, min(workers, len(files)))
    _start_server()
    pool = ProcessPool(
        max_workers=workers,
        max_tasks=RENEW_AFTER,
        initializer=_prepare_worker,
        initargs=(config.memory_gb,),
        context=_Context(),
    )
    done: queue.SimpleQueue[tuple[str, Path, Future]] = queue.SimpleQueue()
    waiting = iter(files)
    running = 0

    def feed() -> int:
        for key, path in waiting:
            future = pool.schedule(_work, (path, config), timeout=config.timeout_s)
            future.add_done_callback(lambda f, key=key, path=path: done.put((key, path, f)))
            return 1
        return 0

    try:
        # A few more than workers, so that none waits for the next file.
        for _ in range(2 * workers):
            running += feed()
        while running:
            key, path, future = done.get()
            running += feed() - 1
            yield key, path, _outcome(key, future, config)
        pool.close()
        pool.join()
    finally:
        pool.stop()
        pool.join()


def _outcome(key: str, future: Future, config: ExtractConfig) -> Outcome:
    try:
        parts, reject, seconds = future.result()
    except TimeoutError:
        reject = RejectedPart("timeout", f"took longer than {config.timeout_s:g} s")
        return Outcome(key, [], reject, config.timeout_s)
    except ProcessExpired as error:
        code = error.exitcode or 0
        if code == -signal.SIGKILL:
            reject = RejectedPart(
                "memory", "its worker was killed (SIGKILL), most often for want of memory"
            )
        else:
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            reject = RejectedPart("crash", f"Open CASCADE crashed on it ({name})")
        return Outcome(key, [], reject, 0.0)
    return Outcome(key, parts, reject, seconds)


def _work(path: Path, config: ExtractConfig) -> tuple[list[PartArrays], RejectedPart | None, float]:
    """Extract one file, in a worker; whatever is raised becomes a reason."""
    begin = time.perf_counter()
    parts: list[PartArrays] = []
    reject = None
    try:
        parts = extract_file(path, config)
    except RejectedPart as error:
        reject = error
    except MemoryError:
        reject = RejectedPart("memory", f"needs more than {config.memory_gb:g} GiB")
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        if "bad_alloc" in text or "OutOfMemory" in text:
            reject = RejectedPart("memory", f"needs more than {config.memory_gb:g} GiB")
        else:
            reject = RejectedPart("crash", f"extraction failed on it ({text})")
    return parts, reject, time.perf_counter() - begin


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
    quiet()


def _start_server() -> None:
    """Start the fork server with the libraries loaded and one thread per worker."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOAD)
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
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
