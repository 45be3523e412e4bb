"""The corpus manifest is deterministic, checked on both ways, and finds its STEP files."""

from pathlib import Path

import pandas as pd
import pytest

from brepfind.corpus.manifest import read_corpus, write_corpus
from brepfind.errors import InputError


def parts() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "model_id": ["b", "a"],
            "path": ["x/b.step", "a.STEP"],
            "family": ["nut", ""],
            "split": ["test", ""],
        }
    )


def captions() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "model_id": ["b", "a", "b"],
            "caption": ["a nut, Ø8", "a thing", "a second nut"],
            "level": [0, -1, 3],
            "index": [0, 0, 1],
            "phrasing": ["catalogue", "", "drawing"],
        }
    )


def test_what_is_written_is_read_sorted(tmp_path: Path) -> None:
    write_corpus(tmp_path, parts(), captions(), root="step", source="sample", notes={"seed": 1})
    corpus = read_corpus(tmp_path)
    assert list(corpus.parts["model_id"]) == ["a", "b"]
    assert list(corpus.captions["caption"]) == ["a thing", "a nut, Ø8", "a second nut"]
    assert list(corpus.captions["level"]) == [-1, 0, 3]
    assert corpus.step_path("x/b.step") == tmp_path / "step/x/b.step"
    assert corpus.notes == {"seed": 1}
    assert corpus.source == "sample"


def test_an_absolute_root_stays_absolute(tmp_path: Path) -> None:
    write_corpus(tmp_path, parts(), captions(), root="/far/away", source="folder", notes={})
    assert read_corpus(tmp_path).step_path("a.STEP") == Path("/far/away/a.STEP")


def test_row_order_does_not_change_the_bytes(tmp_path: Path) -> None:
    write_corpus(tmp_path / "1", parts(), captions(), root="step", source="sample", notes={})
    shuffled = (parts().iloc[::-1], captions().iloc[[2, 0, 1]])
    write_corpus(tmp_path / "2", *shuffled, root="step", source="sample", notes={})
    for name in ("parts.parquet", "captions.parquet", "corpus.json"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_a_folder_without_a_corpus_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run the prepare stage first"):
        read_corpus(tmp_path)


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    write_corpus(tmp_path, parts(), captions(), root="step", source="sample", notes={})
    whole = (tmp_path / "parts.parquet").read_bytes()
    (tmp_path / "parts.parquet").write_bytes(whole[:-9])
    with pytest.raises(InputError, match=r"parts\.parquet: is damaged"):
        read_corpus(tmp_path)


def test_another_versions_table_is_refused(tmp_path: Path) -> None:
    write_corpus(tmp_path, parts(), captions(), root="step", source="sample", notes={})
    parts().to_parquet(tmp_path / "captions.parquet")
    with pytest.raises(InputError, match=r"captions\.parquet: has the columns"):
        read_corpus(tmp_path)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("model_id", "a", "'a' stands twice"),
        ("path", "../b.step", "does not lie below the corpus root"),
        ("path", "/b.step", "does not lie below the corpus root"),
        ("model_id", "c", "caption of 'b': there is no such part"),
        ("split", "held-out", "split 'held-out' is not one of"),
    ],
)
def test_a_contradictory_corpus_is_not_written(
    tmp_path: Path, column: str, value: str, message: str
) -> None:
    wrong = parts()
    wrong.loc[0, column] = value
    with pytest.raises(InputError, match=message):
        write_corpus(tmp_path, wrong, captions(), root="step", source="sample", notes={})
    assert not (tmp_path / "parts.parquet").exists()
