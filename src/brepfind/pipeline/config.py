"""The sections that belong to the pipeline itself: ``publish`` and ``runtime``."""

from __future__ import annotations

from pydantic import Field

from brepfind.params import Section
from brepfind.processes import cores


class RuntimeConfig(Section):
    """Settings of the machine and of the record: they cannot change a result, so DVC does not look
    at them.
    """

    workers: int = Field(
        ge=0, le=1024, description="Processes that read and write STEP files; 0: one per core."
    )
    threads: int = Field(
        ge=0, le=1024, description="Threads of one process; 0: the cores, shared by its processes."
    )
    experiment: str = Field(min_length=1, max_length=200, description="Experiment in MLflow.")
    stop_grace_s: float = Field(
        gt=0, description="Seconds that training has to save its state when told to stop."
    )

    loader_workers: int = Field(
        ge=0, le=256, description="Processes of one rank that prepare batches; 0: the rank itself."
    )
    save_every: int = Field(ge=1, description="Steps between saves of training's state.")

    def workers_here(self) -> int:
        """Processes to use on this machine."""
        return self.workers or cores()

    def threads_here(self, processes: int = 1) -> int:
        """Threads for each of ``processes`` processes on this machine."""
        return self.threads or max(1, cores() // processes)


class PublishConfig(Section):
    """The ``publish`` section: what is made of a run in which every gate passed."""

    index: bool = Field(description="Embed all parts into the search index, data/index.")
