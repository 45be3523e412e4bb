"""A part's picture shows its faces in the colours of their types."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from brepfind.cad.arrays import FACE_TYPES
from brepfind.errors import InputError
from brepfind.report.picture import COLOURS

ZOO = Path(__file__).parents[1] / "fixtures" / "cad" / "zoo"


def hue(colour: np.ndarray) -> np.ndarray:
    """A colour without its brightness, which is the light's."""
    return colour / colour.max(axis=-1, keepdims=True)


def test_the_picture_has_the_colours_of_the_types_and_no_others(tmp_path: Path) -> None:
    out = tmp_path / "cylinder.png"
    asked = ["inspect", ZOO / "full_cylinder.step", "--picture", out]
    done = subprocess.run(
        [sys.executable, "-m", "brepfind.cli", *asked],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # VTK does not miss a display
    pixels = imread(out)[..., :3].reshape(-1, 3)
    assert len(pixels) == 1000 * 800
    lit = pixels[(np.ptp(pixels, axis=1) > 0.2)]  # neither white nor an outline
    assert len(lit) > 50_000
    wanted = {
        name: np.array([int(COLOURS[name][k : k + 2], 16) for k in (1, 3, 5)]) / 255
        for name in FACE_TYPES
    }
    nearest = np.argmin(
        [np.abs(hue(lit) - hue(colour)).sum(axis=1) for colour in wanted.values()], axis=0
    )
    shares = {name: float((nearest == k).mean()) for k, name in enumerate(wanted)}
    assert shares["cylinder"] > 0.3 and shares["plane"] > 0.1
    assert shares["cylinder"] + shares["plane"] > 0.95


def test_only_png(tmp_path: Path) -> None:
    from brepfind.report.picture import draw_part

    with pytest.raises(InputError, match=r"part\.jpg: a picture is a PNG"):
        draw_part(None, tmp_path / "part.jpg")  # type: ignore[arg-type]
