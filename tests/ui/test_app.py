"""The search page as people use it: with a mouse, with the keyboard alone, narrow, at night."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.app.serving import (
    HOSTILE,
    PARTS,
    ZOO,
    Server,
    make_shelf,
    make_weights,
    start,
    stop,
)
from tests.ui.conftest import WAIT_MS

pytestmark = pytest.mark.timeout(600)

LOADED = "Drag or use the arrow keys to turn it"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("app")
    weights = make_weights(root)
    started = start(weights, *make_shelf(root, weights), root / "cache", "--max-upload-mb", "0.5")
    try:
        yield started
    finally:
        stop(started)


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    """The page in a fresh profile; it asks nobody but its server and has no errors."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    strangers: list[str] = []
    complaints: list[str] = []
    page.on(
        "request",
        lambda request: (
            strangers.append(request.url)
            if not request.url.startswith((f"{server.address}/", "blob:", "data:"))
            else None
        ),
    )

    def complain(text: str) -> None:
        # A part whose file has changed is refused: the page says so, and the console does, too.
        if "Failed to load resource" not in text and "responded with 404" not in text:
            complaints.append(text)

    page.on("console", lambda said: complain(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: complain(str(error)))
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    page.goto(server.address)
    yield page
    context.close()
    assert strangers == []
    assert complaints == []  # the policy's violations among them


def says(page: Any, text: str, where: str = "p#status") -> None:
    expect(page.locator(where)).to_contain_text(text)


def search(page: Any, text: str) -> None:
    page.fill("#q", text)
    page.press("#q", "Enter")
    says(page, f"for “{text}”, best first")


def drawn(page: Any) -> None:
    """Wait until every picture is there, and see that each is one."""
    for image in page.locator(".card img").all():
        image.evaluate("image => image.decode()")
        assert image.evaluate("image => image.naturalWidth") == 480


def card(page: Any, name: str) -> Any:
    return page.locator(".card", has=page.get_by_text(name, exact=True))


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.id || document.activeElement.className"))


def test_a_search_shows_pictures_and_a_part_that_turns(
    page: Any, screenshot: Callable[..., Path]
) -> None:
    search(page, "a box")
    expect(page.locator(".card")).to_have_count(len(PARTS))
    card(page, "pipes/cylinder.step").click()
    says(page, "pipes/cylinder.step", "#part-name")
    says(page, LOADED, "#view-note")
    expect(page.locator("#facts")).to_contain_text(re.compile("Faces3(?!\\d).* mm³"))
    turned = "document.querySelector('model-viewer').getCameraOrbit().theta"
    before = page.evaluate(turned)
    page.keyboard.press("Tab")  # from the part's name into its view
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    page.wait_for_function(f"before => {turned} !== before", arg=before)
    drawn(page)
    screenshot(page, "app-search")


def test_the_view_is_not_blank(page: Any) -> None:
    """A part in light and shade, and its edges: several colours, not one."""
    search(page, "ball")
    card(page, "ball.step").click()
    says(page, "ball.step", "#part-name")
    says(page, LOADED, "#view-note")
    page.wait_for_function("""async () => {
        const blob = await document.querySelector("model-viewer").toBlob();
        const image = await createImageBitmap(blob);
        const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
        canvas.drawImage(image, 0, 0);
        const {data} = canvas.getImageData(0, 0, image.width, image.height);
        const seen = new Set();
        for (let at = 0; at < data.length; at += 4) if (data[at + 3]) seen.add(data[at] >> 4);
        return seen.size > 3;
    }""")


def test_more_like_this_and_back(page: Any) -> None:
    search(page, "a box")
    card(page, "cone.step").click()
    page.click("#like")
    says(page, "like cone.step, best first")
    expect(page.locator(".card")).to_have_count(len(PARTS) - 1)
    expect(card(page, "cone.step")).to_have_count(0)
    expect(page.locator(".card").first).to_be_focused()
    expect(page).to_have_url(re.compile("like=cone.step"))
    page.go_back()
    says(page, "for “a box”, best first")
    expect(page.locator("#q")).to_have_value("a box")


def test_filters_are_in_the_address(page: Any) -> None:
    page.click("#filters summary")
    page.fill("[name=min_faces]", "6")
    says(page, "(1 on)", "#filters-on")
    search(page, "a box")
    assert 0 < page.locator(".card").count() < len(PARTS)
    found = page.locator(".card").count()
    page.reload()
    says(page, "for “a box”")
    expect(page.locator(".card")).to_have_count(found)
    expect(page.locator("[name=min_faces]")).to_have_value("6")
    page.fill("[name=min_faces]", "5000")
    page.press("[name=min_faces]", "Enter")
    says(page, "No part passes these filters.")
    expect(page.locator("#part")).to_be_hidden()


def test_a_chosen_step_file_is_searched_by_shape(
    page: Any, screenshot: Callable[..., Path]
) -> None:
    page.set_input_files("#file", ZOO / "sphere.step")
    says(page, "shaped like sphere.step, best first")
    says(page, "ball.step", "#part-name")
    says(page, LOADED, "#view-note")
    drawn(page)
    screenshot(page, "app-upload")


def test_a_dropped_step_file_is_searched_by_shape(page: Any) -> None:
    content = (ZOO / "cone_apex.step").read_text()
    carried = page.evaluate_handle(
        """content => {
            const carried = new DataTransfer();
            carried.items.add(new File([content], "dropped.step"));
            return carried;
        }""",
        content,
    )
    page.dispatch_event("#drop", "dragenter", {"dataTransfer": carried})
    expect(page.locator("body")).to_have_class("dragging")
    page.dispatch_event("#drop", "drop", {"dataTransfer": carried})
    says(page, "shaped like dropped.step, best first")
    says(page, "cone.step", "#part-name")
    expect(page.locator("body")).not_to_have_class("dragging")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("html_404.step", "the file: unreadable: is a web page or XML, not STEP"),
        ("truncated_mid_entity.step", "the file: unreadable: "),
        ("nan_coord.step", "the file: "),
        ("open_shell.step", "the file: no_solid: "),
        ("empty_0_bytes.step", "the file is empty"),
    ],
)
def test_a_bad_file_is_said_and_the_page_lives(
    page: Any, name: str, said: str, screenshot: Callable[..., Path]
) -> None:
    page.set_input_files("#file", ZOO / name)
    says(page, said)
    expect(page.locator("p#status.bad")).to_have_count(1)
    if name == "html_404.step":
        screenshot(page, "app-bad-upload")
    search(page, "a box")
    expect(page.locator("p#status.bad")).to_have_count(0)


def test_a_file_that_is_too_large_is_not_even_sent(page: Any, tmp_path: Path) -> None:
    (tmp_path / "large.step").write_bytes(b"x" * 600_000)
    page.set_input_files("#file", tmp_path / "large.step")
    says(page, "large.step is too large; allowed are 0.5 MB.")


def test_by_keyboard_alone(page: Any) -> None:
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.type("a box")
    page.keyboard.press("Enter")
    says(page, "for “a box”")
    for _ in range(8):
        page.keyboard.press("Tab")
        if focused(page) == "card":
            break
    expect(page.locator(".card").first).to_be_focused()
    expect(page.locator(":focus")).to_have_css("outline-style", "solid")
    order = page.locator(".card .name").all_text_contents()

    def press(key: str, at: str) -> None:
        """Press a key; then the card of this name is the one that has the focus."""
        page.keyboard.press(key)
        expect(page.locator(".card:focus .name")).to_have_text(at)

    press("ArrowRight", order[1])
    press("End", order[-1])
    press("ArrowRight", order[-1])  # there is no more
    press("Home", order[0])
    page.keyboard.press("ArrowDown")
    expect(page.locator(".card:focus .name")).not_to_have_text(order[0])
    assert order.index(page.locator(".card:focus .name").text_content()) > 1
    press("ArrowUp", order[0])
    seen = [name for name in order[1:] if name not in ("gone.step", "changed.step")]
    chosen = seen[0]  # those two have no view
    for name in order[1 : order.index(chosen) + 1]:
        press("ArrowRight", name)
    page.keyboard.press("Enter")
    expect(page.locator("#part-name")).to_be_focused()
    says(page, chosen, "#part-name")
    says(page, LOADED, "#view-note")
    for wanted in ("model-viewer", "#like", "#step"):
        page.keyboard.press("Tab")
        expect(page.locator(wanted)).to_be_focused()
    press("Escape", chosen)


def test_a_hostile_name_is_only_shown(page: Any, server: Server) -> None:
    """Were it taken for HTML, its onerror would open a dialog, which the fixture finds."""
    search(page, "a box")
    shown = HOSTILE.replace("\u202e", "\\u202e")
    card(page, shown).click()
    says(page, shown, "#part-name")
    says(page, LOADED, "#view-note")
    page.click("#like")
    says(page, f"like {shown}")
    page.goto(f"{server.address}/?q=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    says(page, "for “<img src=x onerror=alert(1)>”")
    expect(page.locator("img[src=x]")).to_have_count(0)


def test_a_part_whose_file_is_gone_has_its_facts(page: Any) -> None:
    search(page, "a box")
    card(page, "gone.step").click()
    says(page, "The STEP file is gone: no picture, no 3D view.", "#view-note")
    says(page, "Volume", "#facts")
    expect(page.locator("#step")).to_be_hidden()
    says(page, "no picture", ".card[aria-current] .picture")
    card(page, "changed.step").click()
    says(page, "No 3D view: the STEP file of this part has changed", "#view-note")


def test_a_server_that_went_away_is_said(page: Any) -> None:
    page.context.set_offline(True)
    page.fill("#q", "a box")
    page.press("#q", "Enter")
    says(page, "The server does not answer")
    page.context.set_offline(False)
    search(page, "a box")


def test_nothing_asked(page: Any) -> None:
    expect(page.locator("#examples")).to_be_visible()
    page.press("#q", "Enter")
    says(page, "Say what the part looks like, or drop a STEP file.")
    page.goto(page.url)
    page.click(".example >> nth=0")
    says(page, "for “hex flange bolt, M8, 40 mm long”")
    expect(page.locator("#examples")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_everybody_can_use_it(
    page: Any, scheme: str, width: int, screenshot: Callable[..., Path]
) -> None:
    """axe finds nothing, in whatever state the page is; and nothing sticks out of the screen."""
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    sound(page, f"app-empty-{scheme}-{width}", screenshot)
    page.click("#filters summary")
    search(page, "a box")
    card(page, "box.step").click()
    says(page, LOADED, "#view-note")
    drawn(page)
    sound(page, f"app-{scheme}-{width}", screenshot)
    page.set_input_files("#file", ZOO / "html_404.step")
    says(page, "is a web page or XML")
    sound(page, f"app-bad-{scheme}-{width}", screenshot)


def sound(page: Any, name: str, screenshot: Callable[..., Path]) -> None:
    from axe_playwright_python.sync_playwright import Axe

    screenshot(page, name)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    sticks_out = "document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth"
    assert page.evaluate(sticks_out) <= 0
