"""Text2CAD: four captions a part, from abstract to expert, and STEP files by uid.

The table has ``uid`` (``0000/00000007``) and a column for each level. The STEP files lie at
``UID.step``, in a folder ``UID``, or flat under the uid's last part.

Its words are in DeepCAD's normalised units, in which a part fits a unit box whatever its real size:
"0.75 units" is no length unless one says how long a unit is in the STEP files at hand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from brepfind.corpus.importers.gathered import DataSet, Gathered, find_parts
from brepfind.corpus.importers.words import TABLE_ADVICE
from brepfind.corpus.records import read_records
from brepfind.errors import InputError

DATA_SET = DataSet(
    name="text2cad",
    title="Text2CAD v1.1",
    licence="captions CC-BY-NC-SA-4.0; the models as ABC's, under Onshape's terms of use",
    origin="https://huggingface.co/datasets/SadilKhan/Text2CAD",
    warning="lengths in the captions are in normalised units, not in millimetres, and the captions "
    "were written by a language model",
)

LEVELS = ("abstract", "beginner", "intermediate", "expert")

_UNITS = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?|\.\d+)(\s+|-)units?\b", re.IGNORECASE)


def gather(
    folder: Path, table: Path, levels: Sequence[str] = LEVELS, mm_per_unit: float | None = None
) -> Gathered:
    """Read the table and a folder of STEP files.

    Args:
        levels: which of the four columns to take.
        mm_per_unit: see :func:`in_millimetres`; None leaves the words as they are.

    Raises:
        InputError: if a file cannot be used, or a level is none of the four.
    """
    unknown = [level for level in levels if level not in LEVELS]
    if unknown or not levels:
        raise InputError(f"level {', '.join(unknown)!r} is not one of {', '.join(LEVELS)}")
    files = find_parts(folder)
    gathered = Gathered(folder)
    by_uid = _by_uid(gathered, files)
    records = read_records(table, ("uid", *levels), advice=TABLE_ADVICE)
    gathered.counts.update(files=len(files), rows=len(records))
    seen: set[str] = set()
    for record in records:
        uid = record.values["uid"].strip().replace("\\", "/")
        path = by_uid.get(uid) or by_uid.get(uid.rpartition("/")[2])
        if path is None:
            gathered.leave_out("row_without_part", f"{record.where}: {uid}")
            continue
        if path in seen:
            gathered.leave_out("uid_repeated", f"{record.where}: {uid}")
            continue
        seen.add(path)
        for level in levels:
            text = record.values[level]
            if mm_per_unit is not None:
                text, changed = in_millimetres(text, mm_per_unit)
                gathered.counts["lengths_in_millimetres"] += changed
            where = f"{record.where}: {uid}, {level}"
            gathered.caption(path, text, where, LEVELS.index(level))
    return gathered


def _by_uid(gathered: Gathered, files: Sequence[str]) -> dict[str, str]:
    """Files by every uid they may mean: ``0000/00000007``, or its last part where the table or the
    folder has no more. A second file of a uid is left out.
    """
    by_uid: dict[str, str] = {}
    for file in files:
        path = PurePosixPath(file)
        # A folder named after the uid holds one STEP file of any name.
        own_folder = path.parent.name.isdigit() and len(path.parent.name) == 8
        uid = path.parent if own_folder else path.with_suffix("")
        name = "/".join(uid.parts[-2:])
        if name in by_uid:
            gathered.leave_out("file_of_a_uid_that_another_has", f"{file}, as {by_uid[name]}")
            continue
        by_uid[name] = file
        by_uid.setdefault(uid.name, file)
        gathered.part(file, family="")
    return by_uid


def in_millimetres(text: str, mm_per_unit: float) -> tuple[str, int]:
    """Write "0.75 units" as millimetres; the new text and how many lengths were written anew.

    Only numbers that the text itself calls units are lengths for sure. Coordinates, angles and
    scaling factors stand without a unit, and stay as they are.
    """

    def length(match: re.Match[str]) -> str:
        return f"{float(match[1]) * mm_per_unit:.6g} mm"

    return _UNITS.subn(length, text)
