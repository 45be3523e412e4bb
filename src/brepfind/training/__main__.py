"""``python -m brepfind.training JOB.json``: one rank of a training run; torchrun starts them.

Exit codes: 0 trained; 1 a check stopped the run; 2 something given cannot be used; 70 a bug; 130
told to stop, state saved. Whoever fails first leaves ``reason.json`` in the job's post-mortem
folder.
"""

from __future__ import annotations

import os

# Before tokenizers is imported: it would warn, or hang, after a fork.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import sys
from contextlib import ExitStack
from pathlib import Path

import torch

from brepfind.distributed.group import Group, open_group
from brepfind.errors import BrepfindError
from brepfind.events import EventFile, Events, Silent
from brepfind.log import get_logger, setup_logging
from brepfind.processes import die_with_parent
from brepfind.training.faults import Faults
from brepfind.training.job import Job
from brepfind.training.loop import Run
from brepfind.training.prepare import prepare
from brepfind.training.reason import OtherRank, Reason, StepHalted
from brepfind.training.resume import out_lock
from brepfind.training.signals import StopFlag, stop_flag

log = get_logger("brepfind.training")


def main(arguments: list[str]) -> int:
    """Run one rank; returns its exit code."""
    setup_logging()
    if len(arguments) != 1:
        log.error("usage: python -m brepfind.training JOB.json")
        return 2
    try:
        job = Job.read(Path(arguments[0]))
    except BrepfindError as error:
        log.error("%s", error)
        return error.exit_code
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # A trainer whose torchrun was killed must not go on writing into the next run's outputs.
        die_with_parent(os.getppid())
    torch.set_num_threads(job.threads)
    reason = Reason(Path(job.postmortem), int(os.environ.get("RANK", "0")))
    with stop_flag() as stop, reason.room():
        try:
            _train(job, stop, reason)
        except Exception as error:
            reason.leave(error)
    return reason.exit_code


def _train(job: Job, stop: StopFlag, reason: Reason) -> None:
    with open_group(job.train.timeout_s, device=job.device, stacks=job.postmortem) as group:
        group.watch.on_end = reason.leave_ending
        with ExitStack() as stack:
            events: Events = Silent()
            try:
                if group.first:
                    events = EventFile(Path(job.events))
                    stack.callback(events.close)
                    stack.enter_context(out_lock(Path(job.state), Path(job.out)))
                faults = Faults.from_environment(group.rank)
                Run(job, prepare(job, group, faults), group, events, stop).fit()
            except Exception as error:
                told = _because_of_others(error, group)
                # Before the group hears of it: the rank that failed first writes first.
                reason.leave(told)
                if isinstance(told, StepHalted):
                    events.happened("halted", told.facts)
                raise told from (None if told is error else error)


def _because_of_others(error: Exception, group: Group) -> Exception:
    """A collective that fails usually fails because another rank is gone; say so, and which."""
    if group.world == 1 or not isinstance(error, RuntimeError):
        return error
    text = " ".join(str(error).split())
    if failure := group.watch.failure():
        return OtherRank(f"rank {group.rank} stopped because {failure}")
    if "gloo" not in text.lower() and "nccl" not in text.lower() and "peer" not in text.lower():
        return error
    gone = group.watch.gone()
    if failure := group.watch.failure():
        return OtherRank(f"rank {group.rank} stopped because {failure}")
    who = ", ".join(map(group.watch.named, gone)) or "another rank"
    return OtherRank(f"{who} ended without a word (rank {group.rank} saw: {text[:200]})")


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Straight out: a thread of a failed collective could hold the interpreter's exit for minutes.
    os._exit(code)
