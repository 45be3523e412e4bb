"""The commands on anyone's embeddings: 0 healthy, 1 sick, 2 too few."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from brepfind import cli
from brepfind.errors import InputError
from brepfind.retrieval.commands import embed_store, evaluate_of, vitals_of
from brepfind.retrieval.embeddings import read_embeddings
from brepfind.retrieval.foreign_pairs import read_pair


def normal(n, seed=0):
    return np.random.default_rng(seed).standard_normal((n, 32)).astype(np.float32)


@pytest.mark.parametrize(
    ("rows", "code", "word"),
    [
        (normal(100), 0, "  ok"),
        (normal(100) + 3, 0, "WARNING: nearly all embeddings embeddings point one way"),
        (np.ones((100, 32), np.float32), 1, "COLLAPSED"),
        (normal(20), 2, "TOO FEW"),
        (np.zeros((0, 32), np.float32), 2, "TOO FEW"),
    ],
)
def test_vitals(tmp_path, rows, code, word):
    np.save(tmp_path / "embeddings.npy", rows)
    found = vitals_of(tmp_path / "embeddings.npy")
    assert found.code == code
    assert word in found.text
    json.dumps(found.data, allow_nan=False)


def test_the_worst_of_several_matrices_decides(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"cad": np.ones((100, 8), np.float32), "few": normal(3), "text": normal(100)}, path)
    found = vitals_of(path)
    assert found.code == 1
    assert found.data["verdict"] == {"cad": "collapsed", "few": "too few", "text": "ok"}


def pair(path, cad, text):
    save_file({"cad": np.ascontiguousarray(cad), "text": np.ascontiguousarray(text)}, path)
    return path


def test_evaluate(tmp_path):
    cad = normal(100)
    found = evaluate_of(pair(tmp_path / "x.safetensors", cad, cad + normal(100, 1) / 2))
    assert found.code == 0
    head, *rest = found.text.splitlines()
    assert head == "[Diagnostic] embeddings (n=100)"
    assert rest[2].split() == ["n_queries", "n_items", "R_at_1", "R_at_5", "R_at_10", "median_rank"]
    assert rest[3].split()[:3] == ["text_to_cad", "100", "100"]
    assert found.data["text_to_cad"]["R_at_1"] > 0.9
    assert found.data["baselines"]["chance"]["text_to_cad"]["R_at_1"] == 1 / 100
    json.dumps(found.data, allow_nan=False)


def test_a_sick_pair_has_no_ranks(tmp_path):
    found = evaluate_of(pair(tmp_path / "x.safetensors", np.ones((100, 8)), normal(100)[:, :8]))
    assert found.code == 1
    assert "No ranks" in found.text
    assert "Likely cause: the CAD tower alone is constant." in found.text
    assert "text_to_cad" not in found.data
    json.dumps(found.data, allow_nan=False)
    broken = normal(20)
    broken[3] = np.nan
    assert evaluate_of(pair(tmp_path / "y.safetensors", broken, normal(20))).code == 1


def test_too_few_have_ranks_that_nothing_vouches_for(tmp_path):
    found = evaluate_of(pair(tmp_path / "x.safetensors", normal(20), normal(20, 1)))
    assert found.code == 2
    assert found.data["text_to_cad"]["n_queries"] == 20.0


def test_copies_among_few_are_sick(tmp_path):
    found = evaluate_of(pair(tmp_path / "x.safetensors", normal(10)[[0] * 10], normal(10)))
    assert found.code == 1


def test_nothing_to_evaluate(tmp_path):
    with pytest.raises(InputError, match="holds no part"):
        evaluate_of(pair(tmp_path / "x.safetensors", normal(0), normal(0)))


def test_embed(tmp_path, weights, world):
    root, out = world.root, tmp_path / "out"
    there = {"cache": root / "pairs", "corpus": root / "corpus"}
    found = embed_store(weights, root / "graphs", out, **there)
    assert (read_embeddings(out).cad == found.cad).all()
    assert len(found.parts) == 18
    some = embed_store(weights, root / "graphs", out, ids=["plate-0"], **there)
    assert some.parts["model_id"].tolist() == ["plate-0"]
    with pytest.raises(InputError, match="holds no part 'absent'"):
        embed_store(weights, root / "graphs", out, ids=["absent"], **there)
    with pytest.raises(InputError, match=r"out\.csv: give a folder, or a file that ends in \.npy"):
        embed_store(weights, root / "graphs", tmp_path / "out.csv", **there)


def test_embed_without_a_corpus(tmp_path, weights, world):
    graphs, out = world.root / "graphs", tmp_path / "out.npy"
    found = embed_store(weights, graphs, out, cache=world.root / "pairs")
    assert (np.load(out) == found.cad).all()
    said = (tmp_path / "out.ids.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in said] == sorted(world.ids)
    assert vitals_of(out).code == 2  # eighteen are too few to say


@pytest.mark.parametrize("name", ["folder", "x.parquet", "x.safetensors"])
def test_what_embed_writes_evaluate_reads(tmp_path, weights, world, name):
    root, out = world.root, tmp_path / name
    there = {"cache": root / "pairs", "corpus": root / "corpus"}
    embed_store(weights, root / "graphs", out, **there)
    found = evaluate_of(out)
    assert found.data["text_to_cad"]["n_items"] == 18.0
    assert found.data["text_to_cad"]["n_queries"] == 37.0


def test_the_command_embeds_a_store(tmp_path, weights, world, capsys):
    cli.embed([world.root / "graphs"], tmp_path / "x.parquet", weights, world.root / "corpus")
    assert f"18 parts and 37 captions in {tmp_path / 'x.parquet'}" in capsys.readouterr().out
    assert read_pair(tmp_path / "x.parquet").parts["model_id"].tolist() == sorted(world.ids)
