"""Why a rank ended: the one account that a run leaves, ``reason.json``.

Every rank that fails writes its own ``reason-rankN.json``; the first of them is ``reason.json``
too. A rank must leave its reason before the others can hear that it failed, or one of these, which
only knows that somebody failed, could be first: so it is left inside the process group.
"""

from __future__ import annotations

import errno
import json
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from brepfind.distributed.watch import Ending
from brepfind.errors import BrepfindError, CheckFailed, Interrupted
from brepfind.log import get_logger

log = get_logger(__name__)

BUG = 70  # as sysexits.h calls an internal software error
# Kept free for the reason: on a full disk it is what must still be written.
_RESERVE_BYTES = 64 * 1024
FULL = (errno.ENOSPC, errno.EDQUOT)


class StepHalted(CheckFailed):
    """A step that ended the run, with the facts of it for the post-mortem."""

    def __init__(self, summary: str, facts: dict[str, Any]) -> None:
        super().__init__(summary)
        self.facts = facts


class OtherRank(CheckFailed):
    """Another rank failed or is gone; this one is well."""


class Reason:
    """What ended one rank; only the first thing it is told counts.

    Args:
        folder: the run's post-mortem folder.
        rank: process rank.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self.rank = folder, rank
        self.exit_code = 0
        self._reserve = folder / f"reserve-rank{rank}"

    @contextmanager
    def room(self) -> Iterator[None]:
        """Keep room for the reason on the disk for the length of the block."""
        with suppress(OSError):  # full already: then the log alone will have it
            self.folder.mkdir(parents=True, exist_ok=True)
            self._reserve.write_bytes(bytes(_RESERVE_BYTES))
        try:
            yield
        finally:
            self._reserve.unlink(missing_ok=True)

    def leave(self, error: Exception) -> None:
        """Write and say why this rank ends; does nothing if it has been said."""
        if self.exit_code:
            return
        facts = facts_of(error, self.rank)
        self.exit_code = facts.pop("exit_code")
        first = self._write(facts)
        if "traceback" in facts:
            log.error("%s\n%s", facts["reason"], facts["traceback"])
        elif first:
            (log.warning if facts["check"] == "interrupted" else log.error)("%s", facts["reason"])

    def leave_ending(self, ending: Ending) -> None:
        """The same for a rank that its watch is about to end; the watch says it."""
        if self.exit_code:
            return
        self.exit_code = 1
        facts = {
            "reason": ending.message,
            "check": "hang" if ending.kind == "hang" else "rank",
            "rank": self.rank,
            "missing": list(ending.missing),
            "stacks": str(ending.stacks) if ending.stacks else "",
        }
        self._write(facts)

    def _write(self, facts: dict[str, Any]) -> bool:
        """Returns whether this rank is the first, and should say so."""
        plain = json.loads(json.dumps(facts), parse_constant=str)
        text = json.dumps(plain, indent=2, sort_keys=True, allow_nan=False) + "\n"
        mine = self.folder / f"reason-rank{self.rank}.json"
        try:
            self._reserve.unlink(missing_ok=True)
            self.folder.mkdir(parents=True, exist_ok=True)
            mine.write_text(text)
            try:
                os.link(mine, self.folder / "reason.json")
            except FileExistsError:  # another rank was first
                return False
            except PermissionError:  # a file system without links
                (self.folder / "reason.json").write_text(text)
        except OSError as error:  # a full disk must not hide the reason
            log.error("%s: could not be written (%s)", mine, error)
        return True


def facts_of(error: Exception, rank: int) -> dict[str, Any]:
    """What ``reason.json`` tells of an error, and ``exit_code``. Pure.

    ``check`` is one of ``interrupted``, ``input``, ``check``, ``nonfinite``, ``rank``, ``bug``
    (and ``hang``, from the watch).
    """
    facts: dict[str, Any] = {"reason": _sentence(error), "rank": rank}
    if isinstance(error, BrepfindError):
        facts |= {"check": "input", "exit_code": error.exit_code}
        if isinstance(error, Interrupted):
            facts["check"] = "interrupted"
        elif isinstance(error, CheckFailed):
            facts["check"] = "rank" if isinstance(error, OtherRank) else "check"
            facts["findings"] = [finding.as_json() for finding in error.findings]
        if isinstance(error, StepHalted):
            facts |= {**error.facts, "check": "nonfinite", "reason": str(error)}
        return facts
    if isinstance(error, OSError) and error.errno in FULL:
        where = f" ({error.filename})" if error.filename else ""
        reason = f"the disk is full{where}; make room and run again: the saved state is used"
        return {**facts, "reason": reason, "check": "input", "exit_code": 2}
    said = " ".join(str(error).split())[:500]
    return {
        **facts,
        "reason": f"rank {rank}: {type(error).__name__}: {said}",
        "check": "bug",
        "traceback": "".join(traceback.format_exception(error)),
        "exit_code": BUG,
    }


def _sentence(error: Exception) -> str:
    """What an error says; of one that a loader worker met, without the traceback torch adds."""
    text = str(error).strip()
    if "in DataLoader worker process" not in text:
        return text
    last = text.splitlines()[-1]
    return last.partition(": ")[2] or last
