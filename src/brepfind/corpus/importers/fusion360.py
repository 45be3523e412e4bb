"""The Fusion 360 Gallery: STEP files of its three data sets with any caption table.

Reconstruction and segmentation: ``20203_7e31e92a_0000.step`` and the like, any depth; a table names
them by stem. ``train_test.json`` says the official split, whose train part is divided again here,
because it has no validation.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from brepfind.corpus.importers.gathered import DataSet, Gathered
from brepfind.corpus.importers.words import Columns, gather_table
from brepfind.corpus.splits import uniform
from brepfind.errors import InputError
from brepfind.files import read_json

DATA_SET = DataSet(
    name="fusion360",
    title="Fusion 360 Gallery Dataset",
    licence="Fusion 360 Gallery Dataset licence: non-commercial research only, to be passed on "
    "with the data; the captions as their makers say",
    origin="https://github.com/AutodeskAILab/Fusion360GalleryDataset",
)

_VALIDATION = 0.1  # of the official train split


def gather(folder: Path, table: Path, columns: Columns, official: Path | None) -> Gathered:
    """Read an unpacked data set and a caption table.

    Args:
        official: ``train_test.json``, to keep the official split; None to let the pipeline divide.

    Raises:
        InputError: if a file cannot be used, or the table asks for another split than
            ``official``.
    """
    gathered = gather_table(folder, table, columns)
    if official is None:
        return gathered
    sides = _official(official)
    for path in gathered.parts:
        side = sides.get(PurePosixPath(path).stem)
        if side is None:
            gathered.counts["not_in_official_split"] += 1
        else:
            gathered.split_of(path, side, str(official))
    return gathered


def _official(path: Path) -> dict[str, str]:
    found: Any = read_json(path)
    if not isinstance(found, dict) or not {"train", "test"} <= found.keys():
        raise InputError(f"{path}: holds no lists 'train' and 'test'; give train_test.json")
    sides: dict[str, str] = {}
    for side in ("train", "validation", "test"):
        for name in found.get(side, ()):
            if not isinstance(name, str):
                raise InputError(f"{path}: {side!r} holds {name!r}, not a name")
            if sides.setdefault(name, side) != side:
                raise InputError(f"{path}: {name!r} stands in {sides[name]!r} and in {side!r}")
    if "validation" not in found:
        for name, side in sides.items():
            if side == "train" and uniform("fusion360", name) < _VALIDATION:
                sides[name] = "validation"
    return sides
