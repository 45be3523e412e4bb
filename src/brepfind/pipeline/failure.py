"""How a stage that stopped is reported: one sentence, a report, the evidence."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from brepfind.errors import BrepfindError, CheckFailed, Interrupted
from brepfind.findings import Finding

BUG = 70  # as sysexits.h calls an internal software error
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A stage that stopped.

    Attributes:
        stage: its name.
        reason: one plain sentence.
        exit_code: 1 a check, 2 what was given, 130 from outside, 70 a bug.
        findings: of the check that failed.
        evidence: a file the check itself wrote, if any.
        traceback: for a bug only.
    """

    stage: str
    reason: str
    exit_code: int
    findings: tuple[Finding, ...] = ()
    evidence: Path | None = None
    traceback: str = ""

    @property
    def status(self) -> str:
        """The status of the MLflow run."""
        return "KILLED" if self.exit_code == Interrupted.exit_code else "FAILED"


def explain(stage: str, error: BaseException) -> Failure:
    """What an exception that ended a stage means; its reason leaves out the stage's own name."""
    if isinstance(error, CheckFailed):
        return Failure(
            stage=stage,
            reason=_one_line(error).removeprefix(f"{stage}: "),
            exit_code=error.exit_code,
            findings=error.findings,
            evidence=error.evidence,
        )
    if isinstance(error, BrepfindError):
        reason = _one_line(error).removeprefix(f"{stage}: ")
        return Failure(stage=stage, reason=reason, exit_code=error.exit_code)
    if isinstance(error, KeyboardInterrupt):
        return Failure(stage=stage, reason="stopped by Ctrl-C", exit_code=Interrupted.exit_code)
    if isinstance(error, OSError) and error.errno in _FULL:
        reason = f"the disk is full ({error.filename or 'no path given'}); make room and run again"
        return Failure(stage=stage, reason=reason, exit_code=2)
    return Failure(
        stage=stage,
        reason=f"a bug in brepfind: {type(error).__name__}: {_one_line(error)}",
        exit_code=BUG,
        traceback="".join(traceback.format_exception(error)),
    )


def report(failure: Failure, facts: Mapping[str, str]) -> str:
    """The report of a failure, in Markdown.

    Args:
        failure: what happened.
        facts: what else a person needs to know, by name.
    """
    lines = [f"# {failure.stage} stopped", "", failure.reason, "", "| | |", "|---|---|"]
    lines += [f"| {_cell(name)} | {_cell(value)} |" for name, value in facts.items()]
    lines += [f"| exit code | {failure.exit_code} |", ""]
    if failure.findings:
        lines += ["## What was checked", ""]
        lines += ["| verdict | check | value | asked | advice |", "|---|---|---|---|---|"]
        worst_first = sorted(
            failure.findings, key=lambda f: ("failed", "warning", "ok").index(f.verdict)
        )
        for finding in worst_first:
            value = f"{finding.value:.6g}" if isinstance(finding.value, float) else finding.value
            row = (finding.verdict, finding.name, str(value), finding.limit, finding.advice)
            lines.append("| " + " | ".join(_cell(text) for text in row) + " |")
        lines.append("")
    if failure.traceback:
        lines += ["## Traceback", "", "```", failure.traceback.rstrip(), "```", ""]
    lines += [
        "## What now",
        "",
        "Mend the cause, then `dvc repro` goes on from this stage; those before it do not run "
        "again, those after it have not run.",
        "This file goes away when this stage or a later one next passes.",
        "",
    ]
    return "\n".join(lines)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
