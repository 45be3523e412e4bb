"""``brepfind encode``: what an encoder's weights give for graph files, with no pipeline around it.

This is how anyone checks these numbers against those of the authors' code, with weights of their
own: the file written has the names that such expectations have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from brepfind.checkpoints.compare import Shape, Table
from brepfind.checkpoints.read import read_checkpoint
from brepfind.checkpoints.sanitize import sanitize
from brepfind.checkpoints.weights import load_strict, save_weights
from brepfind.errors import CheckFailed, InputError
from brepfind.files import sha256
from brepfind.graphs.bins import read_bin
from brepfind.graphs.collate import collate
from brepfind.graphs.pairwise import AngleRule
from brepfind.models.encoder import (
    DEFAULT_MAX_FACES,
    BrepEncoder,
    EncoderConfig,
    EncoderOutput,
    architecture,
)


def load_encoder(weights: Path, *, max_faces: int = DEFAULT_MAX_FACES) -> BrepEncoder:
    """A BRepFormer encoder in eval mode, from any checkpoint that holds one.

    The authors' layout, clean safetensors, a trained dual encoder's weights: whatever the sanitizer
    reads, every tensor of it accounted for. The size follows from the tensors' shapes.

    Args:
        weights: the checkpoint.
        max_faces: the encoder refuses a part with more.

    Raises:
        CheckFailed: a tensor is missing, unexpected, mis-shaped or not finite; named.
        CheckpointError: the file cannot be read, or holds no such encoder.
    """
    try:
        clean = sanitize(read_checkpoint(weights), _table).tensors
    except CheckFailed as failure:
        raise CheckFailed(f"{weights}: {failure.summary}", failure.findings) from None
    shapes = {name: tuple(tensor.shape) for name, tensor in clean.items()}
    encoder = BrepEncoder(EncoderConfig.from_shapes(shapes, max_faces=max_faces))
    load_strict(encoder, clean, str(weights))
    return encoder.eval()


def _table(shapes: Mapping[str, Shape]) -> Table:
    return architecture(EncoderConfig.from_shapes(shapes))


@torch.no_grad()
def encode_file(
    encoder: BrepEncoder, path: Path, *, recompute: bool = False, angle_rule: AngleRule = "inside"
) -> EncoderOutput:
    """Encode one graph file, by itself: what stands beside it on a command line moves no bit.

    Returns:
        ``graph`` (1, dim) and ``faces`` (F, dim).

    Raises:
        InputError: the graph cannot be read or has too many faces.
        CheckFailed: the result is not finite.
    """
    graph = read_bin(path, recompute=recompute, angle_rule=angle_rule)
    faces, most = graph.arrays.n_faces, encoder.config.max_faces
    if faces > most:
        raise InputError(
            f"{path}: has {faces} faces, more than {most}; --max-faces allows more (memory grows "
            "with its square)"
        )
    out = encoder(collate([graph.arrays], [graph.pairs]))
    if not (bool(out.graph.isfinite().all()) and bool(out.faces.isfinite().all())):
        raise CheckFailed(f"{path}: its embedding is not finite; the weights overflow on it")
    return out


def encode_files(
    weights: Path,
    graphs: Sequence[Path],
    out: Path,
    *,
    max_faces: int = DEFAULT_MAX_FACES,
    recompute: bool = False,
    angle_rule: AngleRule = "inside",
) -> tuple[int, ...]:
    """Encode graph files and write the result, with its SHA-256 beside it.

    Args:
        weights: see :func:`load_encoder`.
        graphs: ``.bin`` files of BRepFormer, UV-Net or BrepMFR.
        out: the ``.safetensors`` to write: ``graph_embedding`` (graphs, dim) in the order of
            ``graphs``, and ``face_tokens_i`` (faces, dim) for the i-th of them, float32.
        max_faces: a graph with more is refused.
        recompute: compute the pairwise matrices anew instead of reading the file's.
        angle_rule: for matrices that are computed; ``authors`` is what their own scripts do.

    Returns:
        The shape of ``graph_embedding``.

    Raises:
        InputError, CheckpointError, CheckFailed: naming the file; then nothing was written.
    """
    if out.suffix != ".safetensors":
        raise InputError(f"{out}: embeddings are written as safetensors; name the file so")
    if out.resolve() in {weights.resolve(), *(path.resolve() for path in graphs)}:
        raise InputError(f"{out}: is one of the files to read; name another to write")
    encoder = load_encoder(weights, max_faces=max_faces)
    rows: list[Tensor] = []
    tokens: dict[str, Tensor] = {}
    for number, path in enumerate(graphs):
        encoded = encode_file(encoder, path, recompute=recompute, angle_rule=angle_rule)
        rows.append(encoded.graph)
        tokens[f"face_tokens_{number}"] = encoded.faces
    embedding = torch.cat(rows)
    notes = {"kind": "embeddings", "weights_sha256": sha256(weights) if weights.is_file() else ""}
    save_weights(out, {"graph_embedding": embedding, **tokens}, notes)
    return tuple(embedding.shape)
