"""One part as a small picture: an isometric view in one colour, its edges, and a scale bar.

The view is a true isometric one, in which the three axes are shortened alike, and the bar is as
long as its number along an axis, as in a drawing on isometric paper.
"""

from __future__ import annotations

import functools
import math
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

from brepfind.cad.extract import ExtractConfig
from brepfind.cad.mesh import PartMesh, mesh_file
from brepfind.report.offscreen import pyvista_offscreen

SIZE = (480, 360)  # pixels
# A change of anything that is seen gets a new number, and old pictures are not taken for it.
VERSION = 2

_FINER = 2  # drawn so many times as large and made smaller: smooth lines on any driver
_MARGIN, _FOOT = 16, 50  # pixels; the foot holds the scale bar
_PART, _EDGE, _PAPER, _INK = "#9db4c8", "#1d2733", "#ffffff", "#333333"
_SHORTENED = math.sqrt(2 / 3)  # of a length along an axis, in an isometric view
# A part this much longer along z than along anything else is laid down, to fill a wide picture.
_TALL = 1.8


def draw_file(path: Path, config: ExtractConfig) -> list[bytes]:
    """The one picture of a STEP file, as a PNG; call it in a worker, as
    :func:`~brepfind.cad.pool.work_on` does.

    Raises:
        RejectedPart: if it cannot be read or holds nothing to be seen.
    """
    return [draw_mesh(mesh) for mesh in mesh_file(path, config)]


def draw_mesh(mesh: PartMesh) -> bytes:
    """A mesh as a PNG of ``SIZE``, on white paper so that it reads on a dark page, too."""
    view = _View(mesh.points)
    image = Image.fromarray(_render(mesh, view)).resize(SIZE, Image.Resampling.BOX)
    _scale_bar(image, SIZE[0] / view.width * _SHORTENED)
    return _png(image)


def placeholder(reason: str) -> bytes:
    """What stands where a part could not be drawn; its text chunk ``Reason`` says why."""
    image = Image.new("RGB", SIZE, "#f3f3f3")
    draw = ImageDraw.Draw(image)
    draw.rectangle((1, 1, SIZE[0] - 2, SIZE[1] - 2), outline="#8a8a8a", width=2)
    middle = SIZE[0] / 2
    draw.text((middle, 150), "no picture", fill=_INK, font=_font(26), anchor="mm")
    short = reason if len(reason) <= 46 else reason[:45] + "…"
    draw.text((middle, 195), short, fill=_INK, font=_font(17), anchor="mm")
    return _png(image, reason)


class _View:
    """Where to look from, and how much is seen, for a part to fill the picture."""

    def __init__(self, points: NDArray[np.float64]) -> None:
        across = np.ptp(points, axis=0)
        upright = across[2] <= _TALL * max(across[0], across[1])
        # From the front, the right and above; a tall part has its z axis run to the right.
        toward = np.array([1.0, -1.0, 1.0]) / math.sqrt(3)
        up = np.array([0.0, 0.0, 1.0]) if upright else np.array([1.0, 0.0, 0.0])
        right = np.cross(up, toward)
        right /= np.linalg.norm(right)
        self.up = np.cross(toward, right)
        low, high = (
            np.array([pick(points @ axis) for axis in (right, self.up, toward)])
            for pick in (np.min, np.max)
        )
        middle = (low + high) / 2
        width, height = SIZE[0] - 2 * _MARGIN, SIZE[1] - _MARGIN - _FOOT
        mm_per_pixel = max((high[0] - low[0]) / width, (high[1] - low[1]) / height, 1e-9)
        # The part's middle is that of the room above the foot.
        middle[1] -= (_FOOT - _MARGIN) / 2 * mm_per_pixel
        self.depth = max(float(high[2] - low[2]), mm_per_pixel)
        self.focus = middle[0] * right + middle[1] * self.up + middle[2] * toward
        self.place = self.focus + 2 * self.depth * toward
        self.width, self.height = SIZE[0] * mm_per_pixel, SIZE[1] * mm_per_pixel


def _render(mesh: PartMesh, view: _View) -> NDArray[np.uint8]:
    plotter = _plotter()
    surface = pyvista_offscreen().PolyData.from_regular_faces(mesh.points, mesh.triangles)
    # Faces share no points, so that shading is smooth within a face and breaks between two.
    surface = surface.compute_normals(
        cell_normals=False, split_vertices=False, consistent_normals=False
    )
    plotter.add_mesh(
        surface,
        name="faces",
        color=_PART,
        smooth_shading=True,
        ambient=0.4,
        diffuse=0.7,
        render=False,
        reset_camera=False,
    )
    if mesh.outlines:  # a torus has none
        plotter.add_mesh(
            outlines(mesh),
            name="edges",
            color=_EDGE,
            line_width=1.3 * _FINER,
            render=False,
            reset_camera=False,
        )
    else:
        plotter.remove_actor("edges", render=False)
    camera = plotter.camera
    camera.position, camera.focal_point, camera.up = view.place, view.focus, view.up
    camera.parallel_projection = True
    camera.parallel_scale = view.height / 2
    camera.clipping_range = (view.depth, 3 * view.depth)
    plotter.render()  # after the first picture, a screenshot alone would be that of the last one
    return np.asarray(plotter.screenshot(return_img=True))


@functools.cache
def _plotter() -> Any:
    """One window for all pictures of a process: to open one costs more than to draw."""
    plotter = pyvista_offscreen().Plotter(
        off_screen=True, window_size=[side * _FINER for side in SIZE]
    )
    plotter.set_background(_PAPER)
    return plotter


def outlines(mesh: PartMesh) -> Any:
    """The edges of a part in the form VTK has them: each a count and its points."""
    lines = pyvista_offscreen().PolyData()
    lines.points = mesh.points
    lines.lines = np.concatenate([np.r_[len(line), line] for line in mesh.outlines])
    return lines


def round_length(longest: float) -> float:
    """The longest of 1, 2 and 5 times a power of ten that is no longer than ``longest`` mm."""
    power = 10.0 ** math.floor(math.log10(longest))
    return max(step * power for step in (1, 2, 5) if step * power <= longest * (1 + 1e-9))


def _in_words(mm: float) -> str:
    if mm < 0.1:
        return f"{1000 * mm:g} µm"
    return f"{mm:g} mm" if mm < 10_000 else f"{mm / 1000:,.0f} m"


def _scale_bar(image: Image.Image, pixels_per_mm: float) -> None:
    length = round_length(0.4 * SIZE[0] / pixels_per_mm)
    draw = ImageDraw.Draw(image)
    left, line = _MARGIN, SIZE[1] - 20
    right = left + round(length * pixels_per_mm)
    draw.line((left, line, right, line), fill=_INK, width=3)
    for end in (left, right):
        draw.line((end, line - 7, end, line + 7), fill=_INK, width=3)
    draw.text((right + 10, line), _in_words(length), fill=_INK, font=_font(25), anchor="lm")


def _font(size: int) -> ImageFont.FreeTypeFont:
    import matplotlib as mpl

    return ImageFont.truetype(Path(mpl.get_data_path()) / "fonts/ttf/DejaVuSans.ttf", size)


def _png(image: Image.Image, reason: str = "") -> bytes:
    told = PngInfo()
    if reason:
        told.add_itxt("Reason", reason)
    out = BytesIO()
    image.convert("RGB").save(out, format="png", pnginfo=told, optimize=True)
    return out.getvalue()
