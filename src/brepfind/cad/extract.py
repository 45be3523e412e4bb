"""One STEP file to plain arrays, with every check between."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
from OCP.TopoDS import TopoDS_Shape
from pydantic import Field

from brepfind.cad import brep, features, reading
from brepfind.cad.arrays import PartArrays
from brepfind.cad.topology import Topology, split_solids, topology
from brepfind.errors import RejectedPart
from brepfind.params import Section


class ExtractConfig(Section):
    """The ``extract`` section of params.yaml."""

    grid: int = Field(description="samples along u, v and edges", ge=4, le=64)
    max_faces: int = Field(description="parts with more faces are rejected", ge=1, le=4095)
    multi_solid: Literal["merge", "split", "reject"] = Field(
        description="what to do with several solids in one file"
    )
    timeout_s: float = Field(description="seconds a file may take", gt=0, le=86400)
    memory_gb: float = Field(description="memory a worker may take, GiB", gt=0.5, le=1024)
    max_reject_rate: float = Field(description="share of files that may be rejected", ge=0, le=1)
    shards: int = Field(description="files the graph store is spread over", ge=1, le=4096)
    cluster: str = Field(
        default="local",
        description="local, or the address of a Dask scheduler, such as tcp://host:8786",
        pattern=r"^(local|(tcp|tls|ucx|ws|wss)://\S+)$",
    )


def extract_file(path: Path, config: ExtractConfig) -> list[PartArrays]:
    """The graph of a STEP file; several only under ``multi_solid: split``.

    A bad file can crash or hang the process that calls this: see :mod:`brepfind.cad.pool`.

    Raises:
        RejectedPart: with one of the reasons ``missing``, ``unreadable``, ``empty``, ``no_solid``,
            ``multi_solid``, ``too_many_faces``, ``box``, ``volume``, ``invalid``, ``not_finite``.
    """
    reading.look(path)
    with _no_garbage():
        shape, unit = reading.read(path)
        return extract_shape(shape, unit, config)


@contextmanager
def _no_garbage() -> Iterator[None]:
    """No search for reference cycles: the tables of a part are many small objects without any,
    and looking through them again and again is a tenth of the work.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def extract_shape(shape: TopoDS_Shape, unit: str, config: ExtractConfig) -> list[PartArrays]:
    """The graph of a shape that is in memory, in millimetres; see :func:`extract_file`."""
    try:
        return _arrays(_sound(shape, config), config, unit, healed=False)
    except RejectedPart as error:
        if error.reason not in _HEALABLE:
            raise
        complaint = error
    shape = reading.heal(shape)
    measured = _measure(shape, config)
    if not reading.is_valid(shape):
        raise RejectedPart(complaint.reason, f"{complaint.message}, after healing too")
    return _arrays(measured, config, unit, healed=True)


_HEALABLE = frozenset({"volume", "invalid"})


def _sound(shape: TopoDS_Shape, config: ExtractConfig) -> list[features.Measured]:
    """The shape measured, if it is valid as it stands."""
    found = _parts(shape, config)
    # Not before the numbers were looked at: one that is none hangs the check.
    if not reading.is_valid(shape):
        raise RejectedPart("invalid", "Open CASCADE finds it invalid")
    return [features.measure(one, config.grid) for one in found]


def _arrays(
    measured: list[features.Measured], config: ExtractConfig, unit: str, *, healed: bool
) -> list[PartArrays]:
    return [features.arrays(one, config.grid, unit, healed) for one in measured]


def _measure(shape: TopoDS_Shape, config: ExtractConfig) -> list[features.Measured]:
    found = _parts(shape, config)
    return [features.measure(one, config.grid) for one in found]


def _parts(shape: TopoDS_Shape, config: ExtractConfig) -> list[Topology]:
    """The shape's solids as topology, after the checks that need no geometry."""
    tables = brep.load(shape)
    solids = sum(kind == brep.SOLID for kind in tables.types)
    if not tables.faces:
        if not tables.edges:
            raise RejectedPart("empty", "it holds no geometry")
        raise RejectedPart("no_solid", "it holds wires but no face")
    if not solids:
        raise RejectedPart(
            "no_solid", f"it holds {len(tables.faces)} faces but no solid: an open surface"
        )
    _check_numbers(tables)
    merged = topology(tables)
    if merged.n_faces == 0:
        raise RejectedPart("no_solid", "its solids have no faces")
    if merged.solids > 1 and config.multi_solid == "reject":
        raise RejectedPart("multi_solid", f"it holds {merged.solids} solids")
    found = [merged]
    if merged.solids > 1 and config.multi_solid == "split":
        found = split_solids(tables)
    for one in found:
        if one.n_faces > config.max_faces:
            raise RejectedPart(
                "too_many_faces", f"it has {one.n_faces} faces, allowed are {config.max_faces}"
            )
    return found


def _check_numbers(tables: brep.Brep) -> None:
    """Refuse coordinates that are not numbers before anything can loop over them for ever."""
    points = np.array(list(tables.points.values()), dtype=np.float64)
    frames = [tables.curves.frames, tables.surfaces.frames, tables.pcurves.frames]
    radii = [tables.curves.radii, tables.surfaces.radii, tables.pcurves.radii]
    poles = [poles for _, poles in tables.curves.splines.values()]
    poles += [poles for _, _, poles in tables.surfaces.splines.values()]
    values = [np.array(rows, dtype=np.float64).ravel() for rows in [*frames, *radii]]
    if not all(np.isfinite(value).all() for value in [points, *values, *poles]):
        raise RejectedPart("not_finite", "a coordinate in it is not a finite number")
    if len(points):
        features.check_box(points[:, :3].min(axis=0), points[:, :3].max(axis=0), smallest=0.0)
