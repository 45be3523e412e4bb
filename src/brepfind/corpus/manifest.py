"""The corpus manifest: which parts there are, where their STEP files lie, what is said of them.

``data/corpus/`` holds:

- ``parts.parquet``, a row per part: ``model_id``, ``path`` (POSIX, relative to the root),
  ``family`` (empty where unknown), ``split`` (empty, ``train``, ``validation`` or ``test``: what
  the user asked for).
- ``captions.parquet``, a row per caption: ``model_id``, ``caption``, ``level`` (0 vague to 3 exact,
  -1 unknown), ``index`` (counted within the part), ``phrasing`` (the name of the family of
  phrasings a generated caption comes from, empty for people's own words).
- ``corpus.json``: where it came from, the root, and what was counted on the way.

The same corpus gives the same bytes, whatever the order of its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from brepfind.errors import InputError
from brepfind.files import atomic_path, read_json, write_json

SPLITS = ("train", "validation", "test")

_PARTS = pa.schema(
    [
        ("model_id", pa.string()),
        ("path", pa.string()),
        ("family", pa.string()),
        ("split", pa.string()),
    ]
)
_CAPTIONS = pa.schema(
    [
        ("model_id", pa.string()),
        ("caption", pa.string()),
        ("level", pa.int8()),
        ("index", pa.int32()),
        ("phrasing", pa.string()),
    ]
)
PART_COLUMNS = _PARTS.names
CAPTION_COLUMNS = _CAPTIONS.names


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """A corpus as read from its folder.

    Attributes:
        parts: sorted by ``model_id``; columns as in ``parts.parquet``.
        captions: sorted by ``model_id`` and ``index``; columns as in ``captions.parquet``.
        root: the folder that ``parts.path`` is relative to.
        source: ``sample``, ``folder`` or the name of an imported data set.
        notes: what was counted while it was made; plain data.
    """

    parts: pd.DataFrame
    captions: pd.DataFrame
    root: Path
    source: str
    notes: Mapping[str, Any]

    def step_path(self, path: str) -> Path:
        """The STEP file of a part, given its ``path``."""
        return self.root / PurePosixPath(path)


def write_corpus(
    folder: Path,
    parts: pd.DataFrame,
    captions: pd.DataFrame,
    root: str,
    source: str,
    notes: Mapping[str, Any],
) -> None:
    """Write a corpus into ``folder``, each file whole or not at all.

    Args:
        folder: made if it is not there.
        parts: columns ``model_id, path, family, split``; any order of rows.
        captions: columns ``model_id, caption, level, index, phrasing``; any order of rows.
        root: where the STEP files lie: absolute, or relative to ``folder``.
        source: see :class:`Corpus`.
        notes: plain data for ``corpus.json``.

    Raises:
        InputError: if a part stands twice, a path leaves the root, or a caption has no part.
    """
    _check(parts, captions)
    write_table(folder / "parts.parquet", parts.sort_values("model_id"), _PARTS)
    write_table(folder / "captions.parquet", captions.sort_values(["model_id", "index"]), _CAPTIONS)
    write_json(
        folder / "corpus.json",
        {
            "source": source,
            "root": root,
            "parts": len(parts),
            "captions": len(captions),
            "families": int(parts["family"].replace("", pd.NA).nunique()),
            "notes": dict(notes),
        },
    )


def read_corpus(folder: Path) -> Corpus:
    """Read a corpus that :func:`write_corpus` wrote.

    Raises:
        InputError: if a file is missing or damaged; the message names it and what to run.
    """
    if not (folder / "corpus.json").is_file():
        raise InputError(f"{folder}: holds no corpus; run the prepare stage first")
    facts = read_json(folder / "corpus.json")
    parts = read_table(folder / "parts.parquet", _PARTS)
    captions = read_table(folder / "captions.parquet", _CAPTIONS)
    return Corpus(
        parts=parts,
        captions=captions,
        root=folder / str(facts["root"]),
        source=str(facts["source"]),
        notes=dict(facts["notes"]),
    )


def write_table(path: Path, table: pd.DataFrame, schema: pa.Schema) -> None:
    """Write the schema's columns as Parquet, without pandas' own metadata.

    That metadata holds library versions and the index, so that equal tables would differ.
    """
    arrow = pa.Table.from_pandas(table[schema.names], schema=schema, preserve_index=False)
    with atomic_path(path) as aside:
        pq.write_table(arrow.replace_schema_metadata(None), aside, compression="zstd")


def read_table(path: Path, schema: pa.Schema) -> pd.DataFrame:
    """Read a table that :func:`write_table` wrote.

    Raises:
        InputError: if it is missing, damaged, or has other columns.
    """
    try:
        arrow = pq.read_table(path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error}); run the stage that writes it"
        ) from error
    except pa.ArrowException as error:
        raise InputError(f"{path}: is damaged ({error}); run the stage that writes it") from error
    if arrow.schema.remove_metadata() != schema:
        raise InputError(
            f"{path}: has the columns {', '.join(arrow.schema.names)}, expected are "
            f"{', '.join(schema.names)} with their types; it was written by another version"
        )
    table: pd.DataFrame = arrow.to_pandas()
    return table


def _check(parts: pd.DataFrame, captions: pd.DataFrame) -> None:
    twice = parts["model_id"][parts["model_id"].duplicated()]
    if len(twice):
        raise InputError(f"part {twice.iloc[0]!r} stands twice in the corpus")
    for path in parts["path"]:
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts:
            raise InputError(f"path {path!r} does not lie below the corpus root")
    orphans = captions["model_id"][~captions["model_id"].isin(parts["model_id"])]
    if len(orphans):
        raise InputError(f"caption of {orphans.iloc[0]!r}: there is no such part in the corpus")
    unknown = set(parts["split"]) - {"", *SPLITS}
    if unknown:
        raise InputError(f"split {sorted(unknown)[0]!r} is not one of {', '.join(SPLITS)}")
