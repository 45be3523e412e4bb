import logging
from collections.abc import Iterator

import pytest

from brepfind.log import get_logger, progress, setup_logging


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    logger = logging.getLogger("brepfind")
    before = (logger.level, logger.propagate, logger.handlers[:])
    yield
    logger.level, logger.propagate, logger.handlers[:] = before[0], before[1], before[2]


@pytest.mark.parametrize(
    ("rank", "expected"),
    [
        (None, "INFO one\nWARNING two\n"),
        ("0", "INFO [rank 0] one\nWARNING [rank 0] two\n"),
        ("3", "WARNING [rank 3] two\n"),
    ],
)
def test_ranks_above_zero_only_warn(
    rank: str | None,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    setup_logging()
    logger = get_logger("brepfind.somewhere")
    logger.info("%s", "one")
    logger.warning("two")
    assert capsys.readouterr().err == expected


def test_progress_is_silent_when_piped(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("working", 3) as bar:
        bar.advance()
    assert capsys.readouterr() == ("", "")
