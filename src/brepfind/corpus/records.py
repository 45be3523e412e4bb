"""Tables from outside as rows of text: CSV, Parquet and JSON Lines."""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from brepfind.errors import InputError
from brepfind.log import get_logger

logger = get_logger(__name__)

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
    path: Path,
    required: Sequence[str],
    optional: Sequence[str] = (),
    advice: str = "",
    note: Callable[[str], None] = logger.warning,
) -> list[Record]:
    """Read the named columns of a table, in its order of rows.

    CSV is in an encoding that :func:`decode` knows; comma, semicolon or tab, whichever the header
    shows; line ends of any kind; quoted fields may hold line breaks. Parquet needs text columns;
    whole numbers are read as their digits in the first of ``required``, the id. JSON Lines holds an
    object a line, of texts (whole numbers as the id), in UTF-8 and nothing else.

    Args:
        path: its ending says which of the three it is.
        required: columns that must be there; the first is the id.
        optional: columns that are read where they are there.
        advice: what to do if there is no such file.
        note: called with a sentence that names the file if its encoding was guessed.

    Raises:
        InputError: naming the file, and the row where one is at fault: a missing column, a column
            that stands twice, a row with too many or too few fields, no row at all; or the line
            and the byte that is in another encoding than the rest.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file{advice and f'; {advice}'}")
    suffix = path.suffix.lower()
    if suffix in _PARQUET:
        header, rows = _read_parquet(path, required, optional)
    elif suffix in _CSV:
        header, rows = _read_csv(path, note)
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


def _read_csv(path: Path, note: Callable[[str], None]) -> tuple[list[str], _Rows]:
    text = decode(path, path.read_bytes(), note)
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


def decode(path: Path, content: bytes, note: Callable[[str], None] = logger.warning) -> str:
    """Text of whatever encoding people's programs save it in, line ends as line feeds.

    That is UTF-8 with or without a byte order mark, UTF-16 with one, or else Windows-1252 (Latin-1
    where a byte has no meaning in it). The last is a guess, since any bytes can be read so.

    Args:
        note: called with a sentence that names the file if its encoding was guessed.

    Raises:
        InputError: naming the file, and the line and byte, if it is UTF-8 only in part: to read
            the whole as anything else would garble the rest. Or if it holds NUL bytes.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            text = content.decode("utf-16")
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: begins as UTF-16 but is not ({error.reason})") from None
    else:
        try:
            text = _utf8(path, content)
        except InputError as error:
            # By chance two bytes of Latin-1 may be a character of UTF-8: refused too, not garbled.
            if not content.decode("utf-8", "ignore").isascii():
                raise InputError(
                    f"{error}, but other characters of the file are; mend that line, or save the "
                    "whole file as UTF-8"
                ) from None
            text, encoding = _single_bytes(content)
            note(
                f"{path}: is not UTF-8 and was read as {encoding}, which is a guess; if its words "
                "look wrong, save it as UTF-8"
            )
    if "\0" in text:
        raise InputError(f"{path}: holds NUL bytes; it is not a text table")
    return _line_feeds(text)


def _utf8(path: Path, content: bytes) -> str:
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        *before, line = _line_feeds(content[: error.start].decode("latin-1")).split("\n")
        raise InputError(
            f"{path}, line {len(before) + 1}: byte {len(line) + 1} "
            f"(0x{content[error.start]:02x}) is not UTF-8"
        ) from None


def _single_bytes(content: bytes) -> tuple[str, str]:
    """The text and the name of its encoding; Windows' gives sense to curly quotes and dashes."""
    try:
        return content.decode("cp1252"), "Windows-1252"
    except UnicodeDecodeError:
        return content.decode("latin-1"), "Latin-1"


def _line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _read_parquet(
    path: Path, required: Sequence[str], optional: Sequence[str]
) -> tuple[list[str], _Rows]:
    try:
        file = pq.ParquetFile(path)
        header = list(file.schema_arrow.names)
        wanted = [name for name in (*required, *optional) if name in header]
        table = file.read(columns=wanted)
        table.validate(full=True)  # or a text that is not UTF-8 ends in a UnicodeDecodeError
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
    try:
        text = _line_feeds(_utf8(path, path.read_bytes()))
    except InputError as error:
        raise InputError(f"{error}, as JSON Lines must be; save the file as UTF-8") from None
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, row {number}"
        try:
            found: Any = json.loads(line)
        except ValueError as error:
            raise InputError(f"{where}: is not valid JSON ({error})") from None
        except RecursionError:
            raise InputError(
                f"{where}: is nested too deeply; give an object of texts on each line"
            ) from None
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
        if any("\ud800" <= char <= "\udfff" for char in value):
            raise InputError(
                f"{where}: {name!r} holds half a character ({value!a}); write the other half of "
                "that \\u pair too, or take it out"
            )
        return value
    if name == key and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise InputError(f"{where}: {name!r} holds {type(value).__name__}, not text")
