"""The browser that the other tests of this folder drive is one that can show what they look at."""

from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_it_draws_in_three_dimensions_and_reaches_nothing(
    browser: Any, screenshot: Callable[..., Path]
) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_content("<title>here</title><canvas></canvas>")
    context = "document.querySelector('canvas').getContext('webgl2') !== null"
    assert page.evaluate(context) is True
    assert page.title() == "here"
    assert asked == []
    assert screenshot(page, "browser").stat().st_size > 0
    page.context.close()
