"""Preparing a corpus: the sample byte for byte, and the user's folder with everything counted."""

import os
import shutil
from pathlib import Path

import pytest

from brepfind.corpus.manifest import read_corpus
from brepfind.corpus.prepare import PrepareConfig, prepare, prepare_folder, prepare_sample
from brepfind.errors import CheckFailed, InputError, ParamsError
from brepfind.log import get_logger
from brepfind.params import check_section


def config(**changes: object) -> PrepareConfig:
    values: dict[str, object] = {
        "source": "sample",
        "parts": 8,
        "seed": 0,
        "captions_per_part": 4,
        "step_dir": None,
        "captions": None,
        "max_orphan_rate": 0.05,
    }
    return PrepareConfig.model_validate(values | changes)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_sample_is_the_same_in_one_process_and_in_two(tmp_path: Path) -> None:
    prepare_sample(config(), tmp_path / "one", workers=1)
    prepare_sample(config(), tmp_path / "two", workers=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    corpus = read_corpus(tmp_path / "one")
    assert len(corpus.parts) == 8
    assert all(corpus.step_path(path).is_file() for path in corpus.parts["path"])
    levels = corpus.captions.groupby("model_id")["level"]
    assert all(list(group) == [0, 1, 2, 3] for _, group in levels)


@pytest.mark.slow
def test_the_whole_default_sample_is_the_same_again(tmp_path: Path) -> None:
    prepare_sample(config(parts=400), tmp_path / "one", workers=1)
    prepare_sample(config(parts=400), tmp_path / "three", workers=3)
    assert contents(tmp_path / "one") == contents(tmp_path / "three")


def test_a_smaller_sample_is_the_beginning_of_a_larger_one(tmp_path: Path) -> None:
    prepare_sample(config(), tmp_path, workers=1)
    larger = contents(tmp_path / "step")
    prepare_sample(config(parts=5, captions_per_part=1), tmp_path, workers=1)
    smaller = contents(tmp_path / "step")
    assert len(smaller) == 5  # the other files of the larger sample are gone
    assert smaller.items() <= larger.items()
    corpus = read_corpus(tmp_path)
    assert set(corpus.captions["level"]) == {3}


def test_another_seed_gives_other_parts(tmp_path: Path) -> None:
    prepare_sample(config(parts=4), tmp_path / "0", workers=1)
    prepare_sample(config(parts=4, seed=1), tmp_path / "1", workers=1)
    first, second = contents(tmp_path / "0" / "step"), contents(tmp_path / "1" / "step")
    assert first.keys() == second.keys()
    assert first != second


def test_a_folder_source_must_be_named() -> None:
    values = config().model_dump() | {"source": "folder"}
    with pytest.raises(ParamsError, match="'folder' needs both step_dir and captions"):
        check_section(values, "prepare", PrepareConfig)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder of four STEP files, two of them with the same name."""
    box = next((Path(__file__).parents[1] / "fixtures/corpus").glob("*.step"))
    for name in ("a.step", "x/a.STEP", "y/b.stp", "y/c.step"):
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(box, tmp_path / "mine" / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def own_config(table: str, **changes: object) -> PrepareConfig:
    Path("table.csv").write_text("model_id,caption,split\n" + table)
    return config(source="folder", step_dir="mine", captions="table.csv", **changes)


def test_a_users_folder_is_taken_over_as_it_is(own: Path) -> None:
    before = contents(own / "mine")
    table = "a.step,one,\na.step,two,train\nx/a,three,\nb,four,test\nc,five,\n"
    findings = prepare(own_config(table), Path("data/corpus"), workers=1)
    assert all(finding.verdict == "ok" for finding in findings)
    corpus = read_corpus(Path("data/corpus"))
    assert list(corpus.parts["model_id"]) == ["a.step", "x/a.STEP", "y/b.stp", "y/c.step"]
    assert list(corpus.parts["family"]) == ["", "x", "y", "y"]
    assert list(corpus.parts["split"]) == ["train", "", "test", ""]
    assert list(corpus.captions["caption"]) == ["one", "two", "three", "four", "five"]
    assert list(corpus.captions["index"]) == [0, 1, 0, 0, 0]
    assert set(corpus.captions["level"]) == {-1}
    assert all(corpus.step_path(path).is_file() for path in corpus.parts["path"])
    assert corpus.notes["rows"] == 5
    assert contents(own / "mine") == before


def test_a_table_whose_encoding_is_a_guess_is_noted(
    own: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(get_logger("brepfind"), "propagate", True)
    asked = own_config("a.step,nut Ø8,\nx/a,two,\nb,three,\nc,four,\n")
    text = (own / "table.csv").read_text()
    for encoding, notes in (("latin-1", 1), ("utf-8", 0)):
        caplog.clear()
        (own / "table.csv").write_text(text, encoding=encoding)
        prepare_folder(asked, own / "out")
        found = read_corpus(own / "out").notes.get("encoding_guessed", [])
        assert len(found) == caplog.text.count("table.csv: is not UTF-8") == notes


def test_a_file_whose_name_is_not_utf8_stops_the_run(own: Path) -> None:
    shutil.copy(own / "mine/a.step", own / "mine" / os.fsdecode(b"sch\xfcssel.step"))
    with pytest.raises(InputError, match=r"mine: the name 'sch\\udcfcssel\.step' is not UTF-8;"):
        prepare(own_config("a.step,one,\n", max_orphan_rate=1.0), Path("data/corpus"), workers=1)


def test_few_orphans_are_counted_and_named(own: Path) -> None:
    table = "a.step,one,\na.step,one,\nx/a,two,\nb,three,\nb,,\nghost,four,\n"
    findings = prepare_folder(own_config(table, max_orphan_rate=0.3), Path("out"))
    lines = [finding.line() for finding in findings if finding.verdict == "warning"]
    assert "captions_without_part" in lines[0]
    assert "1 of 6: table.csv, row 6: ghost" in lines[0]
    assert "1 of 4: y/c.step" in lines[1]
    assert "left out: table.csv, row 5" in lines[2]
    assert "left out: table.csv, row 2" in lines[3]
    notes = read_corpus(Path("out")).notes
    assert notes["rows_without_part"] == 1
    assert notes["rows_without_part_first"] == ["table.csv, row 6: ghost"]
    assert notes["parts_without_caption_first"] == ["y/c.step"]
    assert (notes["rows_without_caption"], notes["rows_repeated"]) == (1, 1)


def test_many_captions_without_a_part_stop_the_run(own: Path) -> None:
    table = "a.step,one,\nx/a,two,\nb,three,\nc,four,\nghost,boo,\n"
    message = r"captions_without_part is 0\.2, asked is <= 0\.05: 1 of 5: table.csv, row 5: ghost;"
    with pytest.raises(CheckFailed, match=message):
        prepare_folder(own_config(table), Path("out"))
    assert not Path("out").exists()


def test_many_parts_without_a_caption_stop_the_run(own: Path) -> None:
    message = r"parts_without_caption is 0\.75, .* 3 of 4: x/a\.STEP, y/b\.stp, y/c\.step"
    with pytest.raises(CheckFailed, match=message):
        prepare_folder(own_config("a.step,one,\n"), Path("out"))


def test_an_ambiguous_name_stops_the_run(own: Path) -> None:
    (own / "mine/a.step").unlink()
    shutil.copytree(own / "mine/x", own / "mine/z")
    with pytest.raises(InputError, match=r"names several files, such as 'x/a\.STEP' and 'z/a"):
        prepare_folder(own_config("a,one,\n"), Path("out"))
