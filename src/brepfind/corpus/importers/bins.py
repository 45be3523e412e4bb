"""Folders of ``.bin`` graph files of BRepFormer, UV-Net or BrepMFR with a caption table."""

from __future__ import annotations

from pathlib import Path

from brepfind.corpus.importers.gathered import DataSet, Gathered
from brepfind.corpus.importers.words import Columns, gather_table
from brepfind.graphs.bin_parts import SUFFIX

DATA_SET = DataSet(
    name="bins",
    title="Graph files",
    licence="as their makers say",
    origin="one's own",
    warning="graph files do not say in which unit they are, BRepFormer's not even how large the "
    "part was: set train.size_features and train.number_features to false where they differ",
)


def gather(folder: Path, table: Path, columns: Columns) -> Gathered:
    """Read a folder of graph files and its table; the files are read when they are extracted."""
    return gather_table(folder, table, columns, suffixes=(SUFFIX,))
