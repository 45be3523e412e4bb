"""A trained model packed to travel: whole on a machine that has none of the project's files.

A folder holds ``weights.safetensors`` (with its checksum beside it) and, unless the text tower is
the one that a package carries, ``text_tower/``, in the format of transformers. Tensors that are bit
for bit those of the text tower are not written a second time: of the shipped one's 91 MB training
changes a tenth, and the folder is that much smaller.
"""

from __future__ import annotations

from pathlib import Path

import torch

from brepfind.checkpoints.weights import load_strict, load_weights, save_weights
from brepfind.errors import CheckpointError
from brepfind.files import sha256
from brepfind.models.text import TextTower
from brepfind.models.text_source import is_shipped, locate, write_tower
from brepfind.retrieval.model import Trained, described_model

_WEIGHTS, _TOWER = "weights.safetensors", "text_tower"
_OF_TOWER = "text."  # what the dual encoder calls its text tower


def write_packed(folder: Path, trained: Trained) -> None:
    """Write a trained model into a folder that is empty or not there.

    Raises:
        CheckFailed: a tensor is not finite. CheckpointError: the disk did not take it.
        InputError: the text tower is not on this machine any more.
    """
    name = trained.metadata["text_tower"]
    notes = {**trained.metadata, "kind": "packed", "digest": trained.digest}
    if is_shipped(name):
        known = TextTower.load(name, "frozen", 1)
        notes["text_tower_sha256"] = sha256(locate(name) / "model.safetensors")
    else:
        known = trained.model.text
        write_tower(folder / _TOWER, known.model, known.tokenizer, locate(name))
        notes["text_tower"] = ""
    base = {f"{_OF_TOWER}{key}": tensor for key, tensor in known.state_dict().items()}
    own = {
        key: tensor
        for key, tensor in trained.model.state_dict().items()
        if key not in base or not torch.equal(tensor, base[key])
    }
    notes["own_tensors"] = str(len(own))
    save_weights(folder / _WEIGHTS, own, notes)


def load_packed(folder: Path) -> Trained:
    """The model that :func:`write_packed` wrote, with the digest it had.

    Raises:
        CheckpointError: a file is missing, damaged or does not fit; or the text tower is another.
        VersionMismatch: it was trained on features of another version.
        InputError: its text tower is not on this machine.
    """
    path = folder / _WEIGHTS
    tensors, notes = load_weights(path)
    if notes.get("kind") != "packed":
        raise CheckpointError(f"{path}: is no packed model; write it with brepfind's publish stage")
    model = described_model(
        notes, str(path), text_tower=notes["text_tower"] or str(folder / _TOWER)
    )
    if len(tensors) != int(notes["own_tensors"]):
        raise CheckpointError(
            f"{path}: {len(tensors)} of {notes['own_tensors']} tensors, the rest is missing; "
            "write it again"
        )
    of_tower = [key for key in model.state_dict() if key.startswith(_OF_TOWER)]
    load_strict(model, tensors, str(path), missing_ok=of_tower)
    return Trained(model=model.eval(), digest=notes["digest"], metadata=notes)
