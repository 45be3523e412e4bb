"""A file written piece by piece has the bytes that safetensors itself writes."""

import io
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from brepfind.graphs.tensor_file import TensorFile

TENSORS = {
    "b": np.arange(12, dtype=np.float32).reshape(4, 3),
    "a": np.arange(5, dtype=np.float32),
    "offsets": np.array([0, 2, 4], np.int64),
    "small": np.array([[1, 2], [3, 4], [5, 6]], np.uint8),
    "whole": np.array([7, -7], np.int32),
    "half": np.array([0.5], np.float16),
    "none": np.zeros((0, 3), np.float32),
}


@pytest.mark.parametrize("metadata", [None, {"brepfind": '{"ids":["bø"]}'}])
def test_the_bytes_are_those_of_save_file(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    shapes = {name: (value.dtype.name, value.shape) for name, value in TENSORS.items()}
    with (tmp_path / "ours").open("wb") as file:
        ours = TensorFile(file, shapes, metadata)
        for name in reversed(TENSORS):
            value = TENSORS[name]
            for row in reversed(range(len(value))):  # in any order, in any pieces
                ours.write(name, row, value[row : row + 1])
    save_file(TENSORS, tmp_path / "theirs", metadata=metadata)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert load_file(tmp_path / "ours").keys() == TENSORS.keys()


@pytest.mark.parametrize(
    ("row", "values"),
    [
        (0, np.zeros((1, 3))),  # float64
        (0, np.zeros((1, 2), np.float32)),
        (0, np.zeros(3, np.float32)),
        (3, np.zeros((2, 3), np.float32)),  # one row past the end
    ],
)
def test_what_does_not_fit_its_place_is_refused(tmp_path: Path, row: int, values) -> None:
    with (tmp_path / "ours").open("wb") as file:
        ours = TensorFile(file, {"b": ("float32", (4, 3)), "c": ("float32", (4, 3))})
        with pytest.raises(AssertionError, match="b"):
            ours.write("b", row, values)


@pytest.mark.parametrize("size", [47, 49])
def test_a_copy_of_another_length_is_refused(tmp_path: Path, size: int) -> None:
    with (tmp_path / "ours").open("wb") as file, pytest.raises(AssertionError, match=str(size)):
        TensorFile(file, {"b": ("float32", (4, 3))}).copy("b", io.BytesIO(bytes(size)))
