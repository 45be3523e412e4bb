"""Read a checkpoint: safely, with its bytes checked, and say where the tensors were."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from brepfind.checkpoints import checksums
from brepfind.checkpoints.container import Container, open_container
from brepfind.checkpoints.layout import Entry, Layout, Number, survey
from brepfind.errors import CheckpointError


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that was read.

    Attributes:
        path: the file, index or folder.
        layout: its format, such as ``torch zip`` or ``3 shards (safetensors)``.
        where: the dotted path of the mapping that holds the weights; empty at the top.
        tensors: the weights by their name in that mapping, memory-mapped where possible.
        entries: every tensor in the file with its role, the weights among them.
        numbers: every plain float in the file.
        other: what stands beside the weights at the top of the file, as plain data.
        checksums: what vouches for the bytes, for people.
        metadata: the text beside the tensors of a safetensors file.
        container: the opened file itself.
    """

    path: Path
    layout: str
    where: str
    tensors: dict[str, torch.Tensor]
    entries: tuple[Entry, ...]
    numbers: tuple[Number, ...]
    other: dict[str, Any]
    checksums: str
    metadata: dict[str, str]
    container: Container


def read_checkpoint(path: Path, *, verify: bool = True) -> Checkpoint:
    """Read the checkpoint at ``path``. Nothing in it is ever run.

    Args:
        path: a torch file, a safetensors file, an index of shards, or a folder with one.
        verify: check every byte against the checksums that the file carries or that stand beside
            it; False for a caller that does so itself while it scans.

    Raises:
        CheckpointError: it cannot be read, cannot be read safely, is damaged, or holds no tensor.
    """
    container = open_container(path)
    vouched = container.checksums
    if verify:
        vouched = verify_bytes(container)
    try:
        layout = survey(container.tree)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None
    if not layout.entries:
        raise CheckpointError(
            f"{path}: holds no tensor at all ({_what(container.tree)}); is it the right file?"
        )
    weights = [entry.tensor for entry in layout.entries if entry.role == "weights"]
    if weights and not any(tensor.numel() for tensor in weights):
        raise CheckpointError(
            f"{path}: its {len(weights)} weights are empty and hold no number, as DeepSpeed's "
            "ZeRO-3 and FSDP save them where they were not gathered; gather them (zero_to_fp32.py) "
            "and take that file"
        )
    return Checkpoint(
        path=path,
        layout=container.format,
        where=".".join(layout.where),
        tensors={entry.name: entry.tensor for entry in layout.entries if entry.role == "weights"},
        entries=layout.entries,
        numbers=layout.numbers,
        other=_beside(container.tree, layout),
        checksums=vouched,
        metadata=container.metadata,
        container=container,
    )


def verify_bytes(container: Container) -> str:
    """Check the bytes of every file; returns what vouched for them.

    Raises:
        CheckpointError: naming the file and the entry that is damaged.
    """
    beside = [checksums.verify_sidecar(path) for path in container.files]
    if beside and all(beside):
        return "SHA-256 beside it"
    with ThreadPoolExecutor(max_workers=max(torch.get_num_threads(), 1)) as pool:
        for piece in checksums.start(container.pieces, pool)():
            raise damage(piece)
    return container.checksums


def damage(piece: checksums.Piece, holds: str = "") -> CheckpointError:
    """The error for a piece whose checksum does not match."""
    what = f" (it holds {holds})" if holds else ""
    return CheckpointError(
        f"{piece.path}: damaged: entry {piece.name}{what} does not match its CRC-32; bytes were "
        "flipped after it was written, take another copy"
    )


def _beside(tree: Any, layout: Layout) -> dict[str, Any]:
    if not isinstance(tree, dict) or not layout.where:
        return {}
    return {str(key): value for key, value in tree.items() if str(key) != layout.where[0]}


def _what(tree: Any) -> str:
    if isinstance(tree, dict):
        keys = ", ".join(sorted(map(str, tree))[:8])
        return f"a mapping with the keys {keys}" if keys else "an empty mapping"
    return f"a {type(tree).__name__}"
