"""The dual encoder: parts and sentences into one space."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from brepfind.errors import InputError
from brepfind.graphs.batch import SIZE_FIELDS, PartBatch
from brepfind.graphs.descriptors import SHAPE_FIELDS
from brepfind.graphs.lengths import LENGTH_PLACES
from brepfind.graphs.patterns import PATTERN_PLACES
from brepfind.models.encoder import BrepEncoder
from brepfind.models.linear import Linear
from brepfind.models.norm import BatchNorm
from brepfind.models.text import TextTower
from brepfind.params import Section

MAX_LOGIT_SCALE = math.log(100.0)
INITIAL_LOGIT_SCALE = math.log(1 / 0.07)
# A fact so many standard deviations from the training parts' mean says no more than this one.
_FACT_LIMIT = 5.0

FREEZABLE = ("surface_cnn", "curve_cnn", "features", "bias", "encoder")


class DualConfig(Section):
    """Settings of :class:`DualEncoder`."""

    embed_dim: int = Field(description="width of the common space", ge=2)
    size_features: bool = Field(
        description="give the part's original size to its projection; the encoder's box forgets it"
    )
    shape_features: bool = Field(
        description="give it plain descriptors, such as counts of faces by type, too"
    )
    number_features: bool = Field(
        description="compare the lengths that a caption names with those of the part"
    )
    pattern_features: bool = Field(
        False,
        description="compare the counts and lengths that it names with what repeats in the part",
    )


class PartEmbeddings(NamedTuple):
    """``graph`` (B, dim) is the encoder's; ``projected`` (B, embed_dim) is not normalised."""

    graph: Tensor
    projected: Tensor


class TextEmbeddings(NamedTuple):
    """``pooled`` (B, D) is the tower's; ``projected`` (B, embed_dim) is not normalised."""

    pooled: Tensor
    projected: Tensor


class DualOutput(NamedTuple):
    """What a training step needs; ``scale`` is exp(logit_scale), float32.

    A named tuple all the way down: DDP looks for tensors in tuples, not in dataclasses.
    """

    parts: PartEmbeddings
    texts: TextEmbeddings
    scale: Tensor


class Projection(nn.Module):
    """A norm, and a perceptron with one hidden layer, into the common space.

    Args:
        width: of what comes from the tower; it is layer-normalised.
        extra: columns that join after the norm, standardised already; may be 0.
        embed_dim: of the result.
    """

    def __init__(self, width: int, extra: int, embed_dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.hidden = Linear(width + extra, 2 * embed_dim)
        self.out = Linear(2 * embed_dim, embed_dim)

    def forward(self, x: Tensor, extra: Tensor | None = None) -> Tensor:
        """Args: x: (B, width). extra: (B, extra), or None for none. Returns (B, embed_dim)."""
        x = self.norm(x)
        if extra is not None:
            x = torch.cat((x, extra.to(x.dtype)), dim=-1)
        return self.out(nn.functional.gelu(self.hidden(x)))


class DualEncoder(nn.Module):
    """A BRepFormer tower, a text tower, and a projection of each into one space.

    The encoder sees a part in a box of fixed size, and a transformer reads 127.5 as a few pieces of
    text: what they lose may join behind them. ``facts`` of the part (its size, plain descriptors)
    go into its projection. Lengths that a sentence names and lengths of the part are rows of one
    kind; one and the same linear map carries both into the common space, so that the dot product
    compares them from the first step on.

    Args:
        encoder, text: the towers.
        config: what joins them.
        seed: of the projections' initial weights; the global random state is left as it was.

    Buffers ``facts_mean`` and ``facts_std`` standardise the facts; they are 0 and 1 until
    :meth:`set_fact_statistics` takes them from the training parts.
    """

    facts_mean: Tensor
    facts_std: Tensor

    def __init__(
        self, encoder: BrepEncoder, text: TextTower, config: DualConfig, seed: int = 0
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.text = text
        self.config = config
        facts = len(SIZE_FIELDS) * config.size_features + len(SHAPE_FIELDS) * config.shape_features
        width = config.embed_dim
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.part_projection = Projection(encoder.config.dim, facts, width)
            self.text_projection = Projection(text.dim, 0, width)
            self.lengths = _comparison(LENGTH_PLACES, width) if config.number_features else None
            self.patterns = _comparison(PATTERN_PLACES, width) if config.pattern_features else None
        self.logit_scale = nn.Parameter(torch.tensor(INITIAL_LOGIT_SCALE))
        self.register_buffer("facts_mean", torch.zeros(facts))
        self.register_buffer("facts_std", torch.ones(facts))

    def embed_parts(self, batch: PartBatch) -> PartEmbeddings:
        """Parts into the common space."""
        graph = self.encoder(batch).graph
        facts = (self._facts(batch.size, batch.shape) - self.facts_mean) / self.facts_std
        projected = self.part_projection(graph, facts.clamp(-_FACT_LIMIT, _FACT_LIMIT))
        return PartEmbeddings(graph, self._compared(projected, batch.lengths, batch.patterns))

    def embed_texts(self, hidden: Tensor, mask: Tensor, numbers: Tensor) -> TextEmbeddings:
        """Sentences into the common space, from what ``text.lower`` gave and the numbers they name,
        (B, NUMBER_PLACES).
        """
        pooled = self.text.upper(hidden, mask)
        lengths, patterns = numbers.split([LENGTH_PLACES, PATTERN_PLACES], dim=1)
        return TextEmbeddings(
            pooled, self._compared(self.text_projection(pooled), lengths, patterns)
        )

    def _facts(self, size: Tensor, shape: Tensor) -> Tensor:
        """(B, facts), the columns that the settings ask for; there may be none."""
        chosen = [size] * self.config.size_features + [shape] * self.config.shape_features
        return torch.cat(chosen, dim=1) if chosen else size[:, :0]

    def _compared(self, projected: Tensor, lengths: Tensor, patterns: Tensor) -> Tensor:
        """What both sides have in common, added to what the towers say."""
        if self.lengths is not None:
            projected = projected + self.lengths(nn.functional.normalize(lengths, dim=1))
        if self.patterns is not None:
            projected = projected + self.patterns(patterns)
        return projected

    def forward(
        self, batch: PartBatch, hidden: Tensor, mask: Tensor, numbers: Tensor
    ) -> DualOutput:
        """Both towers in one call, so that every parameter is in the graph DDP sees."""
        return DualOutput(
            self.embed_parts(batch),
            self.embed_texts(hidden, mask, numbers),
            self.logit_scale.float().exp(),
        )

    @torch.no_grad()
    def clamp_logit_scale(self) -> None:
        """Keep exp(logit_scale) within 1 and 100; call it after every optimizer step."""
        self.logit_scale.clamp_(0.0, MAX_LOGIT_SCALE)

    @torch.no_grad()
    def set_fact_statistics(self, size: Tensor, shape: Tensor) -> None:
        """Take mean and standard deviation from the training parts' size (N, 5) and shape (N, 26).

        A column that does not vary is only centred.
        """
        facts = self._facts(size, shape).double()
        assert len(facts) > 0
        std = facts.std(0, correction=0)
        self.facts_mean.copy_(facts.mean(0))
        self.facts_std.copy_(torch.where(std > 1e-6, std, 1.0))

    def freeze(self, names: Sequence[str]) -> None:
        """Stop parts of the encoder from learning, statistics included.

        Args:
            names: of ``FREEZABLE``: the surface CNN, the curve CNN, all face features, all of the
                attention bias, or the whole encoder.

        Raises:
            InputError: for another name.
        """
        encoder = self.encoder
        parts: dict[str, nn.Module] = {
            "surface_cnn": encoder.graph_node_feature.surf_encoder,
            "curve_cnn": encoder.graph_attn_bias.curv_encoder,
            "features": encoder.graph_node_feature,
            "bias": encoder.graph_attn_bias,
            "encoder": encoder,
        }
        for name in names:
            if name not in parts:
                raise InputError(f"freeze: {name!r} is not one of {', '.join(FREEZABLE)}")
            parts[name].requires_grad_(False)
            for module in parts[name].modules():
                if isinstance(module, BatchNorm):
                    module.frozen = True


def _comparison(places: int, width: int) -> Linear:
    """Carries rows of both sides into the common space. Rows that share no place start at right
    angles, as far as the width allows.
    """
    linear = Linear(places, width, bias=False)
    nn.init.orthogonal_(linear.weight)
    return linear


@torch.no_grad()
def calibrate_batch_norm(encoder: BrepEncoder, batches: Iterable[PartBatch]) -> int:
    """Set the running statistics of a new encoder to the mean over some batches.

    An encoder that starts from random weights with its statistics frozen at 0 and 1 would feed
    angles in degrees straight into its attention. Needs batches with grids, not cached features.

    Returns:
        How many batches were seen.

    Raises:
        InputError: if there was none.
    """
    norms = [module for module in encoder.modules() if isinstance(module, BatchNorm)]
    kept = [(norm.momentum, norm.frozen) for norm in norms]
    training = encoder.training
    # Dropout stays off: the statistics are those of inference.
    encoder.eval()
    seen = 0
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum, norm.frozen = None, False
        norm.train()
    try:
        for batch in batches:
            encoder(batch)
            seen += 1
    finally:
        for norm, (momentum, frozen) in zip(norms, kept, strict=True):
            norm.momentum, norm.frozen = momentum, frozen
        encoder.train(training)
    if seen == 0:
        raise InputError("no batch to take BatchNorm statistics from")
    return seen
