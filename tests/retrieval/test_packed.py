"""A packed model is the trained one, bit for bit, wherever it is opened."""

from __future__ import annotations

import shutil

import pytest
import torch

from brepfind.cad.arrays import FEATURE_VERSION
from brepfind.checkpoints.weights import load_weights, save_weights
from brepfind.errors import CheckpointError
from brepfind.models.dual import DualEncoder
from brepfind.models.text import TextTower
from brepfind.retrieval.embed import embed_texts
from brepfind.retrieval.model import load_trained
from brepfind.retrieval.packed import load_packed, write_packed


def _trained(path, dual, tower, train):
    """Weights as the train stage writes them, the tower's last layer moved."""
    last = next(key for key in reversed(list(dual.state_dict())) if key.startswith("text."))
    tensors = {key: tensor.clone() for key, tensor in dual.state_dict().items()}
    tensors[last] += 0.5
    notes = {
        "kind": "dual",
        "encoder": dual.encoder.config.model_dump_json(),
        "dual": dual.config.model_dump_json(),
        "text_tower": tower,
        "text_train": train,
        "last_layers": "1",
        "feature_version": str(FEATURE_VERSION),
    }
    save_weights(path, tensors, notes)
    return load_trained(path)


@pytest.fixture
def own_tower(tmp_path, dual, tower_folder):
    """A model over a tower that lies in a folder of its own, which goes away."""
    mine = tmp_path / "a tower"
    shutil.copytree(tower_folder, mine)
    (mine / "1_Pooling").mkdir()
    (mine / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
    trained = _trained(tmp_path / "best.safetensors", dual, str(mine), "last")
    write_packed(tmp_path / "packed", trained)
    shutil.rmtree(mine)
    return trained


def _same(one, other):
    assert one.digest == other.digest
    for name, tensor in one.model.state_dict().items():
        assert torch.equal(tensor, other.model.state_dict()[name]), name


def test_a_model_over_a_tower_of_ones_own_needs_nothing_else(tmp_path, own_tower):
    found = load_packed(tmp_path / "packed")
    _same(found, own_tower)
    assert found.model.text.pooling == "first"  # which transformers does not write by itself
    (_, asked, _), (_, had, _) = (
        embed_texts(m.model, ["a plate 4 mm"]) for m in (found, own_tower)
    )
    assert (asked == had).all()
    assert not list((tmp_path / "packed").rglob("*.bin"))  # nothing pickled


def test_the_shipped_tower_is_named_and_not_written_again(tmp_path, dual):
    tower = TextTower.load("minilm", "last", 1)
    whole = DualEncoder(dual.encoder, tower, dual.config)
    trained = _trained(tmp_path / "best.safetensors", whole, "minilm", "last")
    write_packed(tmp_path / "packed", trained)
    assert [file.name for file in sorted((tmp_path / "packed").iterdir())] == [
        "weights.safetensors",
        "weights.safetensors.sha256",
    ]
    size = (tmp_path / "packed/weights.safetensors").stat().st_size
    assert size < (tmp_path / "best.safetensors").stat().st_size / 30
    _same(load_packed(tmp_path / "packed"), trained)


@pytest.mark.parametrize(("lost", "counted"), [("text.", True), ("logit_scale", False)])
def test_a_lost_tensor_is_not_taken_from_chance_or_from_the_untrained_tower(
    tmp_path, own_tower, lost, counted
):
    path = tmp_path / "packed/weights.safetensors"
    tensors, notes = load_weights(path)
    tensors |= {"text.extra": torch.ones(1)} if lost == "text." else {}
    notes["own_tensors"] = str(len(tensors) - (not counted))
    tensors.pop("text.extra" if lost == "text." else lost)
    save_weights(path, tensors, notes)
    with pytest.raises(CheckpointError, match="missing"):
        load_packed(tmp_path / "packed")


def test_what_is_no_packed_model_is_refused(tmp_path, own_tower):
    shutil.copy2(tmp_path / "best.safetensors", tmp_path / "packed/weights.safetensors")
    shutil.copy2(
        tmp_path / "best.safetensors.sha256", tmp_path / "packed/weights.safetensors.sha256"
    )
    with pytest.raises(CheckpointError, match=r"is no packed model|sha256"):
        load_packed(tmp_path / "packed")
