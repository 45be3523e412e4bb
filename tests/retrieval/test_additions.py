"""Real STEP files come into an index and leave it."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from brepfind.checkpoints.weights import load_weights, save_weights
from brepfind.errors import InputError, VersionMismatch
from brepfind.retrieval import additions
from brepfind.retrieval.additions import add_files, delete_parts
from brepfind.retrieval.index import read_index
from brepfind.retrieval.search import Searcher

ZOO = Path(__file__).parents[1] / "fixtures" / "cad" / "zoo"


def files(folder, **wanted):
    """A folder of zoo files under other names."""
    folder.mkdir()
    for name, source in wanted.items():
        shutil.copy(ZOO / f"{source}.step", folder / f"{name}.step")
    return folder


@pytest.fixture
def made(tmp_path, weights):
    """An index of two parts: a box and a sphere."""
    parts = files(tmp_path / "parts", box="ok_box", ball="sphere")
    index = tmp_path / "index"
    add_files(weights, index, [parts])
    return index


def ids(index):
    return sorted(read_index(index).parts["model_id"])


def test_parts_are_added_and_found_without_training(tmp_path, weights, made):
    assert ids(made) == ["ball.step", "box.step"]
    more = files(tmp_path / "more", cone="cone_apex", page="html_404", cylinder="full_cylinder")
    outcome = add_files(weights, made, [more, ZOO / "spline_face.step"], prefix="new/")
    assert outcome.added == ["new/cone.step", "new/cylinder.step", "new/spline_face.step"]
    assert [(one.name, one.reason) for one in outcome.refused] == [("new/page.step", "unreadable")]
    assert outcome.total == 5
    searcher = Searcher.open(weights, made)
    (hit, *_) = searcher.like_file(ZOO / "cone_apex.step", k=5)
    assert hit.model_id == "new/cone.step"
    assert hit.score == pytest.approx(1, abs=1e-5)
    where = Path(hit.facts["root"]) / hit.facts["path"]
    assert where == more / "cone.step"
    assert searcher.index.facts("new/spline_face.step")["root"] == ZOO.as_posix()


def test_the_same_again_changes_nothing(tmp_path, weights, made):
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    outcome = add_files(weights, made, [tmp_path / "parts"])
    assert sorted(outcome.known) == ["ball.step", "box.step"]
    assert outcome.added == []
    assert {path.name: path.read_bytes() for path in made.iterdir()} == before


def test_an_id_that_is_taken_is_refused_or_replaced(tmp_path, weights, made):
    other = files(tmp_path / "other", box="cone_apex")
    outcome = add_files(weights, made, [other])
    (refused,) = outcome.refused
    assert (refused.name, refused.reason) == ("box.step", "duplicate")
    assert "--replace" in refused.message
    outcome = add_files(weights, made, [other], replace=True)
    assert outcome.replaced == outcome.added == ["box.step"]
    assert outcome.total == 2
    (hit,) = Searcher.open(weights, made).like_file(ZOO / "cone_apex.step", k=1)
    assert hit.model_id == "box.step"


def test_the_same_shape_under_another_name_is_refused_or_let_in(tmp_path, weights, made):
    copies = files(tmp_path / "copies", a="cone_apex", b="cone_apex", inch="unit_inch", z="ok_box")
    outcome = add_files(weights, made, [copies])
    assert outcome.added == ["a.step"]
    assert [(one.name, one.reason) for one in outcome.refused] == [
        ("b.step", "twin"),
        ("inch.step", "twin"),  # of the box, in another unit
        ("z.step", "twin"),
    ]
    assert "same shape as 'box.step'" in outcome.refused[1].message
    outcome = add_files(weights, made, [copies], allow_twins=True)
    assert outcome.added == ["b.step", "inch.step", "z.step"]
    assert outcome.known == ["a.step"]
    assert len(ids(made)) == 6


def test_an_addition_that_is_stopped_leaves_the_old_index(tmp_path, weights, made, monkeypatch):
    def stop(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(additions, "embed_parts", stop)
    with pytest.raises(KeyboardInterrupt):
        add_files(weights, made, [files(tmp_path / "more", cone="cone_apex")])
    assert ids(made) == ["ball.step", "box.step"]


def test_another_models_index_takes_nothing(tmp_path, weights, made):
    tensors, notes = load_weights(weights)
    name = next(iter(load_file(weights)))
    tensors[name] = tensors[name] + 1
    other = tmp_path / "other.safetensors"
    save_weights(other, tensors, notes)
    with pytest.raises(VersionMismatch, match="the one in use is"):
        add_files(other, made, [tmp_path / "parts"])
    with pytest.raises(VersionMismatch, match="the one in use is"):
        Searcher.open(other, made)


def test_a_folder_of_something_else_is_not_written_into(tmp_path, weights):
    with pytest.raises(InputError, match="holds other files and no index"):
        add_files(weights, files(tmp_path / "parts", box="ok_box"), [tmp_path / "parts"])


def test_nothing_good_makes_no_index(tmp_path, weights):
    outcome = add_files(weights, tmp_path / "index", [ZOO / "html_404.step"])
    assert outcome.added == []
    assert outcome.total == 0
    assert not (tmp_path / "index").exists()


def test_parts_are_deleted(made):
    with pytest.raises(InputError, match="holds no part 'absent'; nothing was deleted"):
        delete_parts(made, ["box.step", "absent"])
    assert ids(made) == ["ball.step", "box.step"]
    assert delete_parts(made, ["box.step"]) == 1
    assert ids(made) == ["ball.step"]
    with pytest.raises(InputError, match="all its parts"):
        delete_parts(made, ["ball.step"])


def test_the_vectors_are_those_of_a_fresh_index(tmp_path, weights, made):
    """What came in one by one is what comes in at once."""
    add_files(weights, made, [files(tmp_path / "more", cone="cone_apex")])
    at_once = tmp_path / "at_once"
    add_files(weights, at_once, [tmp_path / "parts", tmp_path / "more"])
    one, other = read_index(made), read_index(at_once)
    for name in ids(made):
        assert np.allclose(one.vector(name), other.vector(name), atol=1e-6)
