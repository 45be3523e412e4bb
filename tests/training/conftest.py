import sys
from pathlib import Path

import pytest

# Ranks import the test's module by name, in a process of their own.
ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph store, a corpus, a split and a text tower in one folder."""
    from tests.training.tiny import make_inputs, make_tower

    root = tmp_path_factory.mktemp("inputs")
    make_tower(root / "tower")
    make_inputs(root)
    return root
