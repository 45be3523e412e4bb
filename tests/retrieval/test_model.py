"""A trained model built again from its weights file alone."""

import pytest
import torch

from brepfind.cad.arrays import FEATURE_VERSION
from brepfind.checkpoints.weights import save_weights
from brepfind.errors import CheckpointError, VersionMismatch
from brepfind.files import sha256
from brepfind.graphs.collate import collate
from brepfind.retrieval.model import load_trained


@pytest.fixture
def metadata(dual, tower_folder):
    return {
        "kind": "dual",
        "encoder": dual.encoder.config.model_dump_json(),
        "dual": dual.config.model_dump_json(),
        "text_tower": str(tower_folder),
        "text_train": "last",
        "last_layers": "1",
        "feature_version": str(FEATURE_VERSION),
        "recall": "0.5",
    }


def test_the_same_model_comes_back(tmp_path, dual, metadata, world):
    path = tmp_path / "best.safetensors"
    save_weights(path, dual.state_dict(), metadata)
    found = load_trained(path)
    assert found.digest == sha256(path)
    assert found.metadata["recall"] == "0.5"
    assert not found.model.training
    batch = collate(*world.reader.read(["plate-0", "shaft-1"]))
    with torch.inference_mode():
        assert torch.equal(
            found.model.embed_parts(batch).projected, dual.eval().embed_parts(batch).projected
        )


def test_what_is_no_dual_encoder_or_of_another_version_is_refused(tmp_path, dual, metadata):
    path = tmp_path / "best.safetensors"
    save_weights(path, dual.state_dict(), metadata | {"kind": "encoder"})
    with pytest.raises(CheckpointError, match="holds no dual encoder"):
        load_trained(path)
    save_weights(path, dual.state_dict(), metadata | {"feature_version": "0"})
    with pytest.raises(VersionMismatch, match="trained on features of version 0"):
        load_trained(path)


def test_a_tower_of_another_size_is_refused(tmp_path, dual, metadata):
    path = tmp_path / "best.safetensors"
    narrow = dual.config.model_copy(update={"embed_dim": 4})
    save_weights(path, dual.state_dict(), metadata | {"dual": narrow.model_dump_json()})
    with pytest.raises(CheckpointError, match="does not fit the model"):
        load_trained(path)
