"""The user's own STEP folder and caption table, taken over with nothing dropped silently.

A caption's ``model_id`` names a part by its path below the folder, with or without its suffix, or
by the file's bare name where only one file has it. A name that several files have is an error, not
a guess.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq

from brepfind.corpus.manifest import SPLITS
from brepfind.errors import InputError

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


def step_files(folder: Path) -> list[str]:
    """STEP files below ``folder`` at any depth, as sorted POSIX paths relative to it.

    Hidden files and folders (names that begin with a dot) are left out, as are the ``._`` files
    that some systems put beside each real one.

    Raises:
        InputError: if the folder is missing or holds no STEP file.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder; set prepare.step_dir")
    found = []
    for path in folder.rglob("*"):
        relative = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in relative.parts)
        if path.suffix.lower() in STEP_SUFFIXES and not hidden and path.is_file():
            found.append(relative.as_posix())
    if not found:
        raise InputError(f"{folder}: holds no file that ends in .step or .stp, at any depth")
    return sorted(found)


def read_captions(path: Path) -> list[Row]:
    """Read a caption table.

    CSV is UTF-8 with or without a byte order mark, UTF-16 with one, or else Latin-1 (Windows-1252
    where a byte needs it); comma, semicolon or tab, whichever the header shows; line ends of any
    kind; quoted fields may hold line breaks. Parquet needs text columns; numbers as ``model_id``
    are read as their digits.

    Raises:
        InputError: naming the file, and the row where one is at fault: a missing column, a row
            with too many or too few fields, an empty ``model_id``, an unknown split.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; set prepare.captions")
    suffix = path.suffix.lower()
    if suffix in (".parquet", ".pq"):
        header, records = _read_parquet(path)
    elif suffix in (".csv", ".tsv", ".txt"):
        header, records = _read_csv(path)
    else:
        raise InputError(f"{path}: is neither .csv, .tsv nor .parquet")
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise InputError(
            f"{path}: has no column {' and no column '.join(map(repr, missing))} "
            f"(its columns: {', '.join(header)})"
        )
    twice = [name for name in ("model_id", "caption", "split") if header.count(name) > 1]
    if twice:
        raise InputError(f"{path}: has the column {twice[0]!r} more than once")
    place = {name: header.index(name) for name in (*COLUMNS, "split") if name in header}
    rows = [_row(f"{path}, row {number}", fields, place) for number, fields in records]
    if not rows:
        raise InputError(f"{path}: has a header but no row")
    return rows


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


def _row(where: str, fields: Sequence[str], place: Mapping[str, int]) -> Row:
    model_id = fields[place["model_id"]].strip()
    if not model_id:
        raise InputError(f"{where}: has no model_id")
    split = fields[place["split"]].strip().lower() if "split" in place else ""
    if split and split not in _SPLIT_NAMES:
        raise InputError(f"{where}: split {split!r} is not one of {', '.join(SPLITS)} (or empty)")
    return Row(
        where=where,
        model_id=model_id,
        caption=" ".join(fields[place["caption"]].split()),
        split=_SPLIT_NAMES[split] if split else "",
    )


def _read_csv(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    text = _decode(path, path.read_bytes())
    first = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    records: list[tuple[int, list[str]]] = []
    try:
        header = [name.strip() for name in next(reader, [])]
        for number, fields in enumerate(reader, start=1):
            if not any(field.strip() for field in fields):
                continue  # blank lines, as spreadsheets leave at the end
            if len(fields) != len(header):
                raise InputError(
                    f"{path}, row {number}: has {len(fields)} fields, the header has "
                    f"{len(header)}; a text with {delimiter!r} in it must be in double quotes"
                )
            records.append((number, fields))
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: is not valid CSV ({error})") from error
    if not header:
        raise InputError(f"{path}: is empty")
    return header, records


def _decode(path: Path, content: bytes) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = content.decode("utf-16", errors="strict")
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            # Every byte has a meaning in Latin-1; Windows' superset gives its curly quotes sense.
            try:
                text = content.decode("cp1252")
            except UnicodeDecodeError:
                text = content.decode("latin-1")
    if "\0" in text:
        raise InputError(f"{path}: holds NUL bytes; it is not a text table")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _read_parquet(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: is not a readable Parquet file ({error})") from error
    header = list(table.column_names)
    wanted = [name for name in (*COLUMNS, "split") if name in header]
    columns = []
    for name in wanted:
        kind = table.schema.field(name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if not text and not (name == "model_id" and pa.types.is_integer(kind)):
            raise InputError(f"{path}: column {name!r} holds {kind}, not text")
        columns.append(["" if v is None else str(v) for v in table[name].to_pylist()])
    records = [(i, list(fields)) for i, fields in enumerate(zip(*columns, strict=True), start=1)]
    return wanted or header, records if wanted else []
