"""Real process groups for tests: ranks forked from a server that has torch loaded already."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["torch", "torch.distributed", "torch.nn.parallel", "brepfind.training.__main__"]
)


@dataclass(frozen=True)
class Ended:
    """How one rank ended: its exit code, what it returned, its traceback, and after how long."""

    rank: int
    code: int | None
    value: Any
    error: str
    seconds: float


def run_ranks(
    function: Callable[..., Any],
    world: int,
    *args: Any,
    limit_s: float = 200.0,
    environment: dict[str, str] | None = None,
) -> list[Ended]:
    """Call ``function(*args)`` in ``world`` processes with torchrun's environment set.

    A rank still alive after ``limit_s`` is killed and has the code None.
    """
    # As torchrun does: the store outlives every rank. Port 0 takes a free one.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    began = time.monotonic()
    ranks = []
    for rank in range(world):
        here, there = _CONTEXT.Pipe(duplex=False)
        variables = {
            "RANK": str(rank),
            "WORLD_SIZE": str(world),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            **(environment or {}),
        }
        process = _CONTEXT.Process(target=_one, args=(function, args, variables, there))
        process.start()
        there.close()
        ranks.append((rank, process, here))
    results = {}
    ended = []
    for rank, process, here in ranks:
        # Read before waiting for the end: a large result blocks its writer until it is read.
        if here.poll(max(0.1, limit_s - (time.monotonic() - began))):
            with contextlib.suppress(EOFError):  # it ended without a word
                results[rank] = pickle.loads(here.recv_bytes())
        process.join(max(0.1, limit_s - (time.monotonic() - began)))
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
        value, error = results.get(rank, (None, ""))
        ended.append(Ended(rank, code, value, error, time.monotonic() - began))
        process.close()
    return ended


def values(ended: list[Ended]) -> list[Any]:
    """What each rank returned; fails with the tracebacks if one did not end well."""
    bad = [rank for rank in ended if rank.code != 0]
    assert not bad, "\n".join(f"rank {b.rank} ended with {b.code}:\n{b.error}" for b in bad)
    return [rank.value for rank in ended]


def _one(
    function: Callable[..., Any], args: tuple[Any, ...], variables: dict[str, str], pipe: Any
) -> None:
    import torch

    os.environ.update(variables)
    torch.set_num_threads(1)
    try:
        pipe.send_bytes(pickle.dumps((function(*args), "")))
    except SystemExit:
        raise
    except BaseException as error:
        pipe.send_bytes(pickle.dumps((None, traceback.format_exc())))
        raise SystemExit(getattr(error, "exit_code", 3)) from None
