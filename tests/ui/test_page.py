"""The run's page in a real browser: wide, narrow, dark, on paper; no network, and for everyone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from brepfind.findings import Finding
from brepfind.report.page import write_page
from brepfind.report.run import Stop
from tests.report.a_run import make_run

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of a run that passed, and of one that stopped."""
    folder = tmp_path_factory.mktemp("page")
    failed = Finding(
        name="health.cad.mean_cosine",
        value=0.999,
        limit="<= 0.95",
        verdict="failed",
        advice="nearly all cad embeddings point one way",
    )
    stop = Stop(
        stage="health",
        reason="health.cad.mean_cosine is 0.999, asked is <= 0.95: " + "a_word_without_end" * 20,
        findings=[failed],
        evidence=".brepfind/postmortem/20260102T030405.000000-health-1",
    )
    passed = make_run(folder)
    before = ("prepare", "extract", "split", "sanitize", "train")
    stopped = make_run(
        folder,
        stop=stop,
        metrics={name: passed.metrics[name] for name in before},
        embeddings=None,
        pictures=None,
    )
    written = {}
    for name, run in (("passed", passed), ("stopped", stopped)):
        written[name] = folder / f"{name}.html"
        write_page(written[name], run)
    return written


@pytest.fixture(params=["passed", "stopped"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def look(browser: Any, pages: dict[str, Path]) -> Iterator[Any]:
    """Opens a page in a fresh profile; whatever it asks of a network, or complains of, fails."""
    contexts, odd = [], []

    def open_page(name: str, width: int = 1280, **settings: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        contexts.append(context)
        page = context.new_page()
        own = pages[name].as_uri()
        page.on(
            "request",
            lambda one: None if one.url.startswith((own, "data:")) else odd.append(one.url),
        )
        page.on("console", lambda message: odd.append(message.text))
        page.on("pageerror", lambda error: odd.append(str(error)))
        page.on("dialog", lambda dialog: (odd.append(dialog.message), dialog.dismiss()))
        page.goto(own)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not odd


def overflow(page: Any) -> list[str]:
    """What sticks out to the right, but for what scrolls by itself."""
    return page.evaluate(
        """() => [...document.querySelectorAll('body *')].filter(one =>
            one.getBoundingClientRect().right > document.documentElement.clientWidth + 1
            && !one.closest('.scroll, pre, svg')).map(one => one.outerHTML.slice(0, 120))"""
    )


def luminance(colour: str) -> float:
    red, green, blue = (int(part) for part in colour.strip("rgba()").split(",")[:3])
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_sticks_out(look: Any, screenshot: Any, name: str, width: int) -> None:
    page = look(name, width)
    screenshot(page, f"page-{name}-{width}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert overflow(page) == []


def test_every_picture_and_chart_is_there(look: Any) -> None:
    page = look("passed")
    widths = page.evaluate("[...document.images].map(one => one.naturalWidth)")
    assert len(widths) > 20 and set(widths) == {320}
    sizes = page.evaluate(
        "[...document.querySelectorAll('figure > svg')].map(one => one.clientHeight)"
    )
    assert len(sizes) > 20 and min(sizes) > 100


def test_dark_is_dark(look: Any, screenshot: Any, name: str) -> None:
    page = look(name, color_scheme="dark")
    screenshot(page, f"page-{name}-dark")
    colours = {
        what: page.evaluate(f"getComputedStyle(document.querySelector('{where}')).{of}")
        for what, where, of in (
            ("paper", "body", "backgroundColor"),
            ("ink", "body", "color"),
            ("chart", "svg text.title", "fill"),
            ("line", "svg .line.c1", "stroke"),
        )
    }
    assert luminance(colours.pop("paper")) < 0.15
    assert all(luminance(colour) > 0.5 for colour in colours.values()), colours


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing(look: Any, name: str, width: int, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = look(name, width, color_scheme=scheme, bypass_csp=True)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    found = Axe().run(page)
    assert found.response["violations"] == [], found.generate_report()


def test_it_can_be_printed(look: Any, tmp_path: Path, name: str) -> None:
    # On paper it is light even where the screen is dark, and what was folded away is there.
    page = look(name, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert luminance(paper) > 0.95
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    pdf = page.pdf(path=tmp_path / "page.pdf", format="A4", print_background=True)
    assert pdf.startswith(b"%PDF") and len(pdf) > 50_000
    folded = page.locator("details pre, details table").last
    assert folded.evaluate("one => one.checkVisibility({contentVisibilityAuto: true})")


def test_links_of_the_contents_lead_somewhere_by_keyboard(look: Any) -> None:
    page = look("passed")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#retrieval$"))
    top = "document.getElementById('retrieval').getBoundingClientRect().top"
    page.wait_for_function(f"Math.abs({top}) < 5")


def test_the_verdict_is_seen_at_once(look: Any, name: str) -> None:
    page = look(name, 390)
    box = page.locator(".verdict .said").bounding_box()
    assert box is not None and box["y"] + box["height"] < 300
    assert page.title().startswith({"passed": "Every gate", "stopped": "It stopped at"}[name])
