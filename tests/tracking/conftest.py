"""A model that was trained and indexed, in small, written as MLflow keeps it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from brepfind.retrieval.embed import embed_parts
from brepfind.retrieval.index import make_index, write_index
from brepfind.retrieval.model import load_trained
from brepfind.retrieval.parts import part_table
from brepfind.tracking.package import write_model
from tests.retrieval.conftest import dual, tower_folder, weights, world
from tests.tracking.standings import standing

__all__ = ["dual", "tower_folder", "weights", "world"]

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory, weights: Path, world: SimpleNamespace) -> Path:
    """The index of the world's parts, made by the trained model."""
    trained, folder = load_trained(weights), tmp_path_factory.mktemp("index") / "index"
    store = world.reader.store
    _, vectors = embed_parts(trained.model, world.reader, world.ids)
    facts = part_table(store, world.ids, "step")
    write_index(folder, make_index(vectors, facts, trained.digest, grid=store.grid))
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, weights: Path, index: Path) -> Path:
    """The model's folder."""
    folder = tmp_path_factory.mktemp("kept") / "model"
    write_model(
        folder,
        load_trained(weights),
        index,
        lock=LOCK,
        example="a plate",
        standing=standing([0.5] * 20),
        notes={"weights": "w" * 64},
    )
    return folder
