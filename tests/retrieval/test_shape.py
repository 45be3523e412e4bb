import os
from pathlib import Path

import pytest

from brepfind.errors import InputError
from brepfind.retrieval.shape import Limits, read_shape

ZOO = Path(__file__).parents[1] / "fixtures" / "cad" / "zoo"


def test_a_step_file_becomes_a_graph():
    part = read_shape(ZOO / "ok_box.step", grid=5, max_faces=6)
    assert part.face_grid.shape[:2] == (6, 5)


@pytest.mark.parametrize(
    ("make", "limits", "complaint"),
    [
        (lambda path: None, {}, "cannot be opened"),
        (lambda path: path.mkdir(), {}, "is no file"),
        (os.mkfifo, {}, "is no file"),
        (lambda path: path.write_bytes(b"x" * 2000), {"max_mb": 0.001}, "has 0 MB, allowed are"),
        (lambda path: path.write_bytes(b"<html>"), {}, "unreadable: is a web page"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_query_is_said(tmp_path, make, limits, complaint):
    make(tmp_path / "query.step")
    with pytest.raises(InputError, match=rf"^{tmp_path}/query\.step: {complaint}"):
        read_shape(tmp_path / "query.step", grid=5, max_faces=6, limits=Limits(**limits))


def test_too_many_faces_for_the_model():
    with pytest.raises(InputError, match=r"^mine: too_many_faces: it has 6 faces, allowed are 5"):
        read_shape(ZOO / "ok_box.step", grid=5, max_faces=5, name="mine")
