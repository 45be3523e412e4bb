"""A trained dual encoder, built again from its weights file alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from brepfind.cad.arrays import FEATURE_VERSION
from brepfind.checkpoints.weights import load_strict, load_weights
from brepfind.errors import CheckpointError, VersionMismatch
from brepfind.files import sha256
from brepfind.models.dual import DualConfig, DualEncoder
from brepfind.models.encoder import BrepEncoder, EncoderConfig
from brepfind.models.text import TextTower
from brepfind.params import check_section


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A trained model in eval mode.

    Attributes:
        digest: SHA-256 of the weights file; what embeddings and indexes are stamped with.
        metadata: what the file says of itself, such as ``epoch`` and ``recall``.
    """

    model: DualEncoder
    digest: str
    metadata: Mapping[str, str]


def load_trained(path: Path) -> Trained:
    """Build the model that a weights file describes and load it strictly.

    Raises:
        CheckpointError: if the file is damaged, is not a dual encoder's, or does not fit.
        VersionMismatch: if it was trained on features of another version.
        InputError: if its text tower is not on this machine.
    """
    tensors, metadata = load_weights(path)
    if metadata.get("kind") != "dual":
        raise CheckpointError(
            f"{path}: holds no dual encoder (kind is {metadata.get('kind', 'not said')!r}); "
            "give the weights that the train stage wrote"
        )
    model = described_model(metadata, str(path), text_tower=metadata["text_tower"])
    load_strict(model, tensors, str(path))
    return Trained(model=model.eval(), digest=sha256(path), metadata=metadata)


def described_model(metadata: Mapping[str, str], where: str, *, text_tower: str) -> DualEncoder:
    """The dual encoder that a weights file describes, its weights not loaded yet.

    Args:
        metadata: what the file says of itself.
        where: the file, for messages.
        text_tower: as for :meth:`~brepfind.models.text.TextTower.load`.

    Raises:
        VersionMismatch, InputError: see :func:`load_trained`.
    """
    version = metadata["feature_version"]
    if version != str(FEATURE_VERSION):
        raise VersionMismatch(
            f"{where}: trained on features of version {version}, this is version {FEATURE_VERSION};"
            " train again with `dvc repro train`"
        )
    config = check_section(json.loads(metadata["encoder"]), "encoder", EncoderConfig, source=where)
    tower = TextTower.load(
        text_tower,
        metadata["text_train"],  # type: ignore[arg-type]
        int(metadata["last_layers"]),
    )
    dual = check_section(json.loads(metadata["dual"]), "dual", DualConfig, source=where)
    return DualEncoder(BrepEncoder(config), tower, dual)
