from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.serving import Server, make_shelf, make_weights, start, stop


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_weights(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory, weights: Path) -> tuple[Path, Path]:
    """The folder of parts and the index of them."""
    return make_shelf(tmp_path_factory.mktemp("shelf"), weights)


@pytest.fixture(scope="session")
def server(
    tmp_path_factory: pytest.TempPathFactory, weights: Path, shelf: tuple[Path, Path]
) -> Iterator[Server]:
    """A server that takes files of at most half a megabyte."""
    cache = tmp_path_factory.mktemp("cache")
    started = start(weights, *shelf, cache, "--max-upload-mb", "0.5", "--timeout", "15")
    try:
        yield started
    finally:
        stop(started)
