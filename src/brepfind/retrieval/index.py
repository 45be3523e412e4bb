"""The search index: unit rows searched by inner product (faiss), stamped with their model.

Below :data:`EXACT_BELOW` parts every vector is compared with every query. From there on the
vectors are in cells (``IndexIVFFlat``) and a query looks into as many as it takes for the recall
that :mod:`brepfind.retrieval.cells` measures.

A folder holds ``index.json`` (format, model digest, number and dimension of the vectors, recall,
name and checksum of the other two), the vectors, and a table with a row per vector, in order:
``model_id`` and whatever facts a hit shows. The two are named by their content and ``index.json``
is written last, so whoever reads meets the old index or the new one. An index answers only queries
of the model that made it: vectors of two models share no space, and would be ranked without
complaint.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from brepfind.errors import InputError, VersionMismatch
from brepfind.files import read_json, write_bytes, write_json
from brepfind.metrics.rows import unit_rows
from brepfind.retrieval import cells

FORMAT = 2
EXACT_BELOW = 1_000_000

_ENDINGS = {"vectors": "faiss", "parts": "parquet"}


@dataclass(frozen=True, slots=True)
class Index:
    """Parts that can be searched.

    Attributes:
        vectors: an inner-product index of unit rows.
        parts: a row per vector; ``model_id`` and facts.
        model: digest of the weights that made the vectors.
        grid: samples along u, v and edges of the graphs that were embedded.
        recall: share of the true nearest ten that a search finds; 1 where it is exact.
    """

    vectors: Any
    parts: pd.DataFrame
    model: str
    grid: int = 10
    recall: float = 1.0

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self.vectors.d)

    @property
    def exact(self) -> bool:
        """Whether every vector is compared."""
        return not isinstance(self.vectors, faiss.IndexIVF)

    def facts(self, model_id: str) -> dict[str, Any]:
        """The part's row, without its id.

        Raises:
            InputError: if there is no such part.
        """
        facts = self.parts.iloc[self._row(model_id)].to_dict()
        return {str(name): value for name, value in facts.items() if name != "model_id"}

    def vector(self, model_id: str) -> NDArray[np.float32]:
        """float32 (E,), the part's unit vector.

        Raises:
            InputError: if there is no such part.
        """
        return np.asarray(self.vectors.reconstruct(self._row(model_id)), np.float32)

    def _row(self, model_id: str) -> int:
        rows = np.flatnonzero((self.parts["model_id"] == model_id).to_numpy())
        if not len(rows):
            raise InputError(f"the index holds no part {model_id!r}")
        return int(rows[0])

    def nearest(
        self, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores (cosine, best first) and rows, each (Q, min(k, parts that are allowed)).

        Args:
            queries: float32 (Q, E), of any length. k: how many parts.
            allowed: bool (P,), the parts to look among, all of them exactly; all parts if None.

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
        k = min(k, len(self) if allowed is None else int(allowed.sum()))
        if k == 0:
            return np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
        unit = np.ascontiguousarray(unit_rows("query", queries), np.float32)
        if self.exact:
            chosen = None
            if allowed is not None:  # faiss' stubs do not know its own keywords
                chosen = faiss.SearchParameters(sel=_selector(allowed))  # type: ignore[call-arg]
            return self.vectors.search(unit, k, params=chosen)
        if allowed is None:
            scores, rows = self.vectors.search(unit, k)
            if (rows >= 0).all():  # else the cells looked into hold fewer than k
                return scores, rows
            return cells.search_all(self.vectors, unit, k)
        return cells.search_all(self.vectors, unit, k, _selector(allowed))


def _selector(allowed: NDArray[np.bool_]) -> Any:
    bits: Any = np.packbits(allowed, bitorder="little")
    return faiss.IDSelectorBitmap(bits)  # type: ignore[call-arg]


def make_index(
    cad: NDArray[np.float32],
    parts: pd.DataFrame,
    model: str,
    *,
    grid: int = 10,
    exact_below: int = EXACT_BELOW,
) -> Index:
    """An index of parts.

    Args:
        cad: (P, E), as the projection gave them. parts: a row each, with ``model_id``.
        model: digest of the weights that made them.
        grid: of the graphs.
        exact_below: with so many parts or more the search is approximate.

    Raises:
        CheckFailed: if a row is not finite or is zero; ids are named.
        InputError: if there is no part, rows do not fit, or an id stands twice.
    """
    if len(cad) == 0 or len(cad) != len(parts):
        raise InputError(f"index: {len(cad)} vectors for {len(parts)} parts")
    if not model:
        raise InputError("index: needs the digest of the model that made the vectors")
    twice = parts["model_id"][parts["model_id"].duplicated()]
    if len(twice):
        raise InputError(f"index: part {twice.iloc[0]!r} stands twice")
    unit = unit_rows("CAD", cad, parts["model_id"].tolist())
    return _index(unit, parts, model, grid, exact_below)


def _index(
    unit: NDArray[np.float32],
    parts: pd.DataFrame,
    model: str,
    grid: int,
    exact_below: int,
    like: Any = None,
) -> Index:
    unit = np.ascontiguousarray(unit, np.float32)
    parts = parts.reset_index(drop=True)
    if len(unit) >= exact_below:
        vectors, recall = cells.make(unit, like)
        return Index(vectors, parts, model, grid, recall)
    flat = faiss.IndexFlatIP(unit.shape[1])
    flat.add(unit)
    return Index(flat, parts, model, grid)


def add_parts(
    index: Index,
    cad: NDArray[np.float32],
    parts: pd.DataFrame,
    model: str,
    *,
    exact_below: int = EXACT_BELOW,
) -> Index:
    """The index with more parts; one that is there already is replaced.

    Raises:
        VersionMismatch: if another model made the new vectors.
        CheckFailed: if a new row is not finite or is zero; ids are named.
        InputError: if the new vectors have another dimension, or an id stands twice among them.
    """
    require_model(index.model, model, "the index")
    if cad.shape[1] != index.dim:
        raise InputError(f"index: vectors of {cad.shape[1]} dimensions for an index of {index.dim}")
    new = make_index(cad, parts, model, exact_below=len(cad) + 1)
    kept = _others(index, parts["model_id"].tolist())
    return _index(
        np.concatenate([_unit(index)[kept], _unit(new)]),
        pd.concat([index.parts.iloc[kept], new.parts], ignore_index=True),
        model,
        index.grid,
        exact_below,
        index.vectors,
    )


def remove_parts(index: Index, ids: Sequence[str], *, exact_below: int = EXACT_BELOW) -> Index:
    """The index without some parts; ids it does not hold are ignored."""
    kept = _others(index, ids)
    parts = index.parts.iloc[kept]
    unit = _unit(index)[kept]
    return _index(unit, parts, index.model, index.grid, exact_below, index.vectors)


def _others(index: Index, ids: Sequence[str]) -> NDArray[np.int64]:
    return np.flatnonzero(~index.parts["model_id"].isin(list(ids)).to_numpy())


def _unit(index: Index) -> NDArray[np.float32]:
    """float32 (P, E), the vectors in the order of the parts."""
    if not len(index):
        return np.zeros((0, index.dim), np.float32)
    return np.asarray(index.vectors.reconstruct_n(0, len(index)), np.float32)


def write_index(folder: Path, index: Index) -> None:
    """Write an index folder: the new index is there whole, or the old one still is."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "vectors": _keep(folder, "vectors", faiss.serialize_index(index.vectors).tobytes()),
        "parts": _keep(folder, "parts", _table(index.parts)),
    }
    stamp = {
        "format": FORMAT,
        "model": index.model,
        "parts": len(index),
        "dim": index.dim,
        "grid": index.grid,
        "exact": index.exact,
        "recall_at_10": index.recall,
        "files": files,
    }
    write_json(folder / "index.json", stamp)
    named = {file["name"] for file in files.values()}
    for kind, ending in _ENDINGS.items():
        for old in folder.glob(f"{kind}-*.{ending}"):
            if old.name not in named:
                old.unlink(missing_ok=True)


def is_index_file(path: Path) -> bool:
    """Whether a name is one that :func:`write_index` gives, or gave before it was stopped."""
    name = path.name.removeprefix(".")
    return name.startswith(("index.json", *(f"{kind}-" for kind in _ENDINGS)))


def _keep(folder: Path, kind: str, content: bytes) -> dict[str, str]:
    digest = hashlib.sha256(content).hexdigest()
    name = f"{kind}-{digest[:16]}.{_ENDINGS[kind]}"
    write_bytes(folder / name, content)
    return {"name": name, "sha256": digest}


def _table(parts: pd.DataFrame) -> bytes:
    # Without pandas' own metadata, which holds library versions.
    arrow = pa.Table.from_pandas(parts, preserve_index=False).replace_schema_metadata(None)
    out = io.BytesIO()
    pq.write_table(arrow, out, compression="zstd")
    return out.getvalue()


def read_index(folder: Path, model: str | None = None) -> Index:
    """Read an index folder.

    Args:
        model: digest of the weights that will make the queries; not compared if None.

    Raises:
        InputError: if a file is missing or damaged.
        VersionMismatch: if another model, or another version of brepfind, made it.
    """
    stamp = read_stamp(folder, model)
    try:
        contents = _contents(folder, stamp)
    except InputError:
        again = read_stamp(folder, model)
        if again == stamp:
            raise
        stamp, contents = again, _contents(folder, again)  # it was written anew meanwhile
    return Index(
        faiss.deserialize_index(np.frombuffer(contents["vectors"], np.uint8)),
        pq.read_table(pa.BufferReader(contents["parts"])).to_pandas(),
        str(stamp["model"]),
        int(stamp["grid"]),
        float(stamp["recall_at_10"]),
    )


def read_stamp(folder: Path, model: str | None = None) -> dict[str, Any]:
    """What an index folder says of itself, without its vectors; see :func:`read_index`."""
    if not (folder / "index.json").is_file():
        raise InputError(
            f"{folder}: holds no index; `dvc repro` makes data/index, and `brepfind index add` "
            "any other"
        )
    stamp = read_json(folder / "index.json")
    if not isinstance(stamp, dict) or stamp.get("format") != FORMAT:
        found = stamp.get("format") if isinstance(stamp, dict) else None
        raise VersionMismatch(
            f"{folder}: an index of format {found!r}, this version reads {FORMAT}; build it again "
            "with `dvc repro publish` or `brepfind index add`"
        )
    if model is not None:
        require_model(str(stamp["model"]), model, str(folder))
    return stamp


def _contents(folder: Path, stamp: dict[str, Any]) -> dict[str, bytes]:
    found = {}
    for kind in _ENDINGS:
        said = stamp["files"][kind]
        path = folder / Path(said["name"]).name
        try:
            found[kind] = path.read_bytes()
        except OSError:
            found[kind] = b""
        if hashlib.sha256(found[kind]).hexdigest() != said["sha256"]:
            raise InputError(f"{path}: is missing or damaged; build the index again")
    return found


def require_model(index_model: str, model: str, where: str) -> None:
    """Refuse vectors of two models in one place.

    Raises:
        VersionMismatch: naming both.
    """
    if index_model != model:
        raise VersionMismatch(
            f"{where}: made by model {index_model[:12]}, the one in use is {model[:12]}; "
            "their vectors do not compare: build the index again with `brepfind index add`, or "
            "name the other model with --model"
        )
