"""What the runner hands to a stage's function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brepfind.params import SectionT, check_section
from brepfind.pipeline.config import RuntimeConfig
from brepfind.tracking.tracker import Tracker


@dataclass(frozen=True, kw_only=True)
class StageContext:
    """One attempt at one stage.

    Attributes:
        name: the stage.
        project: where ``data/``, ``metrics/`` and ``reports/`` are; the folder DVC runs in,
            which is a copy of the main checkout under ``dvc exp run --temp`` and ``--queue``.
        home: ``.brepfind`` of the main checkout: locks, resumable state, caches, post-mortems.
        params: all sections of params.yaml, as read.
        fingerprint: of the state; see :mod:`brepfind.pipeline.fingerprint`.
        evidence: an empty folder for whatever explains a failure; kept only if there is one.
        tracker: listens to events.
        runtime: settings of the machine.
        cost: what a stage wants told of what it took, beside its time and memory; numbers that
            differ from run to run and so have no place in its metrics.
    """

    name: str
    project: Path
    home: Path
    params: Mapping[str, Any]
    fingerprint: str
    evidence: Path
    tracker: Tracker
    runtime: RuntimeConfig
    cost: dict[str, Any] = field(default_factory=dict)

    def section(self, name: str, config: type[SectionT]) -> SectionT:
        """One section of params.yaml, checked.

        Raises:
            ParamsError: naming every key that is wrong, its value, and what is allowed.
        """
        return check_section(self.params.get(name), name, config)

    def path(self, relative: Path) -> Path:
        """A path of the project, absolute."""
        return self.project / relative


# Takes the context, does the work, raises CheckFailed at its gate, returns the stage's metrics:
# nested mappings of finite numbers and words.
StageFunction = Callable[[StageContext], Mapping[str, Any]]
