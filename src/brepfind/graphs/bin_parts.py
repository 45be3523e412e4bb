"""A ``.bin`` graph file as a part for the store, for corpora that have no STEP files.

What extraction measures on exact geometry is estimated from the samples. The signature is, too: a
copy of a graph, or of a part that was moved before it was sampled, is known for a twin, but a part
of BRepFormer's layout has lost its size, and one that was turned fills another box.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from brepfind.cad.arrays import PartArrays
from brepfind.cad.extract import ExtractConfig
from brepfind.cad.signature import signature
from brepfind.errors import InputError, RejectedPart
from brepfind.graphs.schema import grid_of

SUFFIX = ".bin"


def extract_bin(path: Path, config: ExtractConfig) -> PartArrays:
    """The part of a graph file.

    Raises:
        RejectedPart: with one of the reasons ``unreadable``, ``too_many_faces``, ``grid``.
    """
    # DGL takes a second to import, and corpora of STEP files do without it here.
    from brepfind.graphs.bins import read_part

    try:
        part = read_part(path)
    except InputError as error:
        raise RejectedPart("unreadable", str(error)) from None
    if part.n_faces > config.max_faces:
        raise RejectedPart(
            "too_many_faces", f"it has {part.n_faces} faces, allowed are {config.max_faces}"
        )
    if grid_of(part) != config.grid:
        raise RejectedPart(
            "grid", f"its grids have {grid_of(part)} samples, extract.grid is {config.grid}"
        )
    return replace(part, facts=replace(part.facts, signature=sampled_signature(part)))


def sampled_signature(part: PartArrays) -> NDArray[np.float64]:
    """The geometry signature from a graph's samples, float64 (11,); see the signature's module.

    Each face is taken to be as its samples are, those inside its outline, all counted alike.
    """
    facts = part.facts
    scale = float(np.subtract(facts.box_max, facts.box_min).max()) / 2.0
    grid = part.face_grid.astype(np.float64)
    points, normals = grid[..., :3] * scale, grid[..., 3:6]
    inside = grid[..., 6] > 0.5
    inside |= ~inside.any(axis=(1, 2), keepdims=True)  # a face between the samples has none
    share = inside / inside.sum(axis=(1, 2), keepdims=True)
    area = part.face_area.astype(np.float64) * scale**2
    once = part.edge_src < part.edge_dst
    return signature(
        volume=facts.volume,
        area=area,
        centroid=np.einsum("fuv,fuvi->fi", share, points),
        second=area[:, None, None] * np.einsum("fuv,fuvi,fuvj->fij", share, points, points),
        normal=area[:, None] * np.einsum("fuv,fuvi->fi", share, normals),
        src=part.edge_src[once].astype(np.int64),
        dst=part.edge_dst[once].astype(np.int64),
        length=part.edge_length[once].astype(np.float64) * scale,
    )
