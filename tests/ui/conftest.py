"""A real browser for the pages: Debian's Chromium, driven by Playwright; `make test-ui`.

Without Playwright these tests are not collected, and pytest's header says so.
"""

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HAS_PLAYWRIGHT = importlib.util.find_spec("playwright") is not None
collect_ignore_glob = [] if HAS_PLAYWRIGHT else ["test_*.py"]

# Screenshots stay here to be looked at; the folder is not committed.
SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
WAIT_MS = 90_000
QUIET = [
    "--no-sandbox",  # as root in a container there is none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-unsafe-swiftshader",  # WebGL without a graphics card, for the 3D view
]


def pytest_report_header() -> str | None:
    return None if HAS_PLAYWRIGHT else "tests/ui is left out: `make test-ui` installs its needs"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.ui)


def chromium() -> str:
    """The browser's path: $CHROMIUM, or the first one that is installed."""
    names = [os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"]
    found = [path for name in names if name and (path := shutil.which(name))]
    if not found:
        pytest.fail("no Chromium: install the package `chromium`, or name one in $CHROMIUM")
    return found[0]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A `playwright.sync_api.Browser`; each `new_context()` is a fresh profile."""
    from playwright.sync_api import expect, sync_playwright

    # What follows a key or a click is waited for with `expect`: a busy machine's browser is slow.
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium(), headless=True, args=QUIET, timeout=60_000
        )
        yield started
        started.close()


@pytest.fixture
def screenshot() -> Callable[..., Path]:
    """``screenshot(page, name, full_page=True)`` writes ``build/screenshots/NAME.png``."""

    def take(page: Any, name: str, full_page: bool = True) -> Path:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{name}.png"
        page.screenshot(path=path, full_page=full_page)
        return path

    return take
