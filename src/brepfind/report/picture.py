"""A picture of a part, its faces coloured by type; drawn without a display."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np

from brepfind.cad.arrays import FACE_TYPES
from brepfind.cad.mesh import PartMesh
from brepfind.errors import InputError
from brepfind.files import write_bytes
from brepfind.report.drawing import outlines
from brepfind.report.offscreen import pyvista_offscreen

# One colour per face type, in its order; the first eight are those of Okabe and Ito, which people
# who do not see red and green apart can tell from each other.
COLOURS = dict(
    zip(
        FACE_TYPES,
        (
            "#56B4E9",  # plane
            "#E69F00",  # cylinder
            "#009E73",  # cone
            "#F0E442",  # sphere
            "#CC79A7",  # torus
            "#0072B2",  # revolution
            "#D55E00",  # extrusion
            "#999999",  # offset
            "#332288",  # other
            "#88CCEE",  # bezier
            "#AA4499",  # bspline
        ),
        strict=True,
    )
)

_SIZE = (1000, 800)  # pixels
_EDGE = "#202020"


def draw_part(mesh: PartMesh, out: Path) -> None:
    """Write a PNG: faces in the colours of their types, outlines, and a legend of the types there.

    Raises:
        InputError: if the name does not end in ``.png``.
    """
    if out.suffix.lower() != ".png":
        raise InputError(f"{out}: a picture is a PNG; name it something.png")
    pyvista = pyvista_offscreen()
    plotter = pyvista.Plotter(off_screen=True, window_size=list(_SIZE))
    try:
        plotter.set_background("white")
        kinds = mesh.face_type[mesh.triangle_face]
        legend = []
        for code in np.unique(kinds):
            name = FACE_TYPES[code]
            faces = int((mesh.face_type == code).sum())
            surface = pyvista.PolyData.from_regular_faces(
                mesh.points, mesh.triangles[kinds == code]
            )
            plotter.add_mesh(surface, color=COLOURS[name], ambient=0.4, diffuse=0.7)
            legend.append((f"{faces} {name}", COLOURS[name]))
        if mesh.outlines:  # a torus has none
            plotter.add_mesh(outlines(mesh), color=_EDGE, line_width=2)
        plotter.add_legend(
            legend,
            face="rectangle",
            loc="upper left",  # VTK lets long names stick out of the box to the right
            size=(0.12, 0.035 * (len(legend) + 0.5)),
        )
        plotter.enable_anti_aliasing("msaa", multi_samples=8)
        plotter.view_isometric()
        plotter.camera.zoom(1.1)
        picture = BytesIO()
        plotter.screenshot(picture, return_img=False)
    finally:
        plotter.close()
    write_bytes(out, picture.getvalue())
