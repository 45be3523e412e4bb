"""Anyone's embeddings: .npy, .parquet and .safetensors files, and folders of them.

What makes a pair of towers:

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
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from brepfind.errors import InputError
from brepfind.files import atomic_path, write_bytes, write_text
from brepfind.retrieval.embeddings import Embeddings, read_embeddings, write_embeddings

Matrix = NDArray[np.floating[Any]]

SUFFIXES = (".npy", ".parquet", ".safetensors")


def read_matrices(path: Path) -> dict[str, Matrix]:
    """Every matrix of numbers in a file, by name; at least one.

    A ``.npy`` file has one. A ``.parquet`` file has one per column of lists of equal length or, if
    there is no such column, one made of all its number columns. A ``.safetensors`` file has one
    per two-dimensional tensor of floats.

    Raises:
        InputError: if the file cannot be read, or holds no matrix; the message says what it holds.
    """
    readers = {".npy": _npy, ".parquet": _parquet, ".safetensors": _safetensors}
    if path.suffix not in readers:
        raise InputError(f"{path}: need a file of {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    matrices = readers[path.suffix](path)
    found = {name: rows for name, rows in matrices.items() if rows.ndim == 2 and rows.shape[1]}
    if not found:
        shapes = ", ".join(f"{name} {rows.shape}" for name, rows in matrices.items())
        raise InputError(f"{path}: holds no matrix of numbers (there is: {shapes or 'nothing'})")
    return found


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


def _npy(path: Path) -> dict[str, Matrix]:
    try:
        # No pickles: they run whatever they like.
        rows = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: is not a plain .npy file ({error})") from error
    return {path.stem: _floats(path, path.stem, rows)}


def _safetensors(path: Path) -> dict[str, Matrix]:
    try:
        with safe_open(path, framework="pt") as file:  # torch knows bfloat16
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
    except (SafetensorError, OSError, RuntimeError) as error:
        raise InputError(f"{path}: is not a whole safetensors file ({error})") from error
    return {
        name: tensor.float().numpy() if tensor.element_size() < 4 else tensor.numpy()
        for name, tensor in tensors.items()
        if tensor.is_floating_point()
    }


def _parquet(path: Path) -> dict[str, Matrix]:
    table = _table(path)
    found = {
        name: _lists(path, name, table[name])
        for name in table.columns
        if len(table) and isinstance(table[name].iloc[0], np.ndarray | list)
    }
    if found:
        return found
    numbers = table.select_dtypes("number")
    return {"columns": numbers.to_numpy(np.float64)} if numbers.shape[1] else {}


def _table(path: Path) -> pd.DataFrame:
    try:
        table: pd.DataFrame = pq.read_table(path).to_pandas()
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: is not a whole Parquet file ({error})") from error
    return table


def _lists(path: Path, name: str, column: pd.Series) -> Matrix:
    try:
        rows = np.stack([np.asarray(row) for row in column])
    except ValueError as error:
        raise InputError(f"{path}: the lists of column {name!r} differ in length") from error
    return _floats(path, name, rows)


def _floats(path: Path, name: str, rows: NDArray[Any]) -> Matrix:
    if rows.dtype.kind not in "fiu":
        raise InputError(f"{path}: {name!r} holds {rows.dtype}, not numbers")
    return rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float32)


def _caption_part(path: Path) -> NDArray[np.int64] | None:
    with safe_open(path, framework="np") as file:
        if "caption_part" not in file.keys():  # noqa: SIM118
            return None
        return np.asarray(file.get_tensor("caption_part"), np.int64)


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
    table = _table(path)
    for name in ("cad", "text"):
        if name not in table.columns:
            raise InputError(
                f"{path}: has no column {name!r} (there is: {', '.join(map(str, table.columns))})"
            )
    if "model_id" not in table.columns:
        table = table.assign(model_id=[f"row {row}" for row in range(len(table))])
    table = table.assign(model_id=table["model_id"].astype(str))
    cad, text = (_lists(path, name, table[name]) for name in ("cad", "text"))
    first = ~table["model_id"].duplicated().to_numpy()
    place = pd.Series(np.flatnonzero(first), index=table["model_id"][first])
    own = cad[place.loc[table["model_id"]].to_numpy()]
    other = np.flatnonzero((own != cad).any(axis=1) & ~np.isnan(cad).any(axis=1))
    if len(other):
        raise InputError(
            f"{path}: part {table['model_id'].iloc[other[0]]!r} has two different cad rows"
        )
    if "caption" not in table.columns:
        table = table.assign(caption=[f"caption {row}" for row in range(len(table))])
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
        cad=np.asarray(cad, np.float32),
        text=np.asarray(text, np.float32),
        cad_before=np.zeros((len(cad), 0), np.float32),
        text_before=np.zeros((len(text), 0), np.float32),
    )
