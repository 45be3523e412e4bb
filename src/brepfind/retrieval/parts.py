"""The facts of a part that an index keeps beside its vector, and where its STEP file lies."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from brepfind.errors import InputError
from brepfind.graphs.store import GraphStore

_BOX = [f"box_{end}_{axis}" for end in ("min", "max") for axis in "xyz"]
COLUMNS = ["model_id", "path", "sha256", "unit", *_BOX, "faces", "edges", "volume", "area",
           "solids", "signature"]  # fmt: skip


def part_table(store: GraphStore, ids: Sequence[str], root: str) -> pd.DataFrame:
    """A row per part for :func:`~brepfind.retrieval.index.make_index`, in the order of ``ids``.

    Args:
        root: the folder that the store's paths are relative to: absolute, or relative to the
            index's folder, so that a project that is moved keeps its parts.
    """
    found = store.manifest.set_index("model_id").loc[list(ids)].reset_index()[COLUMNS]
    return found.assign(root=root)


def root_from(root: Path, folder: Path, project: Path) -> str:
    """The ``root`` of :func:`part_table`: relative if it is in the project, so that the index is
    the same in every copy of it.
    """
    root, project = root.resolve(), project.resolve()
    if not root.is_relative_to(project):
        return root.as_posix()
    return PurePath(os.path.relpath(root, folder.resolve())).as_posix()


def step_file(folder: Path, facts: Mapping[str, Any]) -> Path | None:
    """Where the STEP file of a part is, or was; None if the index does not know.

    Args:
        folder: of the index. facts: the part's row.
    """
    if "root" not in facts or "path" not in facts:
        return None
    return folder / str(facts["root"]) / PurePosixPath(str(facts["path"]))


def size(facts: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """The sides of the bounding box, mm; None if the index does not know."""
    if not all(name in facts for name in _BOX):
        return None
    x, y, z = (float(facts[f"box_max_{axis}"]) - float(facts[f"box_min_{axis}"]) for axis in "xyz")
    return x, y, z


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which parts may be found; a limit that is None does not limit.

    Attributes:
        min_size, max_size: of the longest side of the bounding box, mm.
        min_faces, max_faces: number of faces.

    Raises:
        InputError: if a limit is no number of at least 0, or a range is empty.
    """

    min_size: float | None = None
    max_size: float | None = None
    min_faces: int | None = None
    max_faces: int | None = None

    def __post_init__(self) -> None:
        for what in ("size", "faces"):
            low, high = getattr(self, f"min_{what}"), getattr(self, f"max_{what}")
            for name, limit in ((f"min_{what}", low), (f"max_{what}", high)):
                if limit is not None and not (math.isfinite(limit) and limit >= 0):
                    raise InputError(f"{name} is {limit:g}; give a number of at least 0")
            if low is not None and high is not None and low > high:
                raise InputError(
                    f"min_{what} is {low:g} and max_{what} {high:g}: no part is between them"
                )

    def allowed(self, parts: pd.DataFrame) -> NDArray[np.bool_] | None:
        """Which rows pass, bool (P,); None if nothing limits.

        Raises:
            InputError: if the index does not know what is asked for.
        """
        passed = np.ones(len(parts), bool)
        limited = False
        for what in ("size", "faces"):
            low, high = getattr(self, f"min_{what}"), getattr(self, f"max_{what}")
            if low is None and high is None:
                continue
            limited = True
            values = _longest(parts) if what == "size" else _column(parts, "faces")
            passed &= values >= (0 if low is None else low)
            passed &= values <= (np.inf if high is None else high)
        return passed if limited else None


def _longest(parts: pd.DataFrame) -> NDArray[np.float64]:
    sides = [_column(parts, f"box_max_{a}") - _column(parts, f"box_min_{a}") for a in "xyz"]
    return np.max(sides, axis=0)


def _column(parts: pd.DataFrame, name: str) -> NDArray[np.float64]:
    if name not in parts:
        raise InputError(f"the index has no {name} of its parts to filter by; build it again")
    return parts[name].to_numpy(np.float64)
