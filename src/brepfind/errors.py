"""Every error brepfind raises on purpose, and the exit code it ends a command with.

    BrepfindError
    ├── UserError             2   what was given cannot be used; the message says what to do
    │   ├── ParamsError           a value in params.yaml
    │   ├── InputError            a file, table or folder
    │   │   └── RejectedPart      one STEP file that did not make it, with its reason code
    │   ├── CheckpointError       a checkpoint that cannot be read, or read safely
    │   └── VersionMismatch       features, caches or weights made by another version
    ├── CheckFailed           1   a check found a run to be broken; carries its findings
    └── Interrupted         130   stopped from outside (Ctrl-C, SIGTERM); nothing was lost

Programming errors are not in this tree: they are assertions and end with a traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brepfind.findings import Finding


class BrepfindError(Exception):
    """The root of the tree. ``str(error)`` is one line: what is wrong and what to do."""

    exit_code = 2


class UserError(BrepfindError):
    """Something that was given cannot be used."""


class ParamsError(UserError):
    """A value in params.yaml is missing, unknown, mistyped or out of range."""


class InputError(UserError):
    """A file, table or folder cannot be used as it is."""


class RejectedPart(InputError):
    """One STEP file cannot become a graph.

    Args:
        reason: a short code that can be counted, such as ``unreadable`` or ``timeout``.
        message: one sentence for a person.
    """

    def __init__(self, reason: str, message: str) -> None:
        # Both go to the base class so that the error survives pickling between processes.
        super().__init__(reason, message)
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


class CheckpointError(UserError):
    """A checkpoint cannot be read, is not safe to read, or does not fit."""


class VersionMismatch(UserError):
    """Features, a cache or weights were made by another version of brepfind."""


class CheckFailed(BrepfindError):
    """A check found the run to be broken.

    Args:
        summary: one plain sentence naming what broke.
        findings: every finding of the check, the passed ones too; at least one failed.
        evidence: the file that holds the details, if one was written.
    """

    exit_code = 1

    def __init__(
        self, summary: str, findings: Sequence[Finding] = (), evidence: Path | None = None
    ) -> None:
        super().__init__(summary)
        self.summary = summary
        self.findings = tuple(findings)
        self.evidence = evidence


class Interrupted(BrepfindError):
    """The command was told to stop from outside."""

    exit_code = 130
