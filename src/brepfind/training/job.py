"""A job file: what torchrun's processes are told by the stage that starts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from brepfind.errors import ParamsError
from brepfind.files import read_json, write_json
from brepfind.params import Section, check_section
from brepfind.training.config import TrainConfig


class Job(Section):
    """One training run: its settings, where it reads, and where it writes."""

    train: TrainConfig = Field(description="the train section of params.yaml")
    graphs: str = Field(description="folder of the graph store")
    corpus: str = Field(description="folder of the corpus manifest")
    split: str = Field(description="Parquet table of model_id and split")
    weights: str | None = Field(description="the encoder's clean weights; null: from scratch")
    out: str = Field(description="folder for the weights, the history and the numbers")
    state: str = Field(description="folder for resumable state, outside any stage's outs")
    events: str = Field(description="file that curve points and events are appended to")
    cost: str = Field(description="file for what the run took; it differs from run to run")
    postmortem: str = Field(description="folder for what a run that stops leaves as evidence")
    features: str = Field(description="folder of what frozen parts give, kept between runs")
    pairs: str = Field(description="folder of the pairwise matrices")
    threads: int = Field(default=1, ge=1, description="threads of each process")
    loader_workers: int = Field(default=0, ge=0, description="processes that prepare batches")
    save_every: int = Field(default=50, ge=1, description="steps between saves of the state")
    device: Literal["auto", "cpu"] = Field(default="auto", description="auto: GPUs if any")

    def write(self, path: Path) -> None:
        """Write the job file."""
        write_json(path, self.model_dump(mode="json"))

    @classmethod
    def read(cls, path: Path) -> Job:
        """Read a job file.

        Raises:
            InputError: if it is missing or not JSON.
            ParamsError: naming every key that is wrong.
        """
        value: Any = read_json(path)
        if not isinstance(value, dict):
            raise ParamsError(f"{path}: must be a mapping")
        return check_section(value, "job", cls, source=str(path))
