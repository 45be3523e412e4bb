"""What the data sets with a caption table of somebody's own have in common."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from brepfind.corpus.importers.gathered import Gathered
from brepfind.corpus.records import decode
from brepfind.corpus.tables import COLUMNS, STEP_SUFFIXES, Row, match_captions, read_captions
from brepfind.errors import InputError

TABLE_ADVICE = "give the caption table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What a caption table calls its columns; a table need not have the split."""

    model_id: str = COLUMNS[0]
    caption: str = COLUMNS[1]
    split: str = "split"


def gather_table(
    folder: Path,
    table: Path,
    columns: Columns,
    names: Callable[[str], str | None] | None = None,
    suffixes: Collection[str] = STEP_SUFFIXES,
) -> Gathered:
    """Bring a caption table to the files below ``folder``.

    Args:
        names: the name that a file has in the table, given its path; None where it has none. Left
            out, the table names files as :mod:`brepfind.corpus.tables` reads them.
        suffixes: of the files, where they are not STEP.

    Raises:
        InputError: as the modules of tables and records do.
    """
    gathered = Gathered(folder)
    files = gathered.files(suffixes)
    names_of_columns = (columns.model_id, columns.caption, columns.split)
    rows = read_captions(table, names_of_columns, TABLE_ADVICE, gathered.guess)
    gathered.counts.update(files=len(files), rows=len(rows))
    if names is None:
        _match_paths(gathered, files, rows)
    else:
        _match_names(gathered, files, rows, names)
    return gathered


def _match_paths(gathered: Gathered, files: Sequence[str], rows: Sequence[Row]) -> None:
    for path in files:
        gathered.part(path)
    matched = match_captions(files, rows)
    for path, texts in matched.captions.items():
        for text in texts:
            gathered.caption(path, text, path)
    for path, split in matched.splits.items():
        gathered.split_of(path, split, "the caption table")
    for reason, what in (
        ("row_without_part", matched.without_part),
        ("caption_empty", matched.empty),
        ("caption_repeated", matched.repeated),
    ):
        for name in what:
            gathered.leave_out(reason, name)


def _match_names(
    gathered: Gathered,
    files: Sequence[str],
    rows: Sequence[Row],
    names: Callable[[str], str | None],
) -> None:
    by_name = _index(gathered, files, names)
    for row in rows:
        path = by_name.get(names(row.model_id) or row.model_id)
        if path is None:
            gathered.leave_out("row_without_part", f"{row.where}: {row.model_id}")
            continue
        if row.split:
            gathered.split_of(path, row.split, row.where)
        gathered.caption(path, row.caption, f"{row.where}: {row.model_id}")


def _index(
    gathered: Gathered, files: Iterable[str], names: Callable[[str], str | None]
) -> dict[str, str]:
    """Take files in as parts, by the one name that each has in the table.

    A file without a name, and a second one of a name, are left out.
    """
    by_name: dict[str, str] = {}
    for path in files:
        name = names(path)
        if name is None:
            gathered.leave_out("file_of_another_layout", path)
        elif name in by_name:
            gathered.leave_out("file_of_a_name_that_another_has", f"{path}, as {by_name[name]}")
        else:
            by_name[name] = path
            gathered.part(path)
    return by_name


def beside(folder: Path) -> Gathered:
    """Captions from a text file beside each STEP file, of the same name: a caption a line.

    ``.txt`` may be in any case. A text file that has no STEP file is left out.

    Raises:
        InputError: if there is no STEP file or no text file.
    """
    gathered = Gathered(folder)
    by_name: dict[str, list[str]] = defaultdict(list)
    for path in gathered.files():
        gathered.part(path)
        by_name[_without_suffix(path)].append(path)
    words = gathered.files((".txt",))
    gathered.counts.update(files=len(gathered.parts), text_files=len(words))
    for name in words:
        if _without_suffix(name) in by_name:
            _take_lines(gathered, name, by_name[_without_suffix(name)])
        else:
            gathered.leave_out("text_file_without_part", name)
    return gathered


def _without_suffix(path: str) -> str:
    return PurePosixPath(path).with_suffix("").as_posix()


def _take_lines(gathered: Gathered, name: str, parts: Sequence[str]) -> None:
    words = gathered.root / PurePosixPath(name)
    try:
        lines = decode(words, words.read_bytes(), gathered.guess).split("\n")
    except InputError as error:
        gathered.leave_out("text_file_unreadable", str(error))
        return
    if not any(line.strip() for line in lines):
        gathered.leave_out("caption_empty", name)
    for number, line in enumerate(lines, start=1):
        if line.strip():
            for part in parts:
                gathered.caption(part, line, f"{name}, line {number}")
