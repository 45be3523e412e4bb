"""Anyone's embeddings, whole and broken."""

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from brepfind.errors import InputError
from brepfind.retrieval.embeddings import write_embeddings
from brepfind.retrieval.foreign import read_matrices
from brepfind.retrieval.foreign_pairs import read_pair, write_pair

ROWS = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)


def test_npy(tmp_path):
    np.save(tmp_path / "cad.npy", ROWS)
    assert (read_matrices(tmp_path / "cad.npy")["cad"] == ROWS).all()
    np.save(tmp_path / "half.npy", ROWS.astype(np.float16))
    assert read_matrices(tmp_path / "half.npy")["half"].dtype == np.float32


def test_safetensors_of_any_float(tmp_path):
    save_file(
        {
            "b16": torch.from_numpy(ROWS).bfloat16(),
            "f64": torch.from_numpy(ROWS).double(),
            "vector": torch.ones(3),
            "ids": torch.arange(6),
        },
        tmp_path / "x.safetensors",
    )
    found = read_matrices(tmp_path / "x.safetensors")
    assert set(found) == {"b16", "f64"}
    assert found["b16"].dtype == np.float32
    assert found["f64"].dtype == np.float64


def test_parquet_lists_or_number_columns(tmp_path):
    table = pd.DataFrame({"id": list("abcdef"), "text": list(ROWS), "n": range(6)})
    table.to_parquet(tmp_path / "lists.parquet")
    found = read_matrices(tmp_path / "lists.parquet")
    assert set(found) == {"text"}
    assert (found["text"] == ROWS).all()
    pd.DataFrame(ROWS, columns=list("wxyz")).assign(id="a").to_parquet(tmp_path / "flat.parquet")
    assert read_matrices(tmp_path / "flat.parquet")["columns"] == pytest.approx(ROWS)


def damaged(tmp_path, name, content=b"\x93NUMPY not really"):
    path = tmp_path / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", ["a.npy", "a.parquet", "a.safetensors"])
@pytest.mark.parametrize("content", [b"", b"\x93NUMPY not really"])
def test_what_is_not_what_it_says_is_refused(tmp_path, name, content):
    path = damaged(tmp_path, name, content)
    with pytest.raises(InputError, match=f"{name}: is not a "):
        read_matrices(path)
    with pytest.raises(InputError):
        read_pair(path)


def test_other_refusals(tmp_path):
    with pytest.raises(InputError, match=r"need a file of \.npy"):
        read_matrices(tmp_path / "x.csv")
    with pytest.raises(InputError, match="no such file"):
        read_matrices(tmp_path / "x.npy")
    np.save(tmp_path / "vector.npy", np.ones(3))
    with pytest.raises(InputError, match=r"no matrix of numbers \(there is: vector \(3,\)\)"):
        read_matrices(tmp_path / "vector.npy")
    np.save(tmp_path / "words.npy", np.array([["a"]]))
    with pytest.raises(InputError, match="'words' holds <U1, not numbers"):
        read_matrices(tmp_path / "words.npy")
    np.save(tmp_path / "pickle.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError, match="not a plain"):
        read_matrices(tmp_path / "pickle.npy")
    pd.DataFrame({"x": [[1.0], [1.0, 2.0]]}).to_parquet(tmp_path / "ragged.parquet")
    with pytest.raises(InputError, match="lists of column 'x' differ in length"):
        read_matrices(tmp_path / "ragged.parquet")


def test_a_folder_of_npy_is_a_pair(tmp_path):
    np.save(tmp_path / "cad.npy", ROWS)
    np.save(tmp_path / "text.npy", ROWS[::-1])
    found = read_pair(tmp_path)
    assert found.caption_part.tolist() == list(range(6))
    assert (found.text == ROWS[::-1]).all()
    np.save(tmp_path / "text.npy", ROWS[:3])
    with pytest.raises(InputError, match="cad has 6 rows and text 3; say which"):
        read_pair(tmp_path)


def test_a_folder_of_ours(tmp_path, embeddings_of):
    ours = embeddings_of(ROWS, [("p0", "one", 0)], ROWS[:1])
    write_embeddings(tmp_path, ours)
    assert read_pair(tmp_path).captions.equals(ours.captions)


def test_safetensors_with_several_captions_a_part(tmp_path):
    path = tmp_path / "pair.safetensors"
    rows = torch.from_numpy(ROWS)
    save_file(
        {"cad": rows[:2], "text": rows.clone(), "caption_part": torch.tensor([0, 0, 1, 1, 1, 0])},
        path,
    )
    found = read_pair(path)
    assert found.caption_part.tolist() == [0, 0, 1, 1, 1, 0]
    assert found.captions["index"].tolist() == [0, 1, 0, 1, 2, 2]
    save_file({"cad": rows[:2], "text": rows.clone(), "caption_part": torch.full((6,), 2)}, path)
    with pytest.raises(InputError, match="caption_part must name a row of cad"):
        read_pair(path)
    save_file({"image": rows, "text": rows.clone()}, path)
    with pytest.raises(InputError, match=r"has no cad \(there is: image, text\)"):
        read_pair(path)


def test_a_table_with_a_row_per_caption(tmp_path):
    path = tmp_path / "pair.parquet"
    table = pd.DataFrame(
        {
            "model_id": ["b", "a", "b"],
            "cad": [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]],
            "text": [[0.0, 2.0], [2.0, 0.0], [1.0, 2.0]],
            "caption": ["bolt", None, "a bolt"],
            "family": ["bolts", "", "bolts"],
            "level": [0, 1, 2],
        }
    )
    table.to_parquet(path)
    found = read_pair(path)
    assert found.parts["model_id"].tolist() == ["b", "a"]
    assert found.parts["family"].tolist() == ["bolts", ""]
    assert found.caption_part.tolist() == [0, 1, 0]
    assert found.captions["caption"].tolist() == ["bolt", "", "a bolt"]
    assert found.captions["level"].tolist() == [0, 1, 2]
    table["cad"] = [[0.0, 1.0], [1.0, 0.0], [0.0, 1.5]]
    table.to_parquet(path)
    with pytest.raises(InputError, match="part 'b' has two different cad rows"):
        read_pair(path)
    table[["text"]].to_parquet(path)
    with pytest.raises(InputError, match=r"has no column 'cad' of lists \(there is: text\)"):
        read_pair(path)


def test_one_matrix_is_no_pair(tmp_path):
    np.save(tmp_path / "cad.npy", ROWS)
    with pytest.raises(InputError, match="one matrix is no pair"):
        read_pair(tmp_path / "cad.npy")


@pytest.mark.parametrize("name", ["x.parquet", "x.safetensors", "folder"])
def test_what_is_written_is_read_again(tmp_path, embeddings_of, name):
    rows = [("p0", "one", 0), ("p1", "two", 3), ("p1", "three", 1)]
    ours = embeddings_of(ROWS[:2], rows, ROWS[2:5], family=["a", ""])
    write_pair(tmp_path / name, ours)
    found = read_pair(tmp_path / name)
    assert (found.cad == ours.cad).all()
    assert (found.text == ours.text).all()
    assert found.caption_part.tolist() == [0, 1, 1]
    if name != "x.safetensors":
        assert found.captions["caption"].tolist() == ["one", "two", "three"]
        assert found.parts["family"].tolist() == ["a", ""]


def test_parts_without_captions_are_one_matrix(tmp_path, embeddings_of):
    ours = embeddings_of(ROWS, [], ROWS[:0])
    write_pair(tmp_path / "x.parquet", ours)
    assert (read_matrices(tmp_path / "x.parquet")["cad"] == ROWS).all()
    with pytest.raises(InputError, match="has no column 'text'"):
        read_pair(tmp_path / "x.parquet")
