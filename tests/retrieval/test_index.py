import numpy as np
import pandas as pd
import pytest

from brepfind.errors import CheckFailed, InputError, VersionMismatch
from brepfind.files import read_json, write_json
from brepfind.retrieval import index as module
from brepfind.retrieval.index import (
    add_parts,
    make_index,
    read_index,
    remove_parts,
    write_index,
)

MODEL, OTHER = "a" * 64, "b" * 64


def table(*ids):
    return pd.DataFrame({"model_id": ids, "faces": range(len(ids))})


@pytest.fixture
def index():
    return make_index(
        np.array([[2.0, 0], [0, 3], [1, 1]], np.float32), table("x", "y", "xy"), MODEL
    )


def ids(index, query, k=3):
    _, rows = index.nearest(np.array([query], np.float32), k)
    return index.parts["model_id"].iloc[rows[0]].tolist()


def test_exact_cosine_best_first(index):
    scores, rows = index.nearest(np.array([[5.0, 1.0]], np.float32), 2)
    assert rows.tolist() == [[0, 2]]
    assert scores[0] == pytest.approx([5 / 26**0.5, 6 / 52**0.5], abs=1e-6)
    assert ids(index, [0, 1], k=50) == ["y", "xy", "x"]  # k beyond the index is all of it


def test_exact_against_the_full_matrix():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((500, 16)).astype(np.float32)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    found = make_index(rows, table(*map(str, range(500))), MODEL).nearest(rows[:20], 10)[1]
    assert (found == np.argsort(-(unit[:20] @ unit.T), axis=1)[:, :10]).all()


def test_a_round_trip_repeats_its_bytes(tmp_path, index):
    write_index(tmp_path / "a", index)
    back = read_index(tmp_path / "a", MODEL)
    assert ids(back, [5, 1]) == ids(index, [5, 1])
    assert back.parts.equals(index.parts)
    write_index(tmp_path / "b", back)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_another_models_index_is_refused(tmp_path, index):
    write_index(tmp_path, index)
    with pytest.raises(VersionMismatch, match="made by model aaaaaaaaaaaa, the one in use is bbbb"):
        read_index(tmp_path, OTHER)
    with pytest.raises(VersionMismatch, match="do not compare"):
        add_parts(index, np.ones((1, 2), np.float32), table("new"), OTHER)


def test_damage_and_absence_are_named(tmp_path, index):
    with pytest.raises(InputError, match="holds no index"):
        read_index(tmp_path)
    write_index(tmp_path, index)
    (path,) = tmp_path.glob("vectors-*.faiss")
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 0xFF
    path.write_bytes(bytes(raw))
    with pytest.raises(InputError, match=r"vectors-\w+\.faiss: is missing or damaged"):
        read_index(tmp_path)
    path.unlink()
    with pytest.raises(InputError, match=r"vectors-\w+\.faiss: is missing or damaged"):
        read_index(tmp_path)


def test_an_index_of_another_format_is_refused(tmp_path, index):
    write_index(tmp_path, index)
    stamp = read_json(tmp_path / "index.json")
    write_json(tmp_path / "index.json", stamp | {"format": 1})
    with pytest.raises(VersionMismatch, match="an index of format 1, this version reads 2"):
        read_index(tmp_path)
    write_json(tmp_path / "index.json", [])
    with pytest.raises(VersionMismatch, match="format None"):
        read_index(tmp_path)


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_write_that_is_stopped_leaves_the_old_index(tmp_path, index, monkeypatch, written):
    """After none, one or two of its three files."""
    write_index(tmp_path, index)
    more = add_parts(index, np.ones((1, 2), np.float32), table("new"), MODEL)
    calls = []
    for name in ("write_bytes", "write_json"):
        real = getattr(module, name)

        def stopping(path, content, real=real):
            if len(calls) == written:
                raise KeyboardInterrupt
            calls.append(path)
            real(path, content)

        monkeypatch.setattr(module, name, stopping)
    with pytest.raises(KeyboardInterrupt):
        write_index(tmp_path, more)
    monkeypatch.undo()
    assert read_index(tmp_path, MODEL).parts.equals(index.parts)
    write_index(tmp_path, more)  # and the next write leaves nothing of it
    assert read_index(tmp_path, MODEL).parts.equals(more.parts)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_reader_in_the_middle_of_a_write_gets_the_new_index(tmp_path, index, monkeypatch):
    write_index(tmp_path, index)
    more = add_parts(index, np.ones((1, 2), np.float32), table("new"), MODEL)
    real = module._contents

    def late(folder, stamp):
        monkeypatch.undo()
        write_index(tmp_path, more)  # the files of the stamp that was read are gone now
        return real(folder, stamp)

    monkeypatch.setattr(module, "_contents", late)
    assert read_index(tmp_path, MODEL).parts.equals(more.parts)


def test_only_some_parts_are_looked_among(index):
    def among(*allowed):
        scores, rows = index.nearest(np.array([[5.0, 1.0]], np.float32), 5, np.array(allowed))
        assert scores.shape == rows.shape
        return rows[0].tolist()

    assert among(True, True, True) == [0, 2, 1]
    assert among(False, True, True) == [2, 1]
    assert among(False, True, False) == [1]
    assert among(False, False, False) == []


def test_a_part_gives_its_vector_and_facts(index):
    assert index.vector("y").tolist() == [0, 1]
    assert index.facts("y") == {"faces": 1}
    with pytest.raises(InputError, match="the index holds no part 'absent'"):
        index.vector("absent")


def test_parts_are_added_replaced_and_removed(index):
    more = add_parts(index, np.array([[-1.0, 0], [0, -1]], np.float32), table("new", "x"), MODEL)
    assert more.parts["model_id"].tolist() == ["y", "xy", "new", "x"]
    assert ids(more, [-3, 0], k=1) == ["new"]
    assert ids(more, [0, -3], k=1) == ["x"]
    less = remove_parts(more, ["y", "absent"])
    assert less.parts["model_id"].tolist() == ["xy", "new", "x"]
    assert ids(less, [0, 1], k=1) == ["xy"]
    assert len(remove_parts(less, ["xy", "new", "x"])) == 0


def test_what_cannot_be_indexed_or_asked(index):
    with pytest.raises(CheckFailed, match=r"zero and have no direction \(x\)"):
        make_index(np.zeros((1, 2), np.float32), table("x"), MODEL)
    with pytest.raises(InputError, match="0 vectors for 0 parts"):
        make_index(np.zeros((0, 2), np.float32), table(), MODEL)
    with pytest.raises(InputError, match="part 'x' stands twice"):
        make_index(np.ones((2, 2), np.float32), table("x", "x"), MODEL)
    with pytest.raises(InputError, match="vectors of 3 dimensions for an index of 2"):
        add_parts(index, np.ones((1, 3), np.float32), table("new"), MODEL)
    with pytest.raises(InputError, match="digest"):
        make_index(np.ones((1, 2), np.float32), table("x"), "")
    with pytest.raises(InputError, match="k is 0"):
        index.nearest(np.ones((1, 2), np.float32), 0)
    with pytest.raises(InputError, match="3 dimensions for an index of 2"):
        index.nearest(np.ones((1, 3), np.float32), 1)
    with pytest.raises(CheckFailed, match="NaN"):
        index.nearest(np.full((1, 2), np.nan, np.float32), 1)
