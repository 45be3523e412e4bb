"""Transformer text models cut in two, so that frozen layers are computed once.

transformers runs a model whole. To keep what the frozen lower layers give, its layers are run here
one after another, with the mask and position arguments that the model's own forward would pass.
Each family says how; a test holds that both halves together equal the whole.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn


class Stack(Protocol):
    """A text model as embeddings, a list of layers, and what follows the last."""

    layers: nn.ModuleList
    # Learning parts of the model that every layer reads; frozen with the lower layers.
    shared: list[nn.Module]
    # What follows the last layer, and learns with it.
    last: list[nn.Module]

    def embed(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, L) ids and mask to (B, L, D)."""

    def run(self, hidden: Tensor, mask: Tensor, first: int, end: int) -> Tensor:
        """Layers ``first`` to ``end`` (not included); (B, L, D) to (B, L, D)."""

    def finish(self, hidden: Tensor) -> Tensor:
        """What the model does after its last layer."""


class BertStack:
    """BERT and its relatives: one additive mask, layers in ``encoder.layer``."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.layers: nn.ModuleList = model.encoder.layer
        self.shared: list[nn.Module] = []
        self.last: list[nn.Module] = []

    def embed(self, ids: Tensor, mask: Tensor) -> Tensor:
        """See :class:`Stack`."""
        return self.model.embeddings(input_ids=ids)

    def run(self, hidden: Tensor, mask: Tensor, first: int, end: int) -> Tensor:
        """See :class:`Stack`."""
        seen = _additive(mask[:, None, None, :].bool(), hidden.dtype)
        for layer in self.layers[first:end]:
            hidden = layer(hidden, seen)
        return hidden

    def finish(self, hidden: Tensor) -> Tensor:
        """See :class:`Stack`."""
        return hidden


class DebertaStack:
    """DeBERTa v2 and v3: every layer reads one table of relative positions."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.layers: nn.ModuleList = model.encoder.layer
        encoder = model.encoder
        self.shared: list[nn.Module] = [
            child
            for name in ("rel_embeddings", "LayerNorm", "conv")
            if (child := getattr(encoder, name, None)) is not None
        ]
        self.last: list[nn.Module] = []

    def embed(self, ids: Tensor, mask: Tensor) -> Tensor:
        """See :class:`Stack`."""
        types = torch.zeros_like(ids)
        return self.model.embeddings(input_ids=ids, token_type_ids=types, mask=mask)

    def run(self, hidden: Tensor, mask: Tensor, first: int, end: int) -> Tensor:
        """See :class:`Stack`."""
        encoder = self.model.encoder
        seen = encoder.get_attention_mask(mask)
        positions = encoder.get_rel_pos(hidden)
        table = encoder.get_rel_embedding()
        for number in range(first, end):
            after, _ = self.layers[number](
                hidden, seen, relative_pos=positions, rel_embeddings=table
            )
            if number == 0 and encoder.conv is not None:
                after = encoder.conv(hidden, after, mask)
            hidden = after
        return hidden

    def finish(self, hidden: Tensor) -> Tensor:
        """See :class:`Stack`."""
        return hidden


class ClipStack:
    """CLIP's text model: causal, with a norm after the last layer."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.layers: nn.ModuleList = model.encoder.layers
        self.shared: list[nn.Module] = []
        self.last: list[nn.Module] = [model.final_layer_norm]

    def embed(self, ids: Tensor, mask: Tensor) -> Tensor:
        """See :class:`Stack`."""
        return self.model.embeddings(input_ids=ids)

    def run(self, hidden: Tensor, mask: Tensor, first: int, end: int) -> Tensor:
        """See :class:`Stack`."""
        length = mask.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=mask.device).tril()
        seen = _additive(causal & mask[:, None, None, :].bool(), hidden.dtype)
        for layer in self.layers[first:end]:
            hidden = layer(hidden, seen)
        return hidden

    def finish(self, hidden: Tensor) -> Tensor:
        """See :class:`Stack`."""
        return self.model.final_layer_norm(hidden)


def stack_of(model: Any) -> Stack | None:
    """The model in pieces, or None where its family is not known here."""
    kind = model.config.model_type
    if kind == "deberta-v2":
        return DebertaStack(model)
    if kind == "clip_text_model":
        return ClipStack(model)
    if kind in ("bert", "roberta", "xlm-roberta", "camembert", "electra"):
        return BertStack(model)
    return None


def _additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where ``seen``, the lowest number elsewhere; the lowest rather than minus infinity, so that
    a row that sees nothing gives a mean and not NaN.
    """
    zeros = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
    return zeros.masked_fill(~seen, torch.finfo(dtype).min)
