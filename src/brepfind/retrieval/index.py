"""The search index: exact inner products over unit rows (faiss), stamped with its model.

A folder holds ``index.faiss``, ``parts.parquet`` (a row per vector, in order: ``model_id`` and
whatever facts a hit shows) and ``index.json`` (format, model digest, number and dimension of the
vectors, a checksum of each file). An index answers only queries of the model that made it: vectors
of two models share no space, and would be ranked without complaint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from brepfind.errors import InputError, VersionMismatch
from brepfind.files import atomic_path, read_json, sha256, write_bytes, write_json
from brepfind.metrics.rows import unit_rows

FORMAT = 1
_FILES = ("index.faiss", "parts.parquet")


@dataclass(frozen=True, slots=True)
class Index:
    """Parts that can be searched.

    Attributes:
        vectors: a flat inner-product index of unit rows.
        parts: a row per vector; ``model_id`` and facts.
        model: digest of the weights that made the vectors.
    """

    vectors: Any
    parts: pd.DataFrame
    model: str

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self.vectors.d)

    def nearest(
        self, queries: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores (cosine, best first) and rows, each (Q, min(k, parts)).

        Raises:
            CheckFailed: if a query is not finite or is zero.
            InputError: if k is not positive, or the dimension is another.
        """
        if k < 1:
            raise InputError(f"k is {k}; ask for at least one part")
        if queries.shape[1] != self.dim:
            raise InputError(
                f"a query of {queries.shape[1]} dimensions for an index of {self.dim}; "
                "build the index again with this model"
            )
        unit = np.ascontiguousarray(unit_rows("query", queries), np.float32)
        scores, rows = self.vectors.search(unit, min(k, len(self)))
        return scores, rows


def make_index(cad: NDArray[np.float32], parts: pd.DataFrame, model: str) -> Index:
    """An index of parts.

    Args:
        cad: (P, E), as the projection gave them. parts: a row each, with ``model_id``.
        model: digest of the weights that made them.

    Raises:
        CheckFailed: if a row is not finite or is zero; ids are named.
        InputError: if there is no part, or rows do not fit.
    """
    if len(cad) == 0 or len(cad) != len(parts):
        raise InputError(f"index: {len(cad)} vectors for {len(parts)} parts")
    if not model:
        raise InputError("index: needs the digest of the model that made the vectors")
    unit = unit_rows("CAD", cad, parts["model_id"].tolist())
    vectors = faiss.IndexFlatIP(unit.shape[1])
    vectors.add(np.ascontiguousarray(unit, np.float32))
    return Index(vectors, parts.reset_index(drop=True), model)


def add_parts(index: Index, cad: NDArray[np.float32], parts: pd.DataFrame, model: str) -> Index:
    """The index with more parts; one that is there already is replaced.

    Raises:
        VersionMismatch: if another model made the new vectors.
    """
    require_model(index.model, model, "the index")
    kept = remove_parts(index, parts["model_id"].tolist())
    old = kept.vectors.reconstruct_n(0, len(kept)) if len(kept) else np.zeros((0, cad.shape[1]))
    return make_index(
        np.concatenate([old.astype(np.float32), cad]),
        pd.concat([kept.parts, parts], ignore_index=True),
        model,
    )


def remove_parts(index: Index, ids: Sequence[str]) -> Index:
    """The index without some parts; ids it does not hold are ignored."""
    kept = np.flatnonzero(~index.parts["model_id"].isin(list(ids)).to_numpy())
    vectors = faiss.IndexFlatIP(index.dim)
    if len(kept):
        vectors.add(index.vectors.reconstruct_n(0, len(index))[kept])
    return Index(vectors, index.parts.iloc[kept].reset_index(drop=True), index.model)


def write_index(folder: Path, index: Index) -> None:
    """Write an index folder, each file whole or not at all; the stamp comes last."""
    write_bytes(folder / "index.faiss", faiss.serialize_index(index.vectors).tobytes())
    with atomic_path(folder / "parts.parquet") as aside:
        index.parts.to_parquet(aside, index=False)
    stamp = {
        "format": FORMAT,
        "model": index.model,
        "parts": len(index),
        "dim": index.dim,
        "sha256": {name: sha256(folder / name) for name in _FILES},
    }
    write_json(folder / "index.json", stamp)


def read_index(folder: Path, model: str | None = None) -> Index:
    """Read an index folder.

    Args:
        model: digest of the weights that will make the queries; not compared if None.

    Raises:
        InputError: if a file is missing or damaged.
        VersionMismatch: if another model, or another version of brepfind, made it.
    """
    if not (folder / "index.json").is_file():
        raise InputError(f"{folder}: holds no index; run the publish stage or brepfind index")
    stamp = read_json(folder / "index.json")
    if stamp.get("format") != FORMAT:
        raise VersionMismatch(f"{folder}: an index of format {stamp.get('format')!r}, this version "
                              f"reads {FORMAT}; build it again")  # fmt: skip
    if model is not None:
        require_model(stamp["model"], model, str(folder))
    for name in _FILES:
        if not (folder / name).is_file() or sha256(folder / name) != stamp["sha256"][name]:
            raise InputError(f"{folder / name}: is missing or damaged; build the index again")
    raw = np.frombuffer((folder / "index.faiss").read_bytes(), np.uint8)
    return Index(
        faiss.deserialize_index(raw), pd.read_parquet(folder / "parts.parquet"), stamp["model"]
    )


def require_model(index_model: str, model: str, where: str) -> None:
    """Refuse vectors of two models in one place.

    Raises:
        VersionMismatch: naming both.
    """
    if index_model != model:
        raise VersionMismatch(
            f"{where}: made by model {index_model[:12]}, the one in use is {model[:12]}; "
            "their vectors do not compare: build the index again with `brepfind index`"
        )
