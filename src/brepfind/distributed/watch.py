"""A hang becomes an error: every rank shows signs of life, and a thread notices when they stop.

Each rank counts *beats*: it says where it is (``load batch``, ``forward``, ``agree``) whenever it
moves on. A thread in each rank publishes that in the job's key-value store and reads the others'.

- Where a rank computes alone for as long as it takes, the processor's time it uses is its beat.
- A rank without a beat for ``timeout_s`` hangs. Its thread writes the Python stacks of all threads,
  reads from the store which ranks were waiting and which did not arrive, tells the listener, and
  ends the process with code 1: a thread stuck in a collective cannot be ended in any other way.
- A rank that fails says so in the store before it goes; the others' threads see it and end too.
- If the thread itself cannot run (native code that never gives up the interpreter lock), the
  fault handler, which needs no lock, writes the stacks and ends the process a little later.
"""

from __future__ import annotations

import faulthandler
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Literal

import torch.distributed as dist

from brepfind.errors import CheckFailed
from brepfind.log import get_logger

log = get_logger(__name__)

_POLL_S = 0.25
# So much of the processor's time, without that of the watching thread itself, is a sign of work.
_WORK_S = 0.5
# Without a new publication for this long, a rank's process is taken for dead.
_DEAD_S = 3.0
# After another rank failed, the main thread has this long to end by itself.
_LEAVE_S = 4.0
_HOST = socket.gethostname()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Why a watch ends its rank.

    Attributes:
        kind: ``hang`` if nothing moved for too long; ``gone`` if that is because another rank's
            process has ended; ``failed`` if another rank said that it failed.
        message: one sentence.
        place: where this rank was.
        missing: ranks that did not arrive where the others waited.
        stacks: the file with this rank's stacks, if one was written.
    """

    kind: Literal["hang", "gone", "failed"]
    message: str
    place: str
    missing: tuple[int, ...]
    stacks: Path | None


def who_is_missing(states: dict[int, dict[str, Any]], world: int) -> tuple[int, ...]:
    """Which ranks did not arrive, from every rank's last state. Pure.

    Args:
        states: for each rank that has one, ``waiting`` (in a collective), ``dead`` (its process is
            gone), ``meeting`` (how many times it has waited for others).

    Returns:
        The dead and the not waiting; if all wait, those that have met least often; none if all
        have met equally often.
    """
    absent = [
        rank
        for rank in range(world)
        if rank not in states or states[rank]["dead"] or not states[rank]["waiting"]
    ]
    if absent:
        return tuple(absent)
    met = {rank: int(states[rank]["meeting"]) for rank in range(world)}
    if len(set(met.values())) == 1:
        return ()
    return tuple(rank for rank, count in met.items() if count == min(met.values()))


class Watch:
    """Signs of life of one rank, and its thread that watches them.

    Args:
        timeout_s: the longest time without a beat.
        folder: where stacks go; None writes none.
    """

    def __init__(self, rank: int, world: int, *, timeout_s: float, folder: str | None) -> None:
        self.rank, self.world, self.timeout_s = rank, world, timeout_s
        self.folder = Path(folder) if folder else None
        self.on_end: Callable[[Ending], None] | None = None
        self._place, self._waiting, self._count, self._meeting = "start", False, 0, 0
        self._last = time.monotonic()
        self._computing = False
        self._spent = 0.0  # processor time at the last sign of work; the watching thread's own
        self._store: dist.Store | None = None
        self._kept_at = ""
        self._seen: dict[int, tuple[int, float]] = {}
        self._published = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._backstop: IO[str] | None = None

    # What the main thread says ---------------------------------------------------------------

    def beat(self, place: str, *, waits: bool = False) -> None:
        """Say that this rank is now at ``place``; ``waits`` if it waits there for others."""
        self._place, self._waiting = place, waits
        self._count += 1
        self._last = time.monotonic()

    @contextmanager
    def waiting(self, place: str) -> Iterator[None]:
        """The block waits for other ranks."""
        before = self._place
        self._meeting += 1
        self.beat(place, waits=True)
        yield
        # Not in a finally: after a failed collective the state stays as it was, for the report.
        self.beat(before)

    @contextmanager
    def computing(self, place: str) -> Iterator[None]:
        """The block computes by itself, without a beat of its own, for as long as it takes.

        As long as the process uses the processor it is alive. Nothing in the block may wait for
        another rank: a thread that looks busy while it waits would never be found hanging.
        """
        self.beat(place)
        self._computing = True
        try:
            yield
        finally:
            self._computing = False
            self.beat(place)

    def meet(self, place: str) -> None:
        """Wait until every rank has called this; see :meth:`Group.barrier`.

        Raises:
            CheckFailed: if the ranks meet at different places, or another rank failed.
        """
        store = self._store
        assert store is not None, "only ranks of a group meet"
        key = f"meet/{self._meeting}"
        store.set(f"{key}/{self.rank}", place)
        absent = set(range(self.world)) - {self.rank}
        while absent:
            # Asked before looking who is here: a rank that came, left and then failed was here.
            failure = self.failure()
            absent -= {rank for rank in absent if store.check([f"{key}/{rank}"])}
            if failure and absent:
                raise CheckFailed(failure)
            # Those who still work and show life may take their time; those who wait elsewhere,
            # or show none, may not: then this rank's own beat stops and the watch reports.
            states = self.states()
            if all(_works(states.get(rank), self.timeout_s) for rank in absent):
                self.beat(place, waits=True)
            if absent:
                time.sleep(0.02)
        for rank in range(self.world):
            other = store.get(f"{key}/{rank}").decode()
            if other != place:
                raise CheckFailed(
                    f"the ranks are out of step: rank {self.rank} is at {place!r}, "
                    f"rank {rank} at {other!r}"
                )

    def failed(self, error: BaseException) -> None:
        """Tell the others that this rank ends with an error; the first to say so is kept."""
        if self._store is not None:
            said = f"{type(error).__name__}: {error}"
            fact = json.dumps({"rank": self.rank, "host": _HOST, "error": said})
            with suppress(RuntimeError):
                self._store.compare_set("failed", "", fact)

    # What it knows of the others -------------------------------------------------------------

    def failure(self) -> str | None:
        """One sentence about the rank that failed first, if it was another one."""
        if self._store is None:
            return None
        try:
            if not self._store.check(["failed"]):
                return None
            fact = json.loads(self._store.get("failed"))
        except RuntimeError:
            return (
                f"the job's key-value store at {self._kept_at} is gone: rank 0's torchrun, which "
                "kept it, has ended or cannot be reached"
            )
        if fact["rank"] == self.rank:
            return None
        return f"{_named(fact['rank'], fact)} failed: {fact['error']}"

    def states(self) -> dict[int, dict[str, Any]]:
        """The last published state of each rank, and whether its process seems dead."""
        now = time.monotonic()
        states: dict[int, dict[str, Any]] = {self.rank: {**self._state(), "dead": False}}
        store = self._store
        if store is None:
            return states
        for rank in set(range(self.world)) - {self.rank}:
            try:
                if not store.check([f"beat/{rank}"]):
                    continue
                state = json.loads(store.get(f"beat/{rank}"))
            except RuntimeError:
                continue
            number, since = self._seen.get(rank, (-1, now))
            if state["published"] != number:
                since = now
                self._seen[rank] = (state["published"], now)
            states[rank] = {**state, "dead": now - since > _DEAD_S}
        return states

    def named(self, rank: int) -> str:
        """``rank 1``, and on which machine, if it is another one."""
        return _named(rank, self.states().get(rank))

    def gone(self, wait_s: float = _DEAD_S + 1.0) -> tuple[int, ...]:
        """Ranks whose process has ended without a word; takes some seconds to be sure."""
        end = time.monotonic() + wait_s
        while time.monotonic() < end:
            self.beat(self._place, waits=True)
            dead = [rank for rank, state in self.states().items() if state["dead"]]
            if dead or self.failure():
                return tuple(dead)
            time.sleep(_POLL_S)
        return ()

    # The thread ------------------------------------------------------------------------------

    def connect(self, host: str, port: int) -> None:
        """Use the job's store, by a connection of its own: the main thread's may be blocked."""
        limit = timedelta(seconds=max(10.0, self.timeout_s))
        store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=limit)
        self._kept_at = f"{host}:{port}"
        # A restarted job under the same torchrun keeps its store, so the attempt is in the key.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._store = dist.PrefixStore(f"brepfind/{attempt}", store)

    def start(self) -> None:
        """Start watching; beats must come from now on."""
        self.beat("start")
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._backstop = (self.folder / f"stacks-rank{self.rank}-stuck.txt").open("w")
        self._thread = threading.Thread(target=self._run, name="brepfind-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)
        if self._backstop is not None:
            faulthandler.cancel_dump_traceback_later()
            self._backstop.close()
            stuck = Path(self._backstop.name)
            if stuck.exists() and not stuck.stat().st_size:
                stuck.unlink()

    def _state(self) -> dict[str, Any]:
        return {
            "host": _HOST,
            "place": self._place,
            "waiting": self._waiting,
            "count": self._count,
            "meeting": self._meeting,
            "age": time.monotonic() - self._last,
            "published": self._published,
        }

    def _publish(self) -> None:
        if self._store is not None:
            self._published += 1
            with suppress(RuntimeError):  # a store that is gone is noticed by failure()
                self._store.set(f"beat/{self.rank}", json.dumps(self._state()))

    def _run(self) -> None:
        left_at: float | None = None
        while not self._stop.wait(_POLL_S):
            if self._backstop is not None:
                faulthandler.dump_traceback_later(
                    self.timeout_s + 5.0, exit=True, file=self._backstop
                )
            self._publish()
            self.states()
            self._notice_work()
            now = time.monotonic()
            if now - self._last > self.timeout_s:
                self._end(self._hang())
            if left_at is None and self.world > 1 and self.failure():
                left_at = now
            if left_at is not None and now - left_at > _LEAVE_S:
                self._end(self._left())

    def _notice_work(self) -> None:
        used = time.process_time() - time.thread_time()
        if self._computing and used - self._spent > _WORK_S:
            self._spent, self._last = used, time.monotonic()

    def _hang(self) -> Ending:
        time.sleep(2 * _POLL_S)  # let the others publish what they wait for
        states = self.states()
        missing = who_is_missing(states, self.world) if self.world > 1 else (self.rank,)
        gone = [rank for rank in missing if rank in states and states[rank]["dead"]]
        where = ", ".join(
            f"{_named(rank, states[rank])} (last seen in {states[rank]['place']!r}"
            + (", process gone)" if rank in gone else ")")
            if rank in states
            else f"rank {rank} (never seen)"
            for rank in missing
        )
        message = f"no progress for {self.timeout_s:g} s in {self._place!r}; " + (
            f"did not arrive: {where}" if missing else "all ranks wait, none is missing"
        )
        if gone:
            names = ", ".join(_named(rank, states[rank]) for rank in gone)
            message = f"{names} ended without a word; {message}"
        return self._ending("gone" if gone else "hang", message, missing)

    def _left(self) -> Ending:
        return self._ending("failed", self.failure() or "another rank failed", ())

    def _ending(
        self, kind: Literal["hang", "gone", "failed"], message: str, missing: tuple[int, ...]
    ) -> Ending:
        return Ending(
            kind=kind, message=message, place=self._place, missing=missing, stacks=self._stacks()
        )

    def _stacks(self) -> Path | None:
        if self.folder is None:
            return None
        path = self.folder / f"stacks-rank{self.rank}.txt"
        with path.open("w", encoding="utf-8") as file:
            file.write(f"rank {self.rank} in {self._place!r}\n")
            file.flush()
            faulthandler.dump_traceback(file=file, all_threads=True)
        return path

    def _end(self, ending: Ending) -> None:
        log.error("rank %d: %s", self.rank, ending.message)
        try:
            if self.on_end is not None:
                self.on_end(ending)
            # Time for every rank to name the missing before the first exit makes torchrun end all.
            time.sleep(1.0)
        finally:
            os._exit(1)


def _named(rank: int, state: dict[str, Any] | None) -> str:
    host = state["host"] if state else _HOST
    return f"rank {rank}" if host == _HOST else f"rank {rank} on {host}"


def _works(state: dict[str, Any] | None, timeout_s: float) -> bool:
    return (
        state is not None
        and not state["dead"]
        and not state["waiting"]
        and state["age"] <= timeout_s
    )
