"""The triangles that pictures are drawn from are the part's."""

from pathlib import Path

import numpy as np
import pytest

from brepfind.cad.arrays import FACE_TYPES
from brepfind.cad.extract import extract_file
from brepfind.cad.mesh import PartMesh, mesh_file
from tests.cad.test_pool import ZOO, config


def volume(mesh: PartMesh) -> float:
    """By the divergence theorem, positive only if the triangles look outwards."""
    a, b, c = np.moveaxis(mesh.points[mesh.triangles], 1, 0)
    return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6)


def box_area(mesh: PartMesh, face: int) -> float:
    a, b, c = np.moveaxis(mesh.points[mesh.triangles[mesh.triangle_face == face]], 1, 0)
    return float(np.linalg.norm(np.cross(b - a, c - a), axis=1).sum() / 2)


def test_a_box_is_twelve_triangles_in_millimetres() -> None:
    for name in ("ok_box.step", "unit_inch.step"):
        (mesh,) = mesh_file(ZOO / name, config())
        assert len(mesh.triangles) == 12
        assert {FACE_TYPES[code] for code in mesh.face_type} == {"plane"}
        assert volume(mesh) == pytest.approx(6000)
        areas = sorted(box_area(mesh, face) for face in range(6))
        assert areas == pytest.approx([200, 200, 300, 300, 600, 600])
        assert len(mesh.outlines) == 24  # each of the 12 edges from both of its faces


@pytest.mark.parametrize(
    "name", ["cone_apex.step", "sphere.step", "full_cylinder.step", "spline_face.step"]
)
def test_types_and_volume_are_those_of_the_graph(name: str) -> None:
    (mesh,), (part,) = mesh_file(ZOO / name, config()), extract_file(ZOO / name, config())
    assert sorted(mesh.face_type) == sorted(part.face_type)
    assert volume(mesh) == pytest.approx(part.facts.volume, rel=0.03)


def test_all_solids_are_there_and_seams_are_not_drawn() -> None:
    (mesh,) = mesh_file(ZOO / "two_solids_apart.step", config())
    assert len(mesh.face_type) == 12
    (cylinder,) = mesh_file(ZOO / "full_cylinder.step", config())
    assert len(cylinder.outlines) == 4  # two circles, each from both of its faces


def test_a_foreign_file_is_refused() -> None:
    with pytest.raises(Exception, match="unreadable"):
        mesh_file(Path(ZOO / "html_404.step"), config())
