"""Anything else: a folder of STEP files with a caption table, or a text file beside each."""

from __future__ import annotations

from pathlib import Path

from brepfind.corpus.importers.gathered import DataSet, Gathered
from brepfind.corpus.importers.words import Columns, beside, gather_table

DATA_SET = DataSet(
    name="folder",
    title="A folder of one's own",
    licence="as its owner says",
    origin="one's own",
)


def gather(folder: Path, table: Path | None, columns: Columns) -> Gathered:
    """Read a folder and its table, or without a table the text file beside each STEP file."""
    return beside(folder) if table is None else gather_table(folder, table, columns)
