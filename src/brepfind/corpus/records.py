"""Tables from outside as rows of text: CSV, Parquet and JSON Lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from brepfind.errors import InputError

_PARQUET = (".parquet", ".pq")
_CSV = (".csv", ".tsv", ".txt")
_JSONL = (".jsonl", ".ndjson")


@dataclass(frozen=True, slots=True)
class Record:
    """One row of a table.

    Attributes:
        where: ``FILE, row N``; row 1 is the first below the header.
        values: text by column; the empty text where there is none.
    """

    where: str
    values: dict[str, str]


def read_records(
    path: Path, required: Sequence[str], optional: Sequence[str] = (), advice: str = ""
) -> list[Record]:
    """Read the named columns of a table, in its order of rows.

    CSV is UTF-8 with or without a byte order mark, UTF-16 with one, or else Latin-1 (Windows-1252
    where a byte needs it); comma, semicolon or tab, whichever the header shows; line ends of any
    kind; quoted fields may hold line breaks. Parquet needs text columns; whole numbers are read as
    their digits in the first of ``required``, the id. JSON Lines holds an object a line, of texts
    (whole numbers as the id), in UTF-8.

    Args:
        path: its ending says which of the three it is.
        required: columns that must be there; the first is the id.
        optional: columns that are read where they are there.
        advice: what to do if there is no such file.

    Raises:
        InputError: naming the file, and the row where one is at fault: a missing column, a column
            that stands twice, a row with too many or too few fields, no row at all.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file{advice and f'; {advice}'}")
    suffix = path.suffix.lower()
    if suffix in _PARQUET:
        header, rows = _read_parquet(path, required, optional)
    elif suffix in _CSV:
        header, rows = _read_csv(path)
    elif suffix in _JSONL:
        header, rows = _read_jsonl(path, required, optional)
    else:
        raise InputError(f"{path}: is neither .csv, .tsv, .parquet nor .jsonl")
    missing = [name for name in required if name not in header]
    if missing:
        raise InputError(
            f"{path}: has no column {' and no column '.join(map(repr, missing))} "
            f"(its columns: {', '.join(header)})"
        )
    wanted = [name for name in (*required, *optional) if name in header]
    twice = [name for name in wanted if header.count(name) > 1]
    if twice:
        raise InputError(f"{path}: has the column {twice[0]!r} more than once")
    place = {name: header.index(name) for name in wanted}
    records = [
        Record(f"{path}, row {number}", {name: fields[i] for name, i in place.items()})
        for number, fields in rows
    ]
    if not records:
        raise InputError(f"{path}: has a header but no row")
    return records


_Rows = list[tuple[int, list[str]]]


def _read_csv(path: Path) -> tuple[list[str], _Rows]:
    text = decode(path, path.read_bytes())
    first = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: _Rows = []
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
            rows.append((number, fields))
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: is not valid CSV ({error})") from error
    if not header:
        raise InputError(f"{path}: is empty")
    return header, rows


def decode(path: Path, content: bytes) -> str:
    """Text of whatever encoding people's programs save it in, line ends as line feeds.

    Raises:
        InputError: if it holds NUL bytes.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            text = content.decode("utf-16")
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: begins as UTF-16 but is not ({error.reason})") from None
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


def _read_parquet(
    path: Path, required: Sequence[str], optional: Sequence[str]
) -> tuple[list[str], _Rows]:
    try:
        file = pq.ParquetFile(path)
        header = list(file.schema_arrow.names)
        wanted = [name for name in (*required, *optional) if name in header]
        table = file.read(columns=wanted)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: is not a readable Parquet file ({error})") from error
    columns = []
    for name in wanted:
        kind = table.schema.field(name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if not text and not (name == required[0] and pa.types.is_integer(kind)):
            raise InputError(f"{path}: column {name!r} holds {kind}, not text")
        columns.append(["" if v is None else str(v) for v in table[name].to_pylist()])
    if not set(required) <= set(wanted):
        return header, []
    return wanted, [(i, list(row)) for i, row in enumerate(zip(*columns, strict=True), start=1)]


def _read_jsonl(
    path: Path, required: Sequence[str], optional: Sequence[str]
) -> tuple[list[str], _Rows]:
    """Each line says its own columns: what one leaves out is empty, but no line may lack the id."""
    wanted = [*required, *optional]
    named: dict[str, None] = {}
    rows: _Rows = []
    for number, line in enumerate(decode(path, path.read_bytes()).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, row {number}"
        try:
            found: Any = json.loads(line)
        except ValueError as error:
            raise InputError(f"{where}: is not valid JSON ({error})") from None
        if not isinstance(found, dict):
            raise InputError(f"{where}: holds no object but {type(found).__name__}")
        named |= dict.fromkeys(found)
        rows.append((number, [_json_text(where, found, name, required[0]) for name in wanted]))
    if not rows:
        raise InputError(f"{path}: is empty")
    missing = [name for name in required if name not in named]
    return (list(named), rows) if missing else (wanted, rows)


def _json_text(where: str, found: dict[str, Any], name: str, key: str) -> str:
    value = found.get(name)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if name == key and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise InputError(f"{where}: {name!r} holds {type(value).__name__}, not text")
