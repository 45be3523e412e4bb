"""Pictures of parts: drawn to scale, with their edges, kept, and what cannot be drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from brepfind.errors import InputError
from brepfind.report.drawing import SIZE, round_length
from brepfind.report.part_pictures import (
    Pictures,
    part_picture,
    part_pictures,
    picture_key,
)

ZOO = Path(__file__).parents[1] / "fixtures" / "cad" / "zoo"
BOX, CYLINDER, INCHES = (ZOO / f"{name}.step" for name in ("ok_box", "full_cylinder", "unit_inch"))
HTML, EMPTY = ZOO / "html_404.step", ZOO / "empty_0_bytes.step"
FOOT = SIZE[1] - 50  # the scale bar is below


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pictures")


@pytest.fixture(scope="module")
def drawn(folder: Path) -> Pictures:
    """By one worker, one after the other."""
    files = {"box": BOX, "cylinder": CYLINDER, "inches": INCHES, "html": HTML, "empty": EMPTY}
    return part_pictures(files.items(), folder)


def pixels(path: Path) -> NDArray[np.int64]:
    with Image.open(path) as image:
        assert (image.format, image.size) == ("PNG", SIZE)
        return np.asarray(image.convert("RGB")).astype(int)


def test_a_picture_is_to_scale(drawn: Pictures) -> None:
    picture = pixels(drawn.paths["box"])  # 10 x 20 x 30 mm
    across = np.flatnonzero((picture[:FOOT] < 200).any(axis=(0, 2)))
    up = np.flatnonzero((picture[:FOOT] < 200).any(axis=(1, 2)))
    bar = np.flatnonzero((picture[SIZE[1] - 20, : SIZE[0] // 2] < 100).all(axis=1))
    bar = bar[bar < bar[0] + np.argmax(np.diff(bar, append=9999) > 1) + 1]  # without its number
    pixels_per_mm = (bar[-1] - bar[0]) / 20  # 20 mm is the longest that has room
    # In an isometric drawing, whose axes are not shortened, they run at 30 degrees, or upright.
    assert np.ptp(across) / pixels_per_mm == pytest.approx((10 + 20) * np.cos(np.pi / 6), rel=0.02)
    assert np.ptp(up) / pixels_per_mm == pytest.approx(30 + (10 + 20) / 2, rel=0.02)


def test_the_same_part_in_another_unit_is_the_same_picture(drawn: Pictures) -> None:
    box, inches = pixels(drawn.paths["box"]), pixels(drawn.paths["inches"])
    assert np.abs(box - inches).mean() < 0.5
    assert np.abs(box - pixels(drawn.paths["cylinder"])).mean() > 5


def test_edges_are_those_of_the_part_and_not_of_its_triangles(drawn: Pictures) -> None:
    # A cylinder lies from lower left to upper right: only its two circles are dark.
    picture = pixels(drawn.paths["cylinder"])[:FOOT]
    dark = (picture.max(axis=2) < 80).sum() / (picture.min(axis=2) < 250).sum()
    assert 0.002 < dark < 0.03


def test_a_window_used_before_draws_the_same(drawn: Pictures, tmp_path: Path) -> None:
    alone = part_picture(CYLINDER, tmp_path, key="cylinder")
    assert alone.read_bytes() == drawn.paths["cylinder"].read_bytes()


def test_what_cannot_be_drawn_says_why_and_is_counted(drawn: Pictures) -> None:
    assert drawn.failed == {
        "html": "is a web page or XML, not STEP; the download went wrong",
        "empty": "is 0 bytes long",
    }
    assert drawn.drawn == 5
    with Image.open(drawn.paths["html"]) as image:
        assert image.info["Reason"] == drawn.failed["html"]
    assert pixels(drawn.paths["html"])[5:-5, 5:-5].min() < 100  # it is written on it


def test_pictures_are_kept_by_key_and_bad_ones_drawn_again(drawn: Pictures, folder: Path) -> None:
    again = part_pictures([("box", BOX), ("html", HTML)], folder)
    assert again.drawn == 0
    assert again.failed == {"html": drawn.failed["html"]}
    whole = drawn.paths["box"].read_bytes()
    drawn.paths["box"].write_bytes(whole[: len(whole) // 2])
    assert part_pictures([("box", BOX)], folder).drawn == 1
    assert drawn.paths["box"].read_bytes() == whole


def test_a_part_out_of_time_is_tried_again_another_day(tmp_path: Path) -> None:
    first = part_pictures([("box", BOX)], tmp_path, timeout_s=0.001)
    assert first.failed == {"box": "took longer than 0.001 s"}
    assert pixels(first.paths["box"]).min() < 100
    second = part_pictures([("box", BOX)], tmp_path)
    assert second.failed == {} and second.drawn == 1


def test_a_missing_file_is_not_held_against_its_key(tmp_path: Path) -> None:
    step = tmp_path / "later.step"
    assert part_pictures([("a", step)], tmp_path).failed == {"a": "the file does not exist"}
    step.write_bytes(BOX.read_bytes())
    assert part_pictures([("a", step)], tmp_path).failed == {}


@pytest.mark.parametrize("key", ["", "../up", "a/b", "a.b", "x" * 101, "a\n"])
def test_a_key_is_no_path(key: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot name a picture"):
        part_picture(BOX, tmp_path, key=key)


def test_the_key_of_a_file_is_its_digest() -> None:
    assert picture_key(BOX) == picture_key(BOX) != picture_key(CYLINDER)
    assert len(picture_key(BOX)) == 64


def test_lengths_of_the_bar_are_round() -> None:
    wanted = {0.99: 0.5, 1: 1, 1.99: 1, 2: 2, 4.9: 2, 5: 5, 9.9: 5, 10: 10, 349: 200, 0.0021: 0.002}
    assert {longest: round_length(longest) for longest in wanted} == pytest.approx(wanted)
