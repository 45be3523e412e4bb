"""A STEP file from anybody as a query: read in a process of its own, with limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from brepfind.cad.arrays import PartArrays
from brepfind.cad.extract import ExtractConfig, extract_file
from brepfind.cad.pool import work_on
from brepfind.errors import InputError
from brepfind.graphs.schema import check_arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one file may cost.

    Attributes:
        max_mb: size of the file, MB. timeout_s: seconds. memory_gb: of its process, GiB.
    """

    max_mb: float = 64.0
    timeout_s: float = 30.0
    memory_gb: float = 4.0

    def config(self, grid: int, max_faces: int) -> ExtractConfig:
        """The same as settings of an extraction; several solids are one part."""
        return ExtractConfig(
            grid=grid,
            max_faces=max_faces,
            multi_solid="merge",
            timeout_s=self.timeout_s,
            memory_gb=self.memory_gb,
            max_reject_rate=1.0,
            shards=1,
        )


def read_shape(
    path: Path, *, grid: int, max_faces: int, limits: Limits = Limits(), name: str | None = None
) -> PartArrays:
    """The graph of a STEP file.

    Args:
        grid: of the index's graphs. max_faces: that the model takes.
        name: what to call the file in errors; its path if None.

    Raises:
        InputError: if it is too large, or cannot become a graph within the limits.
    """
    name = str(path) if name is None else name
    try:
        length = path.stat().st_size
    except OSError as error:
        raise InputError(f"{name}: cannot be opened ({error.strerror})") from None
    if not path.is_file():
        raise InputError(f"{name}: is no file; give a STEP file")
    if length > limits.max_mb * 1e6:
        raise InputError(f"{name}: has {length / 1e6:.0f} MB, allowed are {limits.max_mb:g} MB")
    config = limits.config(grid, max_faces)
    (outcome,) = work_on([("query", path)], extract_file, config, workers=1)
    if outcome.reject is not None:
        raise InputError(f"{name}: {outcome.reject}")
    (part,) = outcome.parts
    check_arrays(part, where=name)
    return part
