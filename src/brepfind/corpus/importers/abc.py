"""The ABC data set: chunks of STEP files with any caption table.

``abc_0000_step_v00.7z`` unpacks to ``00000000/00000000_HASH_step_000.step``, one folder a model; a
model that could not be exported has an empty folder. A table names models by their number, with or
without leading zeros (spreadsheets lose them), as DeepCAD does (``0000/00000007``), or by the path
or name of the file.
"""

from __future__ import annotations

import re
from pathlib import Path

from brepfind.corpus.importers.gathered import DataSet, Gathered
from brepfind.corpus.importers.words import Columns, gather_table

DATA_SET = DataSet(
    name="abc",
    title="ABC: A Big CAD Model Dataset",
    licence="the models belong to their creators, under Onshape's terms of use for public "
    "documents; the captions as their makers say",
    origin="https://deep-geometry.github.io/abc-dataset/",
)

_FILE = re.compile(r"(?:^|/)(\d{8})(?:_[0-9a-f]+_step_\d+)?(?:\.step|\.stp)?$", re.IGNORECASE)


def model_number(name: str) -> str | None:
    """The eight digits of a model, from any of its names; None if it is of another layout."""
    if name.isascii() and name.isdigit() and len(name) <= 8:
        return name.zfill(8)
    found = _FILE.search(name.replace("\\", "/"))
    return found[1] if found else None


def gather(folder: Path, table: Path, columns: Columns) -> Gathered:
    """Read unpacked chunks and a caption table."""
    return gather_table(folder, table, columns, names=model_number)
