import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from brepfind.cad.arrays import FACTS_VERSION
from brepfind.cad.signature import SIGNATURE_SIZE
from brepfind.errors import InputError, VersionMismatch
from brepfind.retrieval.leaks import (
    leak_findings,
    leaked,
    read_signatures,
    unknown_pretraining,
    write_signatures,
)

# A row per shape: numbers that a motion leaves as they are.
SHAPES = np.linspace(1.0, 2.0, SIGNATURE_SIZE) + np.arange(5)[:, None]


def test_only_test_parts_with_a_twin_elsewhere():
    seen = SHAPES[[1, 3]] * (1 + 1e-7)
    assert leaked(["a", "b", "c"], SHAPES[:3], seen) == ["b"]


def test_nothing_seen_nothing_leaked():
    assert leaked(["a"], SHAPES[:1], SHAPES[:0]) == []
    assert leaked([], SHAPES[:0], SHAPES[:1]) == []


def test_twins_within_test_are_no_leak():
    assert leaked(["a", "b"], SHAPES[[0, 0]], SHAPES[1:]) == []


def test_each_place_is_asked():
    found = leak_findings(["a", "b"], SHAPES[:2], {"train": SHAPES[2:], "pretraining": SHAPES[1:]})
    assert [(f.name, f.value, f.verdict) for f in found] == [
        ("evaluate.twins_in_train", 0, "ok"),
        ("evaluate.twins_in_pretraining", 1, "failed"),
    ]
    assert "(b)" in found[1].advice


def test_a_split_that_may_leak_is_warned_of():
    (found,) = leak_findings(["a"], SHAPES[:1], {"train": SHAPES}, otherwise="warning")
    assert (found.value, found.verdict) == (1, "warning")


def test_signatures_lie_beside_their_checkpoint(tmp_path):
    checkpoint = tmp_path / "encoder.small.ckpt"
    assert read_signatures(checkpoint) is None
    write_signatures(checkpoint, SHAPES[[2, 0, 2]])
    assert [file.name for file in tmp_path.iterdir()] == ["encoder.small.signatures.safetensors"]
    assert (read_signatures(checkpoint) == SHAPES[[0, 2]]).all()
    assert leaked(["a", "b"], SHAPES[1:3], read_signatures(checkpoint)) == ["b"]


@pytest.mark.parametrize(
    ("rows", "version"), [(SHAPES[:, :9], FACTS_VERSION), (SHAPES, FACTS_VERSION - 1), (SHAPES, "")]
)
def test_signatures_measured_otherwise_are_refused(tmp_path, rows, version):
    file = tmp_path / "encoder.signatures.safetensors"
    tensors = {"signatures": np.ascontiguousarray(rows)}
    save_file(tensors, file, metadata={"facts_version": str(version)} if version else None)
    with pytest.raises(VersionMismatch, match=r"signatures of version .*pretrained-signatures"):
        read_signatures(tmp_path / "encoder.ckpt")


def test_a_file_of_signatures_that_is_damaged_is_refused(tmp_path):
    (tmp_path / "encoder.signatures.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match="not a whole file of signatures"):
        read_signatures(tmp_path / "encoder.ckpt")


def test_the_shipped_checkpoint_has_todays_signatures(request):
    shipped = request.config.rootpath / "data/pretrained"
    for checkpoint in shipped.glob("*.ckpt"):
        rows = read_signatures(checkpoint)
        assert rows is not None
        parts = json.loads(checkpoint.with_suffix(".json").read_text())["parts"]
        assert 0.9 * parts <= len(rows) <= parts  # a few are twins of each other


def test_what_nobody_kept_is_said():
    found = unknown_pretraining("theirs.ckpt")
    assert (found.value, found.verdict) == ("unknown", "warning")
    assert "theirs.ckpt" in found.advice
