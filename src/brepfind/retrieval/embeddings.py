"""The embeddings of parts and captions, and the folder they are kept in.

A folder holds:

- ``embeddings.safetensors``: float32 tensors ``cad`` (P, E) and ``text`` (C, E) as the projections
  gave them (not normalised), ``cad_before`` (P, D) and ``text_before`` (C, T) before projection,
  and one metadata key ``brepfind`` of canonical JSON: the format's version, the digest of the
  model that made them, and what else was said of them.
- ``parts.parquet``, a row per row of ``cad``: ``model_id, family, twin``.
- ``captions.parquet``, a row per row of ``text``: ``model_id, caption, index, level, truncated``.

Equal embeddings give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from brepfind.corpus.manifest import read_table
from brepfind.errors import InputError, VersionMismatch
from brepfind.files import atomic_path, write_bytes

FORMAT = 1

_PARTS = pa.schema([("model_id", pa.string()), ("family", pa.string()), ("twin", pa.int64())])
_CAPTIONS = pa.schema(
    [
        ("model_id", pa.string()),
        ("caption", pa.string()),
        ("index", pa.int32()),
        ("level", pa.int8()),
        ("truncated", pa.bool_()),
    ]
)
_TENSORS = ("cad", "text", "cad_before", "text_before")


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings:
    """Embeddings of P parts and C captions of theirs.

    Attributes:
        parts: columns ``model_id`` (unique), ``family`` (empty where unknown), ``twin`` (equal for
            geometric twins).
        captions: columns ``model_id, caption, index`` (within the part)``, level`` (0 vague to 3
            exact, -1 unknown)``, truncated``.
        cad: float32 (P, E). text: float32 (C, E). In one space, not normalised.
        cad_before: float32 (P, D). text_before: float32 (C, T). Before projection; may be empty
            (0 columns) where nobody kept them.
        model: digest of the model that made them, empty if unknown.
        notes: other plain data.

    Raises:
        InputError: if rows and tables do not fit each other.
    """

    parts: pd.DataFrame
    captions: pd.DataFrame
    cad: NDArray[np.float32]
    text: NDArray[np.float32]
    cad_before: NDArray[np.float32]
    text_before: NDArray[np.float32]
    model: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, rows, table in (
            ("cad", self.cad, self.parts),
            ("cad_before", self.cad_before, self.parts),
            ("text", self.text, self.captions),
            ("text_before", self.text_before, self.captions),
        ):
            if rows.ndim != 2 or len(rows) != len(table) or rows.dtype != np.float32:
                raise InputError(
                    f"embeddings: {name} is {rows.dtype} {rows.shape}, its table has "
                    f"{len(table)} rows; need a float32 matrix with a row per row of the table"
                )
        if self.cad.shape[1] != self.text.shape[1]:
            raise InputError(
                f"embeddings: cad has {self.cad.shape[1]} dimensions and text "
                f"{self.text.shape[1]}; they must share one space"
            )
        twice = self.parts["model_id"][self.parts["model_id"].duplicated()]
        if len(twice):
            raise InputError(f"embeddings: part {twice.iloc[0]!r} stands twice")
        orphan = self.captions["model_id"][~self.captions["model_id"].isin(self.parts["model_id"])]
        if len(orphan):
            raise InputError(f"embeddings: a caption is of {orphan.iloc[0]!r}, which has no row")

    @property
    def caption_part(self) -> NDArray[np.int64]:
        """int64 (C,), the row in ``parts`` of each caption's part."""
        rows = pd.Series(np.arange(len(self.parts)), index=self.parts["model_id"])
        return rows.loc[self.captions["model_id"]].to_numpy(np.int64)

    @property
    def twins(self) -> NDArray[np.int64]:
        """int64 (P,), equal for geometric twins."""
        return self.parts["twin"].to_numpy(np.int64)

    def select(self, ids: Any) -> Embeddings:
        """The embeddings of some parts and of their captions, in this object's order."""
        kept = self.parts["model_id"].isin(list(ids)).to_numpy()
        told = self.captions["model_id"].isin(list(ids)).to_numpy()
        return replace(
            self,
            parts=self.parts[kept].reset_index(drop=True),
            captions=self.captions[told].reset_index(drop=True),
            cad=self.cad[kept],
            text=self.text[told],
            cad_before=self.cad_before[kept],
            text_before=self.text_before[told],
        )


def write_embeddings(folder: Path, embeddings: Embeddings) -> None:
    """Write a folder of embeddings, each file whole or not at all."""
    said = {"format": FORMAT, "model": embeddings.model, "notes": dict(embeddings.notes)}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"), allow_nan=False)
    tensors = {name: np.ascontiguousarray(getattr(embeddings, name)) for name in _TENSORS}
    write_bytes(folder / "embeddings.safetensors", save(tensors, metadata={"brepfind": text}))
    for name, table, schema in (
        ("parts", embeddings.parts, _PARTS),
        ("captions", embeddings.captions, _CAPTIONS),
    ):
        arrow = pa.Table.from_pandas(table[schema.names], schema=schema, preserve_index=False)
        with atomic_path(folder / f"{name}.parquet") as aside:
            # pandas' own metadata holds library versions, so that equal tables would differ.
            pq.write_table(arrow.replace_schema_metadata(None), aside, compression="zstd")


def read_embeddings(folder: Path) -> Embeddings:
    """Read what :func:`write_embeddings` wrote.

    Raises:
        InputError: if a file is missing or damaged. VersionMismatch: if another version wrote it.
    """
    path = folder / "embeddings.safetensors"
    if not path.is_file():
        raise InputError(f"{folder}: holds no embeddings; run the evaluate stage or brepfind embed")
    try:
        with safe_open(path, framework="np") as file:
            said = json.loads((file.metadata() or {}).get("brepfind", "{}"))
            if said.get("format") != FORMAT:
                raise VersionMismatch(
                    f"{path}: format {said.get('format')!r}, this version reads {FORMAT}; "
                    "make the embeddings again"
                )
            notes = dict(said.get("notes", {}))
            tensors = {name: file.get_tensor(name) for name in _TENSORS}
    except (SafetensorError, OSError, ValueError, AttributeError, TypeError) as error:
        raise InputError(
            f"{folder}: cannot be read ({error}); make the embeddings again"
        ) from error
    tables = {
        name: read_table(folder / f"{name}.parquet", schema)
        for name, schema in (("parts", _PARTS), ("captions", _CAPTIONS))
    }
    for name, table in tables.items():
        for column in table.columns[table.isna().any()]:
            raise InputError(f"{folder / name}.parquet: {column} is missing in a row")
    return Embeddings(
        model=str(said.get("model", "")),
        notes=notes,
        parts=tables["parts"],
        captions=tables["captions"],
        **tensors,
    )
