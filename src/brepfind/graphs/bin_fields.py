"""The fields of a loaded graph file, each checked when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from brepfind.errors import InputError
from brepfind.graphs.backend import DGLGraph


class Fields:
    """One homogeneous graph with its fields and the arrays saved beside it."""

    def __init__(self, graph: DGLGraph, saved: Mapping[str, Tensor], path: Path) -> None:
        self.graph = graph
        self.face = dict(graph.ndata)
        self.edge = dict(graph.edata)
        self.saved = dict(saved)
        self.path = path
        self.n_faces = int(graph.num_nodes())
        self.n_edges = int(graph.num_edges())

    def array(
        self, of: Literal["face", "edge", "saved"], name: str, *tail: int, infinite: bool = False
    ) -> NDArray[Any]:
        """A field as an array; -1 in ``tail`` stands for any size.

        Raises:
            InputError: if it is missing, has another shape, or holds NaN (or infinity).
        """
        fields: dict[str, Tensor] = getattr(self, of)
        what = {"face": "ndata", "edge": "edata", "saved": "label"}[of]
        if name not in fields:
            raise InputError(f"{self.path}: has no {what} {name!r}")
        value = fields[name].numpy()
        rows = self.n_edges if of == "edge" else self.n_faces
        shape = (rows, *tail)
        if value.ndim != len(shape) or any(
            want not in (-1, got) for got, want in zip(value.shape, shape, strict=True)
        ):
            asked = tuple("any" if want == -1 else want for want in shape)
            raise InputError(f"{self.path}: {what} {name!r} is {value.shape}, must be {asked}")
        good = ~np.isnan(value) if infinite else np.isfinite(value)
        if not good.all():
            bad = np.argwhere(~good)[0].tolist()
            hint = "; read it with recompute=True to leave its matrices" if of == "saved" else ""
            raise InputError(f"{self.path}: {what} {name!r} is not finite at {bad}{hint}")
        return value

    def ends(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Source and target face of each edge."""
        src, dst = (ends.numpy().astype(np.int64) for ends in self.graph.edges())
        both = np.concatenate([src, dst])
        if both.size and not (both.min() >= 0 and both.max() < self.n_faces):
            raise InputError(f"{self.path}: an edge leads to a face outside 0..{self.n_faces - 1}")
        return src.astype(np.int32), dst.astype(np.int32)

    def codes(
        self, of: Literal["face", "edge"], name: str, slots: int, otherwise: int | None
    ) -> NDArray[np.uint8]:
        """A one-hot field as codes; ``otherwise`` is the code of a row of zeros, if one may be."""
        hot = self.flags(of, name, slots)
        total = hot.sum(axis=1)
        bad = np.flatnonzero((total > 1) | ((total < 1) & (otherwise is None)))
        if len(bad):
            raise InputError(f"{self.path}: row {bad[0]} of {of} field {name!r} is not one-hot")
        codes = hot.argmax(axis=1).astype(np.uint8)
        if otherwise is not None:
            codes[total == 0] = otherwise
        return codes

    def flags(self, of: Literal["face", "edge"], name: str, *tail: int) -> NDArray[np.uint8]:
        """A field of zeros and ones."""
        value = self.array(of, name, *tail)
        if not np.isin(value, (0, 1)).all():
            raise InputError(f"{self.path}: {of} field {name!r} holds other numbers than 0 and 1")
        return value.astype(np.uint8)

    def floats(
        self, of: Literal["face", "edge", "saved"], name: str, *tail: int
    ) -> NDArray[np.float32]:
        """A field of numbers."""
        return self.array(of, name, *tail).astype(np.float32, copy=False)
