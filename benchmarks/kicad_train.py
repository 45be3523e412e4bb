"""One rank of a training of `make bench-kicad`: the trainer itself, on another encoder where the
row asks for one. torchrun starts it: ``-m benchmarks.kicad_train ENCODER JOB.json``.

    brepfind      the encoder as it is
    no_edge_path  pairs of faces are told nothing of the edges on the path between them
    uvnet         UV-Net's encoder in its place; everything else stays
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.uvnet import UVNet
from brepfind.checkpoints.weights import load_strict, load_weights
from brepfind.models.dual import DualEncoder
from brepfind.models.text import TextTower
from brepfind.retrieval.model import load_trained
from brepfind.training import __main__ as trainer
from brepfind.training import build, dead, prepare
from brepfind.training.config import TrainConfig


def without_edge_path(config: TrainConfig, weights: Path | None) -> DualEncoder:
    """The matrices that a path's edges pass through are zero, and stay so."""
    dual = build.build_dual(config, weights)
    dual.encoder.graph_attn_bias.edge_dis_encoder.weight.requires_grad_(False).zero_()
    return dual


def with_uvnet(config: TrainConfig, weights: Path | None) -> DualEncoder:
    """Nothing of it is pretrained or frozen, as its authors train it."""
    assert weights is None and not config.freeze and not config.freeze_batch_norm
    text = TextTower.load(config.text_tower, config.text_train, config.last_layers)
    encoder = UVNet(config.encoder, config.seed)
    return DualEncoder(encoder, text, config.dual, seed=config.seed).train()  # type: ignore[arg-type]


BUILDERS = {
    "brepfind": build.build_dual,
    "no_edge_path": without_edge_path,
    "uvnet": with_uvnet,
}


def load(encoder: str, config: TrainConfig, weights: Path) -> DualEncoder:
    """A trained model of a row, in eval mode."""
    if encoder != "uvnet":
        return load_trained(weights).model
    model = with_uvnet(config, None)
    load_strict(model, load_weights(weights)[0], str(weights))
    return model.eval()


def main(encoder: str, job: str) -> int:
    """Run one rank; returns its exit code."""
    prepare.build_dual = BUILDERS[encoder]
    if encoder == "uvnet":  # the look for dead layers names modules of BRepFormer's bias
        dead._scalars = lambda dual, batch: None
    return trainer.main([job])


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # as the trainer does, and for its reason
