"""Anyone's pair of towers, read and written.

What makes a pair:

- a folder written by ``brepfind embed``;
- a folder with ``cad.npy`` and ``text.npy``;
- a ``.safetensors`` file with the tensors ``cad`` and ``text``, and, where a part has several
  captions, ``caption_part``: the row of ``cad`` of each row of ``text``;
- a ``.parquet`` file with list columns ``cad`` and ``text``, a row per caption; of the columns
  ``model_id, caption, family, level, twin`` those that are there are used.

Without ``caption_part`` or ``model_id``, row i of text tells of row i of cad.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors.numpy import save

from brepfind.errors import InputError
from brepfind.files import atomic_path, write_bytes, write_text
from brepfind.retrieval.embeddings import Embeddings, read_embeddings, write_embeddings
from brepfind.retrieval.foreign import (
    SUFFIXES,
    Matrix,
    matrix_of_lists,
    read_matrices,
    read_table,
    safetensors,
)


def read_pair(path: Path) -> Embeddings:
    """The embeddings of parts and captions; see the module for what is understood.

    Raises:
        InputError: if they are not there, cannot be read, or do not fit each other.
    """
    if path.is_dir():
        if (path / "cad.npy").is_file() and (path / "text.npy").is_file():
            tensors = {name: read_matrices(path / f"{name}.npy")[name] for name in ("cad", "text")}
            return _pair(path, tensors)
        return read_embeddings(path)
    if path.suffix == ".npy":
        raise InputError(
            f"{path}: one matrix is no pair of towers; give a folder with cad.npy and text.npy, "
            "or look at its vital signs with `brepfind vitals`"
        )
    if path.suffix == ".parquet":
        return _pair_of_table(path)
    matrices = read_matrices(path)
    return _pair(path, matrices, _caption_part(path))


def check_target(path: Path) -> None:
    """Refuse to write to a file of a kind that cannot be written, before the work is done.

    Raises:
        InputError: naming the endings that can.
    """
    if path.suffix not in ("", *SUFFIXES) and not path.is_dir():
        raise InputError(f"{path}: give a folder, or a file that ends in {', '.join(SUFFIXES)}")


def write_pair(path: Path, embeddings: Embeddings) -> None:
    """Write embeddings so that :func:`read_pair` and others can read them.

    - a folder: everything, as the evaluate stage does;
    - ``.parquet``: a row per caption (per part where there is none): ``model_id, caption, family,
      level, twin, cad, text``;
    - ``.safetensors``: ``cad``, ``text``, ``caption_part``, and the ids as a JSON list in the
      metadata's ``model_id``;
    - ``.npy``: the rows of the parts alone; their ids, a line each as JSON, in ``.ids.jsonl``
      beside it.

    Raises:
        InputError: if the path has another ending.
    """
    check_target(path)
    ids = embeddings.parts["model_id"].tolist()
    if path.suffix == ".npy":
        with atomic_path(path) as aside, aside.open("wb") as file:
            np.save(file, embeddings.cad, allow_pickle=False)
        lines = "".join(json.dumps(model_id) + "\n" for model_id in ids)
        write_text(path.with_suffix(".ids.jsonl"), lines)
    elif path.suffix == ".safetensors":
        tensors = {
            "cad": np.ascontiguousarray(embeddings.cad),
            "text": np.ascontiguousarray(embeddings.text),
            "caption_part": embeddings.caption_part,
        }
        write_bytes(path, save(tensors, metadata={"model_id": json.dumps(ids)}))
    elif path.suffix == ".parquet":
        with atomic_path(path) as aside:
            pq.write_table(_as_table(embeddings), aside, compression="zstd")
    else:
        write_embeddings(path, embeddings)


def _as_table(embeddings: Embeddings) -> pa.Table:
    told = len(embeddings.captions) > 0
    rows = embeddings.caption_part if told else np.arange(len(embeddings.parts))
    parts = embeddings.parts.iloc[rows]
    columns: dict[str, Any] = {
        "model_id": pa.array(parts["model_id"].tolist(), pa.string()),
        "family": pa.array(parts["family"].tolist(), pa.string()),
        "twin": pa.array(parts["twin"].tolist(), pa.int64()),
        "cad": _list_column(embeddings.cad[rows]),
    }
    if told:
        captions = embeddings.captions
        columns |= {
            "caption": pa.array(captions["caption"].tolist(), pa.string()),
            "level": pa.array(captions["level"].tolist(), pa.int8()),
            "text": _list_column(embeddings.text),
        }
    return pa.table(columns)


def _list_column(rows: Matrix) -> pa.Array:
    values = pa.array(np.ascontiguousarray(rows).reshape(-1), pa.float32())
    return pa.FixedSizeListArray.from_arrays(values, rows.shape[1])


def _caption_part(path: Path) -> NDArray[np.int64] | None:
    found = safetensors(path, ("caption_part",)).get("caption_part")
    if found is None:
        return None
    rows = found.float().numpy() if found.is_floating_point() else found.numpy()
    return _whole(path, "caption_part", rows, np.int64)


def _whole(path: Path, name: str, values: Any, dtype: type[np.integer[Any]]) -> NDArray[Any]:
    """Values as whole numbers, or an error that names the first that is none."""
    column = np.asarray(values)
    limits = np.iinfo(dtype)
    for row, value in enumerate(column.ravel().tolist()):
        whole = isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0
        if not whole or not limits.min <= value <= limits.max:
            raise InputError(
                f"{path}: {name!r} is {value!r} in row {row}; need whole numbers from "
                f"{limits.min} to {limits.max}"
            )
    return column.astype(dtype)


def _pair(
    path: Path, matrices: Mapping[str, Matrix], caption_part: NDArray[np.int64] | None = None
) -> Embeddings:
    missing = [name for name in ("cad", "text") if name not in matrices]
    if missing:
        raise InputError(
            f"{path}: has no {' and no '.join(missing)} (there is: {', '.join(matrices)})"
        )
    cad, text = matrices["cad"], matrices["text"]
    if caption_part is None:
        if len(cad) != len(text):
            raise InputError(
                f"{path}: cad has {len(cad)} rows and text {len(text)}; say which caption is of "
                "which part in caption_part"
            )
        caption_part = np.arange(len(cad))
    if caption_part.shape != (len(text),) or not _within(caption_part, len(cad)):
        raise InputError(f"{path}: caption_part must name a row of cad for each row of text")
    ids = [f"row {row}" for row in range(len(cad))]
    told = pd.DataFrame({"model_id": [ids[row] for row in caption_part]})
    # Nobody says what the captions are: each is taken for one of its own.
    told["caption"] = [f"caption {row}" for row in range(len(text))]
    return _embeddings(pd.DataFrame({"model_id": ids}), told, cad, text)


def _within(rows: NDArray[np.int64], n: int) -> bool:
    return not len(rows) or (int(rows.min()) >= 0 and int(rows.max()) < n)


def _pair_of_table(path: Path) -> Embeddings:
    table, lists = read_table(path)
    for name in ("cad", "text"):
        if name not in lists:
            raise InputError(
                f"{path}: has no column {name!r} of lists "
                f"(there is: {', '.join(map(str, table.columns))})"
            )
    if "model_id" not in table.columns:
        table = table.assign(model_id=[f"row {row}" for row in range(len(table))])
    nameless = np.flatnonzero(table["model_id"].isna().to_numpy())
    if len(nameless):
        raise InputError(f"{path}: row {nameless[0]} has no model_id; say which part it is of")
    table = table.assign(model_id=table["model_id"].astype(str))
    cad, text = (matrix_of_lists(path, name, table[name]) for name in ("cad", "text"))
    first = ~table["model_id"].duplicated().to_numpy()
    place = pd.Series(np.flatnonzero(first), index=table["model_id"][first])
    own = cad[place.loc[table["model_id"]].to_numpy()]
    same = (own == cad) | (np.isnan(own) & np.isnan(cad))
    other = np.flatnonzero(~same.all(axis=1))
    if len(other):
        raise InputError(
            f"{path}: part {table['model_id'].iloc[other[0]]!r} has two different cad rows"
        )
    if "caption" not in table.columns:
        table = table.assign(caption=[f"caption {row}" for row in range(len(table))])
    for name, dtype in (("level", np.int8), ("twin", np.int64)):
        if name in table.columns:
            table = table.assign(**{name: _whole(path, name, table[name].tolist(), dtype)})
    if "family" in table.columns:
        table = table.assign(family=table["family"].fillna("").astype(str))
    return _embeddings(table[first], table, cad[first], text)


def _embeddings(
    parts: pd.DataFrame, captions: pd.DataFrame, cad: Matrix, text: Matrix
) -> Embeddings:
    def column(table: pd.DataFrame, name: str, otherwise: Any) -> Any:
        return table[name].to_numpy() if name in table.columns else otherwise

    told = pd.DataFrame(
        {
            "model_id": captions["model_id"].to_numpy(),
            "caption": captions["caption"].fillna("").astype(str).to_numpy(),
            "level": np.asarray(column(captions, "level", np.full(len(text), -1)), np.int8),
            "truncated": np.zeros(len(text), bool),
        }
    )
    told["index"] = told.groupby("model_id").cumcount().astype(np.int32)
    return Embeddings(
        parts=pd.DataFrame(
            {
                "model_id": parts["model_id"].to_numpy(),
                "family": column(parts, "family", [""] * len(cad)),
                "twin": np.asarray(column(parts, "twin", np.arange(len(cad))), np.int64),
            }
        ),
        captions=told[["model_id", "caption", "index", "level", "truncated"]],
        cad=_narrow(cad),
        text=_narrow(text),
        cad_before=np.zeros((len(cad), 0), np.float32),
        text_before=np.zeros((len(text), 0), np.float32),
    )


def _narrow(rows: Matrix) -> NDArray[np.float32]:
    """Rows as float32; those that would leave its range are scaled first, which turns none."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        narrow = rows.astype(np.float32)
        zeroed = (rows != 0) & (narrow == 0)
        lost = np.isfinite(rows) & (zeroed | ~np.isfinite(narrow))
        out = lost.any(axis=1) & np.isfinite(rows).all(axis=1)
        if out.any():
            wide = rows[out].astype(np.float64)
            narrow[out] = wide / np.abs(wide).max(axis=1, keepdims=True)
    return narrow
