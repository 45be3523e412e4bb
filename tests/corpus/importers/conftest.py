"""Small folders in the layouts of the data sets, of real STEP files."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

BOX = Path(__file__).resolve().parents[2] / "fixtures/corpus/box.step"


@pytest.fixture
def steps(tmp_path: Path) -> Callable[..., Path]:
    """Make ``data/`` with a real STEP file at each of the given paths."""

    def make(*paths: str) -> Path:
        root = tmp_path / "data"
        for path in paths:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(BOX, root / path)
        return root

    return make
