"""Text2CAD, ABC, Fusion 360 Gallery and folders: ids brought to files, what is left out counted."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from brepfind.corpus.importers import abc, bins, folder, fusion360, text2cad
from brepfind.corpus.importers.gathered import Gathered, write_gathered
from brepfind.corpus.importers.words import Columns
from brepfind.corpus.manifest import read_corpus
from brepfind.errors import InputError

Steps = Callable[..., Path]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def reasons(found: Gathered) -> list[tuple[str, str]]:
    return sorted((reason, what.rpartition("/t.csv, ")[2]) for reason, what in found.left_out)


def texts(found: Gathered) -> dict[str, list[str]]:
    return {path: list(captions) for path, captions in found.captions.items()}


# Text2CAD -----------------------------------------------------------------------------------------

HEADER = "uid,abstract,beginner,intermediate,expert\n"


def test_text2cad_brings_four_levels_to_files_in_either_place(steps: Steps, tmp_path: Path) -> None:
    root = steps(
        "0000/00000007.step", "0000/00000008/made.step", "0000/00000008/second.step", "other/x.step"
    )
    table = write(
        tmp_path / "t.csv",
        HEADER
        + "0000/00000007,a box,A cube.,A cube of 1 unit.,\n"
        + '0000/00000008,a plate,"A plate,\nthin.",a plate,Extrude.\n'
        + "0000/00000007,again,,,\n"
        + "0000/00000099,gone,,,\n"
        + "../../etc/passwd,evil,,,\n",
    )
    found = text2cad.gather(root, table)
    assert found.captions == {
        "0000/00000007.step": {"a box": 0, "A cube.": 1, "A cube of 1 unit.": 2},
        "0000/00000008/made.step": {"a plate": 0, "A plate, thin.": 1, "Extrude.": 3},
    }
    assert reasons(found) == [
        ("caption_empty", "row 1: 0000/00000007, expert"),
        ("caption_repeated", "row 2: 0000/00000008, intermediate"),
        ("file_of_a_uid_that_another_has", "0000/00000008/second.step, as 0000/00000008/made.step"),
        ("row_without_part", "row 4: 0000/00000099"),
        ("row_without_part", "row 5: ../../etc/passwd"),
        ("uid_repeated", "row 3: 0000/00000007"),
    ]


def test_text2cad_takes_the_levels_asked_for_only(steps: Steps, tmp_path: Path) -> None:
    root = steps("00000007.step")
    table = write(tmp_path / "t.csv", "uid,expert\n0000/00000007,Extrude.\n")
    assert text2cad.gather(root, table, ["expert"]).captions == {"00000007.step": {"Extrude.": 3}}
    with pytest.raises(InputError, match=r"t\.csv: has no column 'abstract' and no column"):
        text2cad.gather(root, table)
    with pytest.raises(InputError, match="level 'simple' is not one of abstract, beginner"):
        text2cad.gather(root, table, ["simple"])


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("0.75 units wide, 0.1875 unit thick", "7.5 mm wide, 1.875 mm thick"),
        ("a 1-unit cube and .5 Units", "a 10 mm cube and 5 mm"),
        ("scaled by 0.75 at (0.5, 0.25), 90 degrees", "scaled by 0.75 at (0.5, 0.25), 90 degrees"),
        ("model v1.2 united with 3 united parts", "model v1.2 united with 3 united parts"),
        # Numbers of every form, and ranges as a whole.
        ("1,000 units, 1,234.5 units", "10000 mm, 12345 mm"),
        ("1e-3 units and 2E-05 units", "0.01 mm and 0.0002 mm"),
        ("3/4 units", "7.5 mm"),
        ("between 0.2 and 0.4 units", "between 2 and 4 mm"),
        ("from -0.2 to 0.4 units", "from -2 to 4 mm"),
        ("0.2-0.4 units, 0.2–0.4 units", "2-4 mm, 2–4 mm"),
        ("0.75 by 0.5 by 0.25 units", "7.5 by 5 by 2.5 mm"),
        ("scaled by 0.75. 0.4 units thick", "scaled by 0.75. 4 mm thick"),
        ("at (0.5, 0.25), 90°, 0.4 units", "at (0.5, 0.25), 90°, 4 mm"),
    ],
)
def test_only_what_is_called_units_becomes_millimetres(text: str, changed: str) -> None:
    assert text2cad.in_millimetres(text, 10.0)[0] == changed


@pytest.mark.parametrize(
    "unsure",
    [
        *("0,125 units", "1-1/2 units", "1/2/3 units"),
        *("1 3/4 units", "1/0 units", "1,5 units", "1 000 units", "1.2.3 units", "R3 units"),
        *("0.2, 0.3 and 0.4 units", "0.2 and 0.4 units", "0.5,0.25 units", "0.5 ± 0.1 units"),
        *("2 x 0.5 units", "0.75x0.5 units", "0.75×0.5 units", "10^-3 units", "2E−5 units"),
        *("half a unit", "two units", "(0.5, 0.25) units", "0.5 normalized units", "1e400 units"),
    ],
)
def test_a_caption_never_mixes_units(unsure: str) -> None:
    text = f"2 units wide, {unsure} high"
    assert text2cad.in_millimetres(text, 10.0) == (text, 0, 2)


def test_the_scale_changes_words_and_counts_them(steps: Steps, tmp_path: Path) -> None:
    row = "0000/00000007,box,2 units and 3 units,4 mm,2 units or half a unit\n"
    table = write(tmp_path / "t.csv", HEADER + row)
    found = text2cad.gather(steps("0000/00000007.step"), table, mm_per_unit=0.5)
    assert texts(found)["0000/00000007.step"] == [
        *("box", "1 mm and 1.5 mm", "4 mm", "2 units or half a unit")
    ]
    assert found.counts["lengths_in_millimetres"] == 2
    assert found.counts["lengths_left_in_units"] == 2
    assert found.counts["captions_left_in_units"] == 1


@pytest.mark.parametrize("rows", [["0001", "0000"], ["0000", "0001"]])
def test_a_uid_of_another_folder_is_no_uid_of_the_file(
    steps: Steps, tmp_path: Path, rows: list[str]
) -> None:
    lines = "".join(f"{folder}/00000007,of {folder}\n" for folder in rows)
    table = write(tmp_path / "t.csv", "uid,expert\n" + lines)
    found = text2cad.gather(steps("0000/00000007.step"), table, ["expert"])
    assert texts(found) == {"0000/00000007.step": ["of 0000"]}
    number = rows.index("0001") + 1
    assert reasons(found) == [("row_without_part", f"row {number}: 0001/00000007")]


@pytest.mark.parametrize(
    ("paths", "uids"),
    [
        (["0000/00000007.step"], ["00000007", "0000/00000007"]),
        (["00000007.step"], ["0000/00000007", "00000007"]),
        (["all/00000007.step"], ["0000/00000007", "0000/00000007"]),
        (["00000007/made.step"], ["0000/00000007", "0000/00000007"]),
    ],
)
def test_the_last_part_is_enough_where_the_table_or_the_folder_has_no_more(
    steps: Steps, tmp_path: Path, paths: list[str], uids: list[str]
) -> None:
    table = write(tmp_path / "t.csv", f"uid,expert\n{uids[0]},a\n{uids[1]},b\n")
    found = text2cad.gather(steps(*paths), table, ["expert"])
    assert texts(found) == {paths[0]: ["a"]}
    assert reasons(found) == [("uid_repeated", f"row 2: {uids[1]}")]


@pytest.mark.parametrize(
    ("paths", "uids", "match"),
    [
        (
            ["0000/00000007.step", "0001/00000007.step"],
            ["00000007"],
            r"row 1: uid '00000007' names several files, such as '0000/00000007\.step' and '0001/0",
        ),
        (
            ["a/00000007.step", "b/00000007.step"],
            ["0000/00000007"],
            "row 1: uid '0000/00000007' names several files",
        ),
        (
            ["00000007.step"],
            ["0001/00000007", "0000/00000007"],
            r"row 2: uid '0000/00000007' names '00000007\.step', and so does '0001/00000007' of",
        ),
    ],
)
def test_a_uid_that_may_mean_several_parts_is_an_error(
    steps: Steps, tmp_path: Path, paths: list[str], uids: list[str], match: str
) -> None:
    lines = "".join(f"{uid},words\n" for uid in uids)
    table = write(tmp_path / "t.csv", "uid,expert\n" + lines)
    with pytest.raises(InputError, match=match):
        text2cad.gather(steps(*paths), table, ["expert"])


# ABC ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["7", "00000007", "0000/00000007", "00000007_9b3d6a97_step_000", "a\\00000007.step"]
)
def test_abc_knows_a_model_by_all_its_names(steps: Steps, tmp_path: Path, name: str) -> None:
    root = steps(
        "abc_0000_step_v00/00000007/00000007_9b3d6a97_step_000.step",
        "abc_0000_step_v00/00000050/00000050_80d90bfd_step_004.step",
    )
    (root / "abc_0000_step_v00/00000051").mkdir()  # a model that could not be exported
    table = write(tmp_path / "t.csv", f"uid,text\n{name},a box\n51,gone\n")
    found = abc.gather(root, table, Columns(model_id="uid", caption="text"))
    assert texts(found) == {"abc_0000_step_v00/00000007/00000007_9b3d6a97_step_000.step": ["a box"]}
    assert reasons(found) == [("row_without_part", "row 2: 51")]


def test_abc_leaves_out_files_of_another_layout_and_second_files(
    steps: Steps, tmp_path: Path
) -> None:
    root = steps("a/00000007_9b_step_000.step", "a/readme.step", "b/00000007_9b_step_001.step")
    found = abc.gather(root, write(tmp_path / "t.csv", "model_id,caption\n7,x\n"), Columns())
    assert texts(found) == {"a/00000007_9b_step_000.step": ["x"]}
    assert reasons(found) == [
        (
            "file_of_a_name_that_another_has",
            "b/00000007_9b_step_001.step, as a/00000007_9b_step_000.step",
        ),
        ("file_of_another_layout", "a/readme.step"),
    ]


# Fusion 360 Gallery -------------------------------------------------------------------------------


def test_fusion360_keeps_the_official_split_with_a_validation_of_its_own(
    steps: Steps, tmp_path: Path
) -> None:
    names = [f"20203_7e31e92a_{i:04d}" for i in range(60)]
    root = steps(*(f"r1.0.1/reconstruction/{name}.step" for name in names))
    table = write(
        tmp_path / "t.csv", "model_id,caption\n" + "".join(f"{n},part {n}\n" for n in names)
    )
    official = write(
        tmp_path / "train_test.json", json.dumps({"train": names[:40], "test": names[40:55]})
    )
    free = fusion360.gather(root, table, Columns(), None)
    assert {row[3] for row in free.parts.values()} == {""}
    found = fusion360.gather(root, table, Columns(), official)
    sides = [row[3] for row in found.parts.values()]
    assert set(sides[:40]) == {"train", "validation"}
    assert 1 <= sides.count("validation") <= 12
    assert sides[40:] == ["test"] * 15 + [""] * 5
    assert found.counts["not_in_official_split"] == 5


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ('{"train": ["a"]}', "holds no lists 'train' and 'test'"),
        ('{"train": ["a"], "test": [1]}', "'test' holds 1, not a name"),
        ('{"train": ["a"], "test": ["a"]}', "'a' stands in 'train' and in 'test'"),
        ("[]", "holds no lists"),
        ("{", "is not valid JSON"),
    ],
)
def test_an_official_split_that_is_none_is_refused(
    steps: Steps, tmp_path: Path, content: str, match: str
) -> None:
    table = write(tmp_path / "t.csv", "model_id,caption\na,x\n")
    with pytest.raises(InputError, match=rf"train_test\.json: {match}"):
        fusion360.gather(
            steps("a.step"), table, Columns(), write(tmp_path / "train_test.json", content)
        )


# Folders ------------------------------------------------------------------------------------------


def test_a_folder_is_read_with_each_kind_of_table(steps: Steps, tmp_path: Path) -> None:
    root = steps("a/one.step", "b/two.STP")
    rows = {"part": ["a/one.step", "two", "three"], "words": ["eins", "zwei Ø8", "drei"]}
    frame = pd.DataFrame(rows)
    frame.to_csv(tmp_path / "t.csv", index=False, encoding="cp1252")
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    frame.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    columns = Columns(model_id="part", caption="words")
    for name in ("t.csv", "t.parquet", "t.jsonl"):
        found = folder.gather(root, tmp_path / name, columns)
        assert texts(found) == {"a/one.step": ["eins"], "b/two.STP": ["zwei Ø8"]}, name
        assert [row[2] for row in found.parts.values()] == ["a", "b"]
        assert [reason for reason, _ in found.left_out] == ["row_without_part"]


def test_a_text_file_beside_a_part_has_a_caption_a_line(steps: Steps) -> None:
    root = steps("a/one.step", "two.step", "three.step", "four.step")
    write(root / "a/one.txt", "\ufeffa nut\r\n\r\n a  bolt \r\na nut\r\n")
    write(root / "two.txt", "\n \n")
    write(root / "three.txt", b"a\0b")
    found = folder.gather(root, None, Columns())
    assert texts(found) == {"a/one.step": ["a nut", "a bolt"]}
    assert sorted(reason for reason, _ in found.left_out) == [
        "caption_empty",
        "caption_repeated",
        "text_file_unreadable",
    ]


def test_every_text_file_is_taken_or_left_out_with_its_reason(steps: Steps) -> None:
    root = steps("a.step", "x/C.STEP")
    for name in ("a.txt", "b.txt", "x/C.TXT", "x/a.txt", ".hidden.txt"):
        write(root / name, f"words of {name}\n")
    found = folder.gather(root, None, Columns())
    assert texts(found) == {"a.step": ["words of a.txt"], "x/C.STEP": ["words of x/C.TXT"]}
    assert reasons(found) == [
        ("text_file_without_part", "b.txt"),
        ("text_file_without_part", "x/a.txt"),
    ]


@pytest.mark.parametrize("words", [True, False], ids=["text-files", "table"])
def test_a_file_whose_name_is_not_utf8_is_left_out(
    steps: Steps, tmp_path: Path, words: bool
) -> None:
    root = steps("a.step")
    for name in (b"sch\xfcssel.step", b"sch\xfcssel.txt"):
        (root / os.fsdecode(name)).write_bytes((root / "a.step").read_bytes())
    write(root / "a.txt", "a key\n")
    table = None if words else write(tmp_path / "t.csv", "model_id,caption\na,a key\n")
    found = folder.gather(root, table, Columns())
    names = ["sch\\udcfcssel.step"] + ["sch\\udcfcssel.txt"] * words
    assert reasons(found) == [("file_name_not_utf8", name) for name in names]
    write_gathered(found, folder.DATA_SET, tmp_path / "out")
    assert (
        '"file_name_not_utf8","sch\\udcfcssel.step"' in (tmp_path / "out/left_out.csv").read_text()
    )
    assert read_corpus(tmp_path / "out").captions["model_id"].tolist() == ["a.step"]


def test_files_whose_encoding_was_guessed_are_noted(steps: Steps, tmp_path: Path) -> None:
    root = steps("a.step", "b.step")
    write(root / "a.txt", "Schlüssel".encode("latin-1"))
    write(root / "b.txt", "Schlüssel")
    found = folder.gather(root, None, Columns())
    notes = write_gathered(found, folder.DATA_SET, tmp_path / "out")
    assert notes["counted"]["encoding_guessed"] == 1
    assert [note.partition(": ")[0] for note in notes["encoding_guessed"]] == [str(root / "a.txt")]
    table = write(tmp_path / "t.csv", "model_id,caption\na,Schlüssel\n".encode("latin-1"))
    for found in (
        folder.gather(root, table, Columns()),
        text2cad.gather(root, write(tmp_path / "u.csv", b"uid,expert\na,\xfc\n"), ["expert"]),
    ):
        assert found.counts["encoding_guessed"] == 1
    write(table, "model_id,caption\na,Schlüssel\n")
    found = folder.gather(root, table, Columns())
    assert "encoding_guessed" not in write_gathered(found, folder.DATA_SET, tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("t.csv", "model_id,caption\n", "has a header but no row"),
        ("t.csv", "", "is empty"),
        ("t.csv", "model_id,words\na,b\n", r"no column 'caption' \(its columns: model_id, words\)"),
        ("t.csv", "model_id,caption\na\n", "row 1: has 1 fields, the header has 2"),
        ("t.csv", b"\xff\xfea", "begins as UTF-16 but is not"),
        ("t.jsonl", '{"model_id": "a"}\n', "has no column 'caption'"),
        ("t.jsonl", '{"model_id": "a", "caption": 3}\n', "row 1: 'caption' holds int, not text"),
        ("t.jsonl", '{"model_id": "a", "caption": "b"}\n[]\n', "row 2: holds no object but list"),
        ("t.jsonl", '{"model_id": "a", "caption": "b"\n', "row 1: is not valid JSON"),
        ("t.jsonl", '{"caption": "b"}\n{"model_id": "a"}\n', "row 1: has no model_id"),
        ("t.jsonl", "\n", "is empty"),
        ("t.parquet", "PAR1", "is not a readable Parquet file"),
        ("t.docx", "", "is neither"),
        ("none.csv", None, "there is no such file; give the caption table"),
    ],
)
def test_a_table_that_cannot_be_used_is_named(
    steps: Steps, tmp_path: Path, name: str, content: str | bytes | None, match: str
) -> None:
    if content is not None:
        write(tmp_path / name, content)
    with pytest.raises(InputError, match=match) as error:
        folder.gather(steps("a.step"), tmp_path / name, Columns())
    assert name in str(error.value)


def test_a_folder_without_parts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder; give the folder that the data set"):
        folder.gather(tmp_path / "none", None, Columns())
    with pytest.raises(InputError, match=r"holds no file that ends in \.step or \.stp"):
        folder.gather(tmp_path, None, Columns())


# Graph files --------------------------------------------------------------------------------------


def test_graph_files_are_named_by_path_or_name(tmp_path: Path) -> None:
    source = Path(__file__).resolve().parents[2] / "fixtures/models/small_graph_0.bin"
    (tmp_path / "data/x").mkdir(parents=True)
    (tmp_path / "data/x/a.bin").write_bytes(source.read_bytes())
    (tmp_path / "data/b.BIN").write_bytes(source.read_bytes())
    table = write(tmp_path / "t.csv", "model_id,caption\nx/a.bin,a gear\nb,a shaft\nc,gone\n")
    found = bins.gather(tmp_path / "data", table, Columns())
    assert texts(found) == {"x/a.bin": ["a gear"], "b.BIN": ["a shaft"]}
    assert [reason for reason, _ in found.left_out] == ["row_without_part"]
