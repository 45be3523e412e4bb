"""The user's own STEP folder and caption table, taken over with nothing dropped silently.

A caption's ``model_id`` names a part by its path below the folder, with or without its suffix, or
by the file's bare name where only one file has it. A name that several files have is an error, not
a guess.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from brepfind.corpus.manifest import SPLITS
from brepfind.corpus.records import Record, read_records
from brepfind.errors import InputError
from brepfind.log import get_logger

logger = get_logger(__name__)

STEP_SUFFIXES = (".step", ".stp")
COLUMNS = ("model_id", "caption")
# What a table may call the three splits; the first of each is what the corpus calls it.
_SPLIT_NAMES = {
    **{name: name for name in SPLITS},
    "val": "validation",
    "valid": "validation",
    "dev": "validation",
    "training": "train",
    "testing": "test",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a caption table, blanks around its values taken off.

    Attributes:
        where: ``FILE, row N``; row 1 is the first below the header.
        model_id: as the table has it.
        caption: on one line, inner white space as single blanks; empty where there is none.
        split: ``train``, ``validation``, ``test`` or empty.
    """

    where: str
    model_id: str
    caption: str
    split: str


@dataclass(slots=True)
class Matched:
    """What came of bringing a table and a folder together.

    Attributes:
        captions: caption texts per path, in the table's order, each once per part.
        splits: the user's split per path, where given.
        without_part: rows whose ``model_id`` names no file, as ``FILE, row N: model_id``.
        empty: rows without a caption text.
        repeated: rows that repeat a caption of the same part.
    """

    captions: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    splits: dict[str, str] = field(default_factory=dict)
    without_part: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)


def step_files(
    folder: Path,
    suffixes: Sequence[str] = STEP_SUFFIXES,
    advice: str = "set prepare.step_dir",
) -> list[str]:
    """STEP files below ``folder`` at any depth, as sorted POSIX paths relative to it.

    Hidden files and folders (names that begin with a dot) are left out, as are the ``._`` files
    that some systems put beside each real one.

    Args:
        suffixes: lower case; others than STEP's for other files of parts.
        advice: what to do if there is no such folder.

    Raises:
        InputError: if the folder is missing or holds no such file.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder; {advice}")
    found = []
    for path in folder.rglob("*"):
        relative = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in relative.parts)
        if path.suffix.lower() in suffixes and not hidden and path.is_file():
            found.append(relative.as_posix())
    if not found:
        raise InputError(
            f"{folder}: holds no file that ends in {' or '.join(suffixes)}, at any depth"
        )
    return sorted(found)


def read_captions(
    path: Path,
    columns: tuple[str, str, str] = (*COLUMNS, "split"),
    advice: str = "set prepare.captions",
    note: Callable[[str], None] = logger.warning,
) -> list[Row]:
    """Read a caption table; see :func:`brepfind.corpus.records.read_records` for what is read.

    Args:
        columns: what the table calls the model id, the caption and the split; the third may be
            missing.
        advice: what to do if there is no such file.
        note: called with a sentence that names the file if its encoding was guessed.

    Raises:
        InputError: naming the file, and the row where one is at fault: a missing column, a row
            with too many or too few fields, an empty model id, an unknown split.
    """
    records = read_records(path, columns[:2], columns[2:], advice, note)
    return [_row(record, columns) for record in records]


def match_captions(files: Sequence[str], rows: Sequence[Row]) -> Matched:
    """Bring the rows of a table to the files they name.

    Args:
        files: POSIX paths relative to the STEP folder.
        rows: the table's rows.

    Raises:
        InputError: if a ``model_id`` names several files (naming two of them), or rows ask for
            two different splits for one part.
    """
    names = _names_of(files)
    matched = Matched()
    split_from: dict[str, str] = {}
    for row in rows:
        paths = names.get(_key(row.model_id), [])
        if len(paths) > 1:
            raise InputError(
                f"{row.where}: model_id {row.model_id!r} names several files, such as "
                f"{paths[0]!r} and {paths[1]!r}; give the path below the STEP folder"
            )
        if not paths:
            matched.without_part.append(f"{row.where}: {row.model_id}")
            continue
        path = paths[0]
        if row.split:
            if matched.splits.setdefault(path, row.split) != row.split:
                raise InputError(
                    f"{row.where}: puts {row.model_id!r} into {row.split!r}, but "
                    f"{split_from[path]} puts it into {matched.splits[path]!r}"
                )
            split_from.setdefault(path, row.where)
        if not row.caption:
            matched.empty.append(row.where)
        elif row.caption in matched.captions[path]:
            matched.repeated.append(row.where)
        else:
            matched.captions[path].append(row.caption)
    return matched


def _names_of(files: Sequence[str]) -> Mapping[str, list[str]]:
    """The files that each possible ``model_id`` means.

    An exact path beats a path without its suffix, which beats a bare name: so a file ``a.step``
    at the top is meant by ``a`` even if ``old/a.step`` exists as well.
    """
    levels: list[dict[str, list[str]]] = [defaultdict(list), defaultdict(list), defaultdict(list)]
    for file in files:
        path = PurePosixPath(file)
        levels[0][file].append(file)
        levels[1][path.with_suffix("").as_posix()].append(file)
        levels[2][path.name].append(file)
        if path.stem != path.name:
            levels[2][path.stem].append(file)
    names: dict[str, list[str]] = {}
    for level in reversed(levels):
        names.update(level)
    return names


def _key(model_id: str) -> str:
    """A ``model_id`` as a path: forward slashes, no leading ``./``."""
    return PurePosixPath(model_id.replace("\\", "/")).as_posix()


def _row(record: Record, columns: tuple[str, str, str]) -> Row:
    values = record.values
    model_id = values[columns[0]].strip()
    if not model_id:
        raise InputError(f"{record.where}: has no {columns[0]}")
    split = values.get(columns[2], "").strip().lower()
    if split and split not in _SPLIT_NAMES:
        raise InputError(
            f"{record.where}: split {split!r} is not one of {', '.join(SPLITS)} (or empty)"
        )
    return Row(
        where=record.where,
        model_id=model_id,
        caption=" ".join(values[columns[1]].split()),
        split=_SPLIT_NAMES[split] if split else "",
    )
