"""The user's table and folder: encodings, matching, and errors that name file and row."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from brepfind.corpus.tables import Row, match_captions, read_captions, step_files
from brepfind.errors import InputError
from brepfind.log import get_logger

PLAIN = 'model_id,caption\na,"a nut, M8"\nb,a bolt Ø8\n'


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(*pairs: tuple[str, str]) -> list[Row]:
    return [Row(f"t.csv, row {i}", name, text, "") for i, (name, text) in enumerate(pairs, 1)]


def captions(path: Path) -> list[tuple[str, str]]:
    return [(row.model_id, row.caption) for row in read_captions(path)]


@pytest.mark.parametrize(
    "content",
    [
        PLAIN.encode(),
        b"\xef\xbb\xbf" + PLAIN.encode(),
        PLAIN.replace("\n", "\r\n").encode(),
        PLAIN.replace("\n", "\r").encode(),
        PLAIN.encode("latin-1"),
        PLAIN.encode("utf-16"),
        PLAIN.replace(",", ";").replace("nut;", "nut,").encode(),
        PLAIN.replace(",", "\t").replace("nut\t", "nut,").encode(),
        (PLAIN + "\n,\n\n").encode(),
        PLAIN.replace("caption", " caption ").replace("a bolt", "  a \t bolt ").encode(),
        PLAIN.rstrip("\n").encode(),
    ],
    ids=[
        *("utf8", "bom", "crlf", "cr", "latin1", "utf16", "semicolon", "tab", "blank-lines"),
        *("blanks", "no-last-newline"),
    ],
)
def test_the_same_table_however_it_is_saved(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path / "t.csv", content)
    assert captions(path) == [("a", "a nut, M8"), ("b", "a bolt Ø8")]


def test_windows_quotes_are_read_as_such(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "model_id,caption\na,“the” nut – Ø8\n".encode("cp1252"))
    assert captions(path) == [("a", "“the” nut – Ø8")]


def test_a_table_whose_encoding_is_a_guess_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(get_logger("brepfind"), "propagate", True)
    path = write(tmp_path / "t.csv", PLAIN.encode("latin-1"))
    read_captions(path)
    assert f"{path}: is not UTF-8 and was read as Windows-1252, which is a guess" in caplog.text
    notes: list[str] = []
    read_captions(path, note=notes.append)
    read_captions(write(tmp_path / "t.csv", PLAIN), note=notes.append)
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "t.csv",
            "model_id,caption\r\na,Schlüssel Ø10 – 45°\r\nb,sch".encode() + b"\xfcssel\r\n",
            r"t\.csv, line 3: byte 6 \(0xfc\) is not UTF-8, but other characters .* are; mend that",
        ),
        (
            "t.csv",
            b"\xef\xbb\xbfmodel_id,caption\na,sch\xfcssel\n",
            r"t\.csv, line 2: byte 6 \(0xfc\) is not UTF-8, but other",
        ),
        (
            "t.csv",
            "model_id,caption\na,法兰盘，内径十毫米，外径四十毫米\n".encode("gbk"),
            r"t\.csv, line 2: byte 3 \(0xb7\) is not UTF-8, but other .* save the whole file as",
        ),
        (
            "t.jsonl",
            '{"model_id": "a", "caption": "Schlüssel"}\n{"model_id": "sch'.encode()
            + b'\xfcssel", "caption": "b"}\n',
            r"t\.jsonl, line 2: byte 18 \(0xfc\) is not UTF-8, as JSON Lines must be; save the",
        ),
        (
            "t.jsonl",
            '{"model_id": "a", "caption": "Ø8"}\n'.encode("latin-1"),
            r"t\.jsonl, line 1: byte 31 \(0xd8\) is not UTF-8",
        ),
        (
            "t.jsonl",
            '{"model_id": "a", "caption": "b"}\n{"model_id": "a", "caption": "b \\ud800"}\n',
            r"t\.jsonl, row 2: 'caption' holds half a character \('b \\ud800'\); write the other",
        ),
        (
            "t.jsonl",
            '{"model_id": ' + "[" * 100_000 + "]" * 100_000 + "}\n",
            r"t\.jsonl, row 1: is nested too deeply; give an object of texts on each line",
        ),
    ],
    ids=["one-bad-byte", "bom", "gbk", "jsonl", "jsonl-latin1", "half-a-pair", "nested"],
)
def test_text_that_would_come_out_garbled_is_refused_by_file_and_line(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_captions(write(tmp_path / name, content))


def test_json_lines_may_begin_with_a_mark_and_write_characters_as_pairs(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf{"model_id": "a", "caption": "\\ud83d\\udd29 \xc3\x988"}\n'
    assert captions(write(tmp_path / "t.jsonl", content)) == [("a", "🔩 Ø8")]


def test_parquet_whose_text_is_not_utf8_is_refused(tmp_path: Path) -> None:
    bad = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xfc")]
    )
    pq.write_table(pa.table({"model_id": ["a"], "caption": bad}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"t\.parquet: is not a readable Parquet file .*UTF8"):
        read_captions(tmp_path / "t.parquet")


def test_a_quoted_caption_may_span_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", 'model_id,caption\na,"first\nsecond"\n')
    assert captions(path) == [("a", "first second")]


def test_parquet_tables_are_read(tmp_path: Path) -> None:
    table = pd.DataFrame({"other": [1.0, 2.0], "caption": ["x", None], "model_id": [17, 18]})
    table.to_parquet(tmp_path / "t.parquet")
    assert captions(tmp_path / "t.parquet") == [("17", "x"), ("18", "")]
    table["caption"] = table["caption"].astype("category")
    table.to_parquet(tmp_path / "t.parquet")
    assert captions(tmp_path / "t.parquet") == [("17", "x"), ("18", "")]


def test_splits_have_several_names(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "model_id,caption,split\na,x,Val\nb,y,\nc,z,TEST\n")
    assert [row.split for row in read_captions(path)] == ["validation", "", "test"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"t\.csv: is empty"),
        ("model_id,caption\n", r"t\.csv: has a header but no row"),
        ("id,text\na,x\n", r"no column 'model_id' and no column 'caption' \(its columns: id, text"),
        ("model_id,caption,caption\na,x,y\n", "the column 'caption' more than once"),
        ("model_id,caption\na,one, two\n", r"t\.csv, row 1: has 3 fields, the header has 2"),
        ("model_id,caption\na,x\n ,y\n", r"t\.csv, row 2: has no model_id"),
        ("model_id,caption,split\na,x,later\n", r"row 1: split 'later' is not one of train"),
        ('model_id,caption\na,"x\n', r"t\.csv, line \d: is not valid CSV"),
        (b"model_id,caption\na,\0\n", "holds NUL bytes"),
    ],
)
def test_a_wrong_table_is_refused_by_file_and_row(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_captions(write(tmp_path / "t.csv", content))


def test_a_missing_or_foreign_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such file; set prepare\.captions"):
        read_captions(tmp_path / "none.csv")
    with pytest.raises(InputError, match=r"is neither \.csv, \.tsv, \.parquet nor \.jsonl"):
        read_captions(write(tmp_path / "t.xlsx", "x"))
    with pytest.raises(InputError, match="is not a readable Parquet file"):
        read_captions(write(tmp_path / "t.parquet", "x"))
    pd.DataFrame({"model_id": ["a"], "caption": [1.5]}).to_parquet(tmp_path / "n.parquet")
    with pytest.raises(InputError, match="column 'caption' holds double, not text"):
        read_captions(tmp_path / "n.parquet")


def test_step_files_are_found_at_any_depth(tmp_path: Path) -> None:
    for name in ("b.STEP", "a.stp", "x/y/a.step", "x/a.txt", ".hidden/c.step", "x/._a.step"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "folder.step").mkdir()
    assert step_files(tmp_path) == ["a.stp", "b.STEP", "x/y/a.step"]


def test_a_folder_without_step_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no file that ends in \.step or \.stp"):
        step_files(tmp_path)
    with pytest.raises(InputError, match=r"there is no such folder; set prepare\.step_dir"):
        step_files(tmp_path / "none")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("x/a.step", "x/a.step"),
        ("x/a", "x/a.step"),
        ("./x/a", "x/a.step"),
        ("x\\a", "x/a.step"),
        ("only", "y/only.STP"),
        ("only.STP", "y/only.STP"),
        ("v1.2", "v1.2.step"),
    ],
)
def test_a_model_id_may_be_a_path_or_a_unique_name(name: str, file: str) -> None:
    files = ["a.step", "v1.2.step", "x/a.step", "y/only.STP"]
    assert match_captions(files, rows((name, "t"))).captions == {file: ["t"]}


def test_a_path_beats_a_bare_name() -> None:
    matched = match_captions(["a.step", "old/a.step"], rows(("a", "t")))
    assert matched.captions == {"a.step": ["t"]}


@pytest.mark.parametrize("files", [["x/a.step", "y/a.step"], ["a.step", "a.stp"]])
def test_an_ambiguous_name_is_an_error_that_names_both(files: list[str]) -> None:
    message = f"t.csv, row 1: model_id 'a' names several files, such as '{files[0]}' and "
    with pytest.raises(InputError, match=message + f"'{files[1]}'"):
        match_captions(files, rows(("a", "t")))


def test_what_is_left_out_is_listed() -> None:
    table = rows(("a", "one"), ("a", "two"), ("a", "one"), ("a", ""), ("ghost", "boo"))
    matched = match_captions(["a.step"], table)
    assert matched.captions == {"a.step": ["one", "two"]}
    assert matched.repeated == ["t.csv, row 3"]
    assert matched.empty == ["t.csv, row 4"]
    assert matched.without_part == ["t.csv, row 5: ghost"]


def test_two_splits_for_one_part_are_an_error() -> None:
    table = [Row("t.csv, row 1", "a", "x", "train"), Row("t.csv, row 2", "a.step", "y", "test")]
    message = "row 2: puts 'a.step' into 'test', but t.csv, row 1 puts it into 'train'"
    with pytest.raises(InputError, match=message):
        match_captions(["a.step"], table)
