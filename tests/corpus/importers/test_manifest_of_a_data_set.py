"""From a data set to the pipeline: the same bytes twice, licence kept, data untouched."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from brepfind.corpus.importers.folder import DATA_SET
from brepfind.corpus.importers.gathered import Gathered, write_gathered
from brepfind.corpus.manifest import read_corpus
from brepfind.corpus.prepare import PrepareConfig, prepare
from brepfind.errors import CheckFailed, InputError

Steps = Callable[..., Path]


def gathered(root: Path, *paths: str) -> Gathered:
    found = Gathered(root)
    for path in paths:
        found.part(path, split="test" if path == "b.step" else "")
        found.caption(path, f"part {path}", path, level=1)
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def config(root: Path, manifest: Path, rate: float = 0.0) -> PrepareConfig:
    return PrepareConfig(
        source="manifest",
        parts=1,
        seed=0,
        captions_per_part=1,
        step_dir=str(root),
        captions=str(manifest),
        max_orphan_rate=rate,
    )


def test_the_command_writes_a_manifest_that_prepare_takes_over(
    steps: Steps, tmp_path: Path
) -> None:
    root = steps("x/a.step", "x/b.step", "c.step")
    table = tmp_path / "t.csv"
    table.write_text("model_id,caption,split\nb,a bolt,test\na,a nut,\nnone,gone,\n")
    before = contents(root)
    command = [sys.executable, "-m", "brepfind.cli", "corpus", "folder", str(root)]
    command += ["--captions", str(table), "--out", "corpus"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    first = contents(tmp_path / "corpus")
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert contents(tmp_path / "corpus") == first
    assert contents(root) == before

    lines = [line.strip() for line in done.stdout.splitlines()]
    start = lines.index("prepare:")
    settings = dict(line.split(": ") for line in lines[start + 1 :])
    assert settings == {"source": "manifest", "step_dir": "data", "captions": "corpus"}
    assert b'"row_without_part"' in first["left_out.csv"]
    assert b'"part_without_caption","c.step"' in first["left_out.csv"]

    findings = prepare(config(root, tmp_path / "corpus"), tmp_path / "out", workers=1)
    assert [finding.verdict for finding in findings] == ["ok"]
    corpus = read_corpus(tmp_path / "out")
    assert corpus.source == "folder"
    assert corpus.notes["licence"] == DATA_SET.licence
    assert corpus.notes["left_out"] == {"part_without_caption": 1, "row_without_part": 1}
    assert corpus.parts[["model_id", "family", "split"]].to_numpy().tolist() == [
        ["x/a.step", "x", ""],
        ["x/b.step", "x", "test"],
    ]
    assert all(corpus.step_path(path).is_file() for path in corpus.parts["path"])


def test_a_moved_project_finds_its_files(steps: Steps, tmp_path: Path) -> None:
    write_gathered(gathered(steps("a.step"), "a.step"), DATA_SET, tmp_path / "corpus")
    (tmp_path / "moved").mkdir()
    for name in ("data", "corpus"):
        shutil.move(tmp_path / name, tmp_path / "moved" / name)
    corpus = read_corpus(tmp_path / "moved/corpus")
    assert corpus.step_path("a.step").is_file()


def test_nothing_is_written_into_the_data(steps: Steps) -> None:
    root = steps("a.step")
    for out in (root, root / "corpus"):
        with pytest.raises(InputError, match="lies in the data set's own folder"):
            write_gathered(gathered(root, "a.step"), DATA_SET, out)
    assert list(contents(root)) == ["a.step"]


def test_a_data_set_without_a_pair_is_refused(steps: Steps, tmp_path: Path) -> None:
    found = Gathered(steps("a.step"))
    found.part("a.step")
    found.caption("a.step", " \n ", "row 1")
    with pytest.raises(InputError, match=r"no part has a caption \(1 caption_empty, 1 part"):
        write_gathered(found, DATA_SET, tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


def test_files_that_are_gone_are_counted_and_too_many_stop(steps: Steps, tmp_path: Path) -> None:
    root, manifest = steps("a.step", "b.step"), tmp_path / "corpus"
    write_gathered(gathered(root, "a.step", "b.step"), DATA_SET, manifest)
    (root / "a.step").unlink()
    with pytest.raises(CheckFailed, match=r"parts_without_file is 0\.5, asked is <= 0: 1 of 2: a"):
        prepare(config(root, manifest), tmp_path / "out", workers=1)
    prepare(config(root, manifest, rate=0.5), tmp_path / "out", workers=1)
    corpus = read_corpus(tmp_path / "out")
    assert corpus.parts["model_id"].tolist() == ["b.step"]
    assert corpus.captions["caption"].tolist() == ["part b.step"]
    assert corpus.notes["parts_without_file"] == 1


def test_settings_that_do_not_fit_the_manifest_are_named(steps: Steps, tmp_path: Path) -> None:
    root, manifest = steps("a.step"), tmp_path / "corpus"
    write_gathered(gathered(root, "a.step"), DATA_SET, manifest)
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(InputError, match=r"not in .*elsewhere; set prepare\.step_dir"):
        prepare(config(tmp_path / "elsewhere", manifest), tmp_path / "out", workers=1)
    with pytest.raises(InputError, match=r"holds no corpus\.json; set prepare\.captions"):
        prepare(config(root, root), tmp_path / "out", workers=1)


def test_a_manifest_whose_path_leaves_the_folder_is_refused(steps: Steps, tmp_path: Path) -> None:
    root, manifest = steps("a.step"), tmp_path / "corpus"
    found = gathered(root, "a.step")
    found.parts["a.step"] = ("a.step", "../t.csv", "", "")
    with pytest.raises(InputError, match=r"'\.\./t\.csv' does not lie below the corpus root"):
        write_gathered(found, DATA_SET, manifest)
    found.parts["a.step"] = ("a.step", "a.step", "", "")
    write_gathered(found, DATA_SET, manifest)
    facts = json.loads((manifest / "corpus.json").read_text())
    (manifest / "corpus.json").write_text(json.dumps({**facts, "root": "../.."}))
    with pytest.raises(InputError, match=r"set prepare\.step_dir"):
        prepare(config(root, manifest), tmp_path / "out", workers=1)
