import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from brepfind.errors import InputError, VersionMismatch
from brepfind.retrieval.embeddings import read_embeddings, write_embeddings

ROWS = [("p0", "one", 0), ("p2", "two", 3), ("p0", "three", -1)]


@pytest.fixture
def some(embeddings_of):
    rng = np.random.default_rng(0)
    cad, text = rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    return embeddings_of(cad, ROWS, text, family=["a", "", "b"], model="f" * 64, notes={"k": 1})


def test_a_round_trip_is_exact_and_its_bytes_repeat(tmp_path, some):
    write_embeddings(tmp_path / "a", some)
    write_embeddings(tmp_path / "b", read_embeddings(tmp_path / "a"))
    back = read_embeddings(tmp_path / "b")
    assert back.parts.equals(some.parts) and back.captions.equals(some.captions)
    assert (back.cad == some.cad).all() and (back.text == some.text).all()
    assert (back.model, back.notes) == ("f" * 64, {"k": 1})
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_rows_of_captions_and_choice(some):
    assert some.caption_part.tolist() == [0, 2, 0]
    chosen = some.select(["p2", "p1"])
    assert chosen.parts["model_id"].tolist() == ["p1", "p2"]
    assert chosen.captions["caption"].tolist() == ["two"]
    assert (chosen.cad == some.cad[1:]).all() and (chosen.text == some.text[1:2]).all()


def test_what_does_not_fit_is_refused(some):
    with pytest.raises(InputError, match=r"cad is float32 \(2, 4\), its table has 3 rows"):
        replace(some, cad=some.cad[:2])
    with pytest.raises(InputError, match="cad has 4 dimensions and text 3"):
        replace(some, text=some.text[:, :3])
    with pytest.raises(InputError, match="float64"):
        replace(some, cad=some.cad.astype(np.float64))
    with pytest.raises(InputError, match="'p0' stands twice"):
        replace(some, parts=some.parts.assign(model_id=["p0", "p0", "p2"]))
    with pytest.raises(InputError, match="a caption is of 'p9', which has no row"):
        replace(some, captions=some.captions.assign(model_id="p9"))


def test_missing_damaged_or_of_another_version(tmp_path, some):
    with pytest.raises(InputError, match="holds no embeddings"):
        read_embeddings(tmp_path)
    write_embeddings(tmp_path, some)
    path = tmp_path / "embeddings.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="cannot be read"):
        read_embeddings(tmp_path)
    path.write_bytes(whole)
    save_file(load_file(path), path, {"brepfind": json.dumps({"format": 99})})
    with pytest.raises(VersionMismatch, match="format 99, this version reads 1"):
        read_embeddings(tmp_path)
    path.write_bytes(whole)
    (tmp_path / "parts.parquet").unlink()
    with pytest.raises(InputError, match="cannot be read"):
        read_embeddings(tmp_path)
