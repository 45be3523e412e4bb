"""The few harmless classes that people's checkpoints carry, allowed by name.

``torch.load(weights_only=True)`` refuses every class it does not know. Those below hold plain
data; most of them are read as stand-ins of ours, so that neither NumPy's nor pathlib's own code
runs on bytes from a stranger. Anything else is refused by its name.
"""

from __future__ import annotations

import argparse
import pickle
import types
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import torch

from brepfind.errors import CheckpointError

_NUMBER_KINDS = "biufc"  # booleans, integers, floats, complex: no objects, text or records


class NumpyDtype:
    """A NumPy dtype of plain numbers, rebuilt from its pickled code, such as ``f8``."""

    def __init__(self, code: str, align: bool = False, copy: bool = True) -> None:
        self.dtype = _number_dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1]
        if order in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(order)


class NumpyArray:
    """A NumPy array of plain numbers; ``array`` is set when its state arrives."""

    array: np.ndarray | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, NumpyDtype) or not isinstance(data, bytes):
            raise pickle.UnpicklingError("a NumPy array that does not hold plain numbers")
        flat = np.frombuffer(data, dtype.dtype)
        array = flat.reshape(shape, order="F" if fortran else "C")
        self.array = array.astype(dtype.dtype.newbyteorder("="))

    def tensor(self) -> torch.Tensor:
        """The array as a tensor; in double precision where torch has no such dtype.

        Raises:
            CheckpointError: the file has the array without its values.
        """
        if self.array is None:
            raise CheckpointError("a NumPy array in it has no values; the file is not whole")
        whole = np.ascontiguousarray(self.array).reshape(self.array.shape)
        try:
            return torch.from_numpy(whole)
        except TypeError:  # long doubles: what is not finite stays so
            double = np.complex128 if whole.dtype.kind == "c" else np.float64
            with np.errstate(over="ignore"):
                return torch.from_numpy(whole.astype(double))


class Text(str):
    """A subclass of ``str`` read as plain text, such as torch's version."""

    __slots__ = ()


def _number_dtype(code: str) -> np.dtype:
    try:
        dtype = np.dtype(str(code))
    except TypeError as error:
        raise pickle.UnpicklingError(f"NumPy dtype {code!r}") from error
    if dtype.kind not in _NUMBER_KINDS:
        raise pickle.UnpicklingError(f"NumPy dtype {code!r}, which is not a plain number")
    return dtype


def _numpy_scalar(dtype: NumpyDtype, data: bytes) -> Any:
    if not isinstance(dtype, NumpyDtype) or not isinstance(data, bytes):
        raise pickle.UnpicklingError("a NumPy scalar that is not a plain number")
    value = np.frombuffer(data, dtype.dtype, count=1)[0]
    return float(value) if isinstance(value, np.longdouble) else value.item()


def _numpy_array(*_: Any) -> NumpyArray:
    return NumpyArray()


def _path(*parts: str) -> PurePosixPath:
    return PurePosixPath(*map(str, parts))


def safe_globals() -> list[Callable[..., Any] | tuple[Callable[..., Any], str]]:
    """What to pass to ``torch.serialization.safe_globals``."""
    allowed: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
        argparse.Namespace,
        types.SimpleNamespace,
        (Text, "torch.torch_version.TorchVersion"),
        (NumpyDtype, "numpy.dtype"),
        (NumpyArray, "numpy.ndarray"),
    ]
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        allowed += [(_numpy_scalar, f"{module}.scalar"), (_numpy_array, f"{module}._reconstruct")]
    for module in ("pathlib", "pathlib._local"):
        for flavour in ("Path", "PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath"):
            allowed.append((_path, f"{module}.{flavour}"))
    return allowed
