"""Graphs of real parts for the benches' own tests."""

from pathlib import Path

import pytest

from brepfind.cad.arrays import PartArrays
from brepfind.graphs.bins import read_part

MODELS = Path(__file__).resolve().parents[1] / "fixtures/models"


@pytest.fixture(scope="session")
def parts() -> list[PartArrays]:
    return [read_part(MODELS / f"small_graph_{number}.bin") for number in range(3)]
