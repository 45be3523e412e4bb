"""Text2CAD: four captions a part, from abstract to expert, and STEP files by uid.

The table has ``uid`` (``0000/00000007``) and a column for each level. The STEP files lie at
``UID.step``, in a folder ``UID``, or flat under the uid's last part.

Its words are in DeepCAD's normalised units, in which a part fits a unit box whatever its real size:
"0.75 units" is no length unless one says how long a unit is in the STEP files at hand.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from brepfind.corpus.importers.gathered import DataSet, Gathered
from brepfind.corpus.importers.words import TABLE_ADVICE
from brepfind.corpus.records import Record, read_records
from brepfind.errors import InputError
from brepfind.log import get_logger

logger = get_logger(__name__)

DATA_SET = DataSet(
    name="text2cad",
    title="Text2CAD v1.1",
    licence="captions CC-BY-NC-SA-4.0; the models as ABC's, under Onshape's terms of use",
    origin="https://huggingface.co/datasets/SadilKhan/Text2CAD",
    warning="lengths in the captions are in normalised units, not in millimetres, and the captions "
    "were written by a language model",
)

LEVELS = ("abstract", "beginner", "intermediate", "expert")

# 0.75, .5, 1,000 (but 0,125 is a decimal comma), 1e-3, 3/4.
_NUMBER = r"(?:\d+/[1-9]\d*|(?:(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:e[-+]?\d{1,2})?)"
_SIGN = "[-+−]?"
# A length, or several that share the word: "0.2 to 0.4 units", "between 0.2 and 0.4 units"; but
# "1-1/2 units" is one and a half.
_LENGTHS = (
    rf"(?:between\s+{_SIGN}{_NUMBER}\s+and\s+{_SIGN})?"
    rf"{_NUMBER}(?:(?:\s+(?:to|by)\s+{_SIGN}|[-–](?!\d+/)){_NUMBER})*"
)
# What may join a number to a length, so that what is meant is a guess: "0.2, 0.4 units" may be two
# lengths, "2 x 0.4 units" two pieces, "10^-3 units" is one number. A coordinate's bracket, a degree
# or the end of a sentence joins nothing.
_GAP = r"(?:[^\w)\]°%.]|\.(?!\s))*"
_JOINT = rf"\d{_GAP}(?:(?:and|or|to|by|x|times|over|up|plus|minus|through|about)\b{_GAP})*"
# The word with the lengths that it stands for, or alone where there are none that are sure.
_UNITS = re.compile(
    rf"(?P<joint>{_JOINT})??(?<![\w.])(?<!\w[-+−–^*/×])"
    rf"(?P<lengths>{_LENGTHS})(?:\s+|-)units?\b"
    r"|\bunits?\b",
    re.IGNORECASE,
)
_LENGTH = re.compile(_NUMBER, re.IGNORECASE)


def gather(
    folder: Path, table: Path, levels: Sequence[str] = LEVELS, mm_per_unit: float | None = None
) -> Gathered:
    """Read the table and a folder of STEP files.

    Args:
        levels: which of the four columns to take.
        mm_per_unit: see :func:`in_millimetres`; None leaves the words as they are.

    Raises:
        InputError: if a file cannot be used, a level is none of the four, or a uid names several
            files.
    """
    unknown = [level for level in levels if level not in LEVELS]
    if unknown or not levels:
        raise InputError(f"level {', '.join(unknown)!r} is not one of {', '.join(LEVELS)}")
    gathered = Gathered(folder)
    files = gathered.files()
    uids = _Uids(gathered, files)
    records = read_records(table, ("uid", *levels), advice=TABLE_ADVICE, note=gathered.guess)
    gathered.counts.update(files=len(files), rows=len(records))
    taken: dict[str, Record] = {}
    for record in records:
        uid = _uid(record)
        path = uids.file(record)
        if path is None:
            gathered.leave_out("row_without_part", f"{record.where}: {uid}")
            continue
        first = taken.setdefault(path, record)
        if first is not record:
            _same_uid(path, first, record)
            gathered.leave_out("uid_repeated", f"{record.where}: {uid}")
            continue
        for level in levels:
            text = record.values[level]
            if mm_per_unit is not None:
                text = _scaled(gathered, text, mm_per_unit)
            where = f"{record.where}: {uid}, {level}"
            gathered.caption(path, text, where, LEVELS.index(level))
    left = gathered.counts["captions_left_in_units"]
    if left:
        logger.warning(
            "%d captions stay in units: not each of their lengths could be told from its words",
            left,
        )
    return gathered


def _uid(record: Record) -> str:
    return record.values["uid"].strip().replace("\\", "/")


class _Uids:
    """Files by the uids that they may mean.

    ``0000/00000007`` is the file in that folder. The last part alone is enough where the table or
    the folder has no more; never is a file of one numbered folder taken for a uid of another.

    Args:
        gathered: takes the files in as parts; a second file of a uid is left out.
    """

    def __init__(self, gathered: Gathered, files: Sequence[str]) -> None:
        self._by_uid: dict[str, str] = {}
        self._by_name: dict[str, list[str]] = defaultdict(list)
        self._flat: dict[str, list[str]] = defaultdict(list)
        for file in files:
            path = PurePosixPath(file)
            # A folder named after the uid holds one STEP file of any name.
            own_folder = path.parent.name.isdigit() and len(path.parent.name) == 8
            uid = path.parent if own_folder else path.with_suffix("")
            name = "/".join(uid.parts[-2:])
            if name in self._by_uid:
                what = f"{file}, as {self._by_uid[name]}"
                gathered.leave_out("file_of_a_uid_that_another_has", what)
                continue
            self._by_uid[name] = file
            self._by_name[uid.name].append(file)
            if not uid.parent.name.isdigit():
                self._flat[uid.name].append(file)
            gathered.part(file, family="")

    def file(self, record: Record) -> str | None:
        """The file that a row means; None if there is none.

        Raises:
            InputError: if it may mean several.
        """
        uid = _uid(record)
        if uid in self._by_uid:
            return self._by_uid[uid]
        folder, _, name = uid.rpartition("/")
        files = (self._flat if folder else self._by_name).get(name, [])
        if len(files) > 1:
            raise InputError(
                f"{record.where}: uid {uid!r} names several files, such as {files[0]!r} and "
                f"{files[1]!r}; give uids with their folder, and lay the files out like them"
            )
        return files[0] if files else None


def _same_uid(path: str, first: Record, second: Record) -> None:
    """Let a uid stand twice; two uids of one flat file would be told apart by their order alone.

    Raises:
        InputError: if the rows have different uids, folders included.
    """
    uids = _uid(first), _uid(second)
    if uids[0] != uids[1] and all("/" in uid for uid in uids):
        raise InputError(
            f"{second.where}: uid {uids[1]!r} names {path!r}, and so does {uids[0]!r} of "
            f"{first.where}; lay the files out in the uids' folders"
        )


def _scaled(gathered: Gathered, text: str, mm_per_unit: float) -> str:
    text, changed, left = in_millimetres(text, mm_per_unit)
    gathered.counts["lengths_in_millimetres"] += changed
    gathered.counts["lengths_left_in_units"] += left
    gathered.counts["captions_left_in_units"] += left > 0
    return text


def in_millimetres(text: str, mm_per_unit: float) -> tuple[str, int, int]:
    """Write "0.75 units" as millimetres, everywhere in a caption or nowhere.

    Only numbers that the text itself calls units are lengths for sure. Coordinates, angles and
    scaling factors stand without a unit, and stay as they are. Where one "units" cannot be told for
    sure ("half a unit", "0.2, 0.4 units"), the caption stays as it is, or it would mix two units.

    Returns:
        The text, how many times "units" was written anew, and how many times it was left. One of
        the two is 0.
    """
    found = list(_UNITS.finditer(text))
    if any(match["joint"] or not match["lengths"] for match in found):
        return text, 0, len(found)

    def length(match: re.Match[str]) -> str:
        return f"{_value(match[0]) * mm_per_unit:.6g}"

    def millimetres(match: re.Match[str]) -> str:
        return _LENGTH.sub(length, match["lengths"]) + " mm"

    return _UNITS.sub(millimetres, text), len(found), 0


def _value(number: str) -> float:
    above, _, below = number.replace(",", "").partition("/")
    return float(above) / float(below or 1)
