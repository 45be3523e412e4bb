"""The dual encoder of a run, and the optimizer that trains it."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor, nn

from brepfind.cad.arrays import FEATURE_VERSION
from brepfind.checkpoints.weights import load_strict, load_weights
from brepfind.errors import ParamsError
from brepfind.models.dual import DualEncoder
from brepfind.models.encoder import BrepEncoder, EncoderConfig
from brepfind.models.norm import freeze_batch_norm
from brepfind.models.text import TextTower
from brepfind.training.batches import Micro
from brepfind.training.config import TrainConfig


class Pairs(nn.Module):
    """What a pair passes through; the module that DistributedDataParallel wraps."""

    def __init__(self, dual: DualEncoder) -> None:
        super().__init__()
        self.dual = dual

    def forward(self, micro: Micro) -> tuple[Tensor, Tensor, Tensor]:
        """Returns part rows (b, D), text rows (b, D), not normalised, and the logits' factor."""
        output = self.dual(micro.parts, micro.hidden, micro.mask, micro.numbers)
        return output.parts.projected, output.texts.projected, output.scale

    def after_step(self) -> None:
        """What follows every step of the optimizer."""
        self.dual.clamp_logit_scale()


def build_dual(config: TrainConfig, weights: Path | None) -> DualEncoder:
    """The dual encoder with frozen parts frozen, in training mode, on the CPU.

    Args:
        weights: the encoder's clean weights, or None to start from random ones.

    Raises:
        CheckpointError: if the weights do not fit.
        InputError: if the text tower is not on this machine.
        ParamsError: if the settings do not go together.
    """
    sizes = config.encoder
    tensors: dict[str, Tensor] | None = None
    if weights is not None:
        tensors, _ = load_weights(weights)
        sizes = EncoderConfig.from_shapes(
            {name: tuple(tensor.shape) for name, tensor in tensors.items()},
            dropout=config.encoder.dropout,
            max_faces=config.encoder.max_faces,
        )
    encoder = BrepEncoder(sizes, seed=config.seed)
    if tensors is not None:
        load_strict(encoder, tensors, str(weights))
    encoder.checkpoint_layers = config.gradient_checkpointing
    text = TextTower.load(config.text_tower, config.text_train, config.last_layers)
    refuse_fp16(config, text)
    dual = DualEncoder(encoder, text, config.dual, seed=config.seed)
    dual.freeze(config.freeze)
    if config.freeze_batch_norm:
        freeze_batch_norm(encoder)
    return dual.train()


def refuse_fp16(config: TrainConfig, text: TextTower) -> None:
    """Refuse fp16 for DeBERTa, whose activations are known to overflow in it, unless asked for.

    Raises:
        ParamsError: naming the way out.
    """
    kind = str(text.model.config.model_type)
    if config.precision == "fp16" and kind.startswith("deberta") and not config.text_fp16:
        raise ParamsError(
            f"train.precision is fp16, but {config.text_tower} ({kind}) overflows in it; use bf16 "
            "or fp32, or set train.text_fp16: true to try all the same"
        )


def metadata(config: TrainConfig, dual: DualEncoder, **facts: object) -> dict[str, str]:
    """What a weights file says of itself: enough to build the same model again."""
    return {
        "kind": "dual",
        "encoder": json.dumps(dual.encoder.config.model_dump(mode="json"), sort_keys=True),
        "dual": json.dumps(dual.config.model_dump(mode="json"), sort_keys=True),
        "text_tower": config.text_tower,
        "text_train": config.text_train,
        "last_layers": str(config.last_layers),
        "face_order": config.face_order,
        "feature_version": str(FEATURE_VERSION),
        **{name: str(value) for name, value in facts.items()},
    }


def build_optimizer(config: TrainConfig, dual: DualEncoder) -> torch.optim.AdamW:
    """AdamW in four groups: the text tower and the rest, matrices with weight decay and the rest
    without. Each group keeps its full learning rate as ``base_lr``.
    """
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, parameter in dual.named_parameters():
        if parameter.requires_grad:
            key = (name.startswith("text."), parameter.dim() >= 2)
            groups.setdefault(key, []).append(parameter)
    return torch.optim.AdamW(
        [
            {
                "params": params,
                "lr": config.text_lr if is_text else config.lr,
                "base_lr": config.text_lr if is_text else config.lr,
                "weight_decay": config.weight_decay if is_matrix else 0.0,
            }
            for (is_text, is_matrix), params in sorted(groups.items(), key=lambda item: item[0])
        ],
        betas=(0.9, 0.98),
        eps=1e-6,
    )
