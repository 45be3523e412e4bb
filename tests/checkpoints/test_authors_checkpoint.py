"""A checkpoint in the layout of BRepFormer's authors, through the room to the encoder."""

from collections.abc import Mapping
from pathlib import Path

import torch

from brepfind.checkpoints.compare import Table
from brepfind.checkpoints.doctor import diagnose
from brepfind.checkpoints.read import read_checkpoint
from brepfind.checkpoints.sanitize import sanitize
from brepfind.checkpoints.weights import load_strict, load_weights, save_weights
from brepfind.models.encoder import BrepEncoder, EncoderConfig, architecture

SMALL = Path(__file__).parents[1] / "fixtures" / "models" / "brepformer_small.ckpt"


def brepformer(shapes: Mapping[str, tuple[int, ...]]) -> Table:
    return architecture(EncoderConfig.from_shapes(shapes))


def test_it_is_sanitized_and_loads_strictly(tmp_path: Path) -> None:
    clean = sanitize(read_checkpoint(SMALL), brepformer)
    assert clean.report.coverage == 1.0
    assert not any(tensor.is_complex() for tensor in clean.tensors.values())
    outside = [source.name for source in clean.report.sources if source.fate == "outside"]
    assert outside == ["attention.dense_weight.weight", "attention.dense_weight.bias"]
    save_weights(tmp_path / "w.safetensors", clean.tensors, {})
    tensors, _ = load_weights(tmp_path / "w.safetensors")
    shapes = {key: tuple(tensor.shape) for key, tensor in tensors.items()}
    encoder = BrepEncoder(EncoderConfig.from_shapes(shapes))
    load_strict(encoder, tensors, "w.safetensors")
    authors = read_checkpoint(SMALL).tensors
    for layer in range(2):
        table = authors[f"brep_encoder.layers.{layer}.freqs_cis"]
        state = encoder.state_dict()
        assert torch.equal(state[f"layers.{layer}.freqs_cos"], table.real)
        assert torch.equal(state[f"layers.{layer}.freqs_sin"], table.imag)


def test_the_doctor_finds_it_healthy_against_the_architecture(tmp_path: Path) -> None:
    diagnosis = diagnose(SMALL, brepformer, like_name="brepformer")
    assert (diagnosis.verdict, diagnosis.coverage) == ("healthy", 1.0)
    state = dict(read_checkpoint(SMALL).tensors)
    del state["brep_encoder.layers.1.self_attn.wk.bias"]
    torch.save({"state_dict": state}, tmp_path / "cut.ckpt")
    (missing,) = diagnose(tmp_path / "cut.ckpt", brepformer).sick
    assert missing.line() == "layers.1.self_attn.wk.bias: missing (float32 64)"
