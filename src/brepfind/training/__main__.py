"""``python -m brepfind.training JOB.json``: one rank of a training run; torchrun starts them.

Exit codes: 0 trained; 1 a check stopped the run; 2 something given cannot be used; 130 told to
stop, state saved. Whoever fails first leaves ``reason.json`` in the job's post-mortem folder.
"""

from __future__ import annotations

import os

# Before tokenizers is imported: it would warn, or hang, after a fork.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import json
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from brepfind.distributed.group import Group, open_group
from brepfind.distributed.watch import Hang
from brepfind.errors import BrepfindError, CheckFailed, Interrupted
from brepfind.events import EventFile, Events, Silent
from brepfind.log import get_logger, setup_logging
from brepfind.processes import die_with_parent
from brepfind.training.faults import Faults
from brepfind.training.job import Job
from brepfind.training.loop import Run, StepHalted
from brepfind.training.prepare import prepare
from brepfind.training.resume import out_lock
from brepfind.training.signals import StopFlag, stop_flag

log = get_logger("brepfind.training")

BUG = 70


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
    with stop_flag() as stop:
        return _guarded(job, stop)


def _guarded(job: Job, stop: StopFlag) -> int:
    folder = Path(job.postmortem)
    rank = int(os.environ.get("RANK", "0"))
    try:
        _train(job, stop)
    except Interrupted as error:
        facts = {"reason": str(error), "check": "interrupted", "rank": rank}
        if _leave_reason(folder, facts):
            log.warning("%s", error)
        return error.exit_code
    except BrepfindError as error:
        if _leave_reason(folder, {"rank": rank, **_facts(error)}):
            log.error("%s", error)
        return error.exit_code
    except Exception as error:
        reason = f"rank {rank}: {type(error).__name__}: {' '.join(str(error).split())[:500]}"
        facts = {"reason": reason, "check": "bug", "rank": rank}
        _leave_reason(folder, {**facts, "traceback": traceback.format_exc()})
        log.error("%s\n%s", reason, traceback.format_exc())
        return BUG
    return 0


def _train(job: Job, stop: StopFlag) -> None:
    folder = Path(job.postmortem)
    with open_group(job.train.timeout_s, device=job.device, stacks=job.postmortem) as group:

        def on_hang(hang: Hang) -> None:
            _leave_reason(folder, _hang_facts(hang, group))

        group.watch.on_hang = on_hang
        file = EventFile(Path(job.events)) if group.first else None
        events: Events = file or Silent()
        try:
            if group.first:
                with out_lock(Path(job.state), Path(job.out)):
                    _run(job, group, events, stop)
            else:
                _run(job, group, events, stop)
        except StepHalted as error:
            events.happened("halted", error.facts)
            raise
        except RuntimeError as error:
            raise _because_of_others(error, group) from error
        finally:
            if file is not None:
                file.close()


def _run(job: Job, group: Group, events: Events, stop: StopFlag) -> None:
    faults = Faults.from_environment(group.rank)
    Run(job, prepare(job, group, faults), group, events, stop).fit()


def _because_of_others(error: RuntimeError, group: Group) -> Exception:
    """A collective that fails usually fails because another rank is gone; say so, and which."""
    if group.world == 1:
        return error
    text = " ".join(str(error).split())
    if failure := group.watch.failure():
        return CheckFailed(f"rank {group.rank} stopped because {failure}")
    if "gloo" not in text.lower() and "nccl" not in text.lower() and "peer" not in text.lower():
        return error
    gone = group.watch.gone()
    if failure := group.watch.failure():
        return CheckFailed(f"rank {group.rank} stopped because {failure}")
    who = ", ".join(f"rank {rank}" for rank in gone) or "another rank"
    return CheckFailed(f"{who} ended without a word (rank {group.rank} saw: {text[:200]})")


def _facts(error: BrepfindError) -> dict[str, Any]:
    facts: dict[str, Any] = {"reason": str(error), "check": "input"}
    if isinstance(error, CheckFailed):
        facts["check"] = "check"
        facts["findings"] = [finding.as_json() for finding in error.findings]
    if isinstance(error, StepHalted):
        facts |= {**error.facts, "check": "nonfinite", "reason": str(error)}
    return facts


def _hang_facts(hang: Hang, group: Group) -> dict[str, Any]:
    return {
        "reason": hang.message,
        "check": "hang",
        "rank": group.rank,
        "missing": list(hang.missing),
        "stacks": str(hang.stacks) if hang.stacks else "",
    }


def _leave_reason(folder: Path, facts: dict[str, Any]) -> bool:
    """Write ``reason.json``; the first of the ranks to fail is the one that counts.

    Returns:
        Whether this rank was the first, and should say so.
    """
    folder.mkdir(parents=True, exist_ok=True)
    mine = folder / f"reason-rank{os.environ.get('RANK', '0')}.json"
    plain = json.loads(json.dumps(facts), parse_constant=str)
    mine.write_text(json.dumps(plain, indent=2, sort_keys=True, allow_nan=False) + "\n")
    try:
        os.link(mine, folder / "reason.json")  # fails if another rank was first
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        (folder / "reason.json").write_text(mine.read_text())
    return True


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Straight out: a thread of a failed collective could hold the interpreter's exit for minutes.
    os._exit(code)
