"""Where the stages read and write, relative to the project's root; dvc.yaml says the same."""

from __future__ import annotations

from pathlib import Path

PARAMS = Path("params.yaml")
DVC_LOCK = Path("dvc.lock")

PRETRAINED = Path("data/pretrained")
CORPUS = Path("data/corpus")
GRAPHS = Path("data/graphs")
SPLIT = Path("data/split/split.parquet")
WEIGHTS = Path("data/weights/encoder.safetensors")
MODEL = Path("data/model")
EMBEDDINGS = Path("data/embeddings")
INDEX = Path("data/index")

METRICS = Path("metrics")
# Seconds and memory stand apart from the metrics, which are the same whenever a stage runs again
# on the same input. They differ every time, so publish depends on them and runs after any stage.
COST = Path("metrics/cost")

REPORTS = Path("reports")
REPORT = Path("reports/report.md")
FIGURES = Path("reports/figures")
PAGE = Path("reports/index.html")

STAGES = ("prepare", "extract", "split", "sanitize", "train", "health", "evaluate", "publish")


def metrics_file(stage: str) -> Path:
    """The strict JSON a stage's numbers are in."""
    return METRICS / f"{stage}.json"


def cost_file(stage: str) -> Path:
    """What a stage took: seconds and peak memory."""
    return COST / f"{stage}.json"


def failure_report(stage: str) -> Path:
    """The report of a stage that stopped; outside every out, because DVC deletes those."""
    return REPORTS / f"{stage}-failure.md"
