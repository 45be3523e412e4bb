"""The BRepFormer encoder (Dai et al., ICMR 2025, arXiv 2504.07378) on ``PartBatch``.

It takes the authors' weights key for key and gives their numbers in eval mode; how it computes
them is its own. Two things differ from their state dict: the prefix is left out, and each layer's
complex ``freqs_cis`` is two real float32 buffers, ``freqs_cos`` and ``freqs_sin``.

Face order matters: RoPE turns queries and keys by the place of a face in the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from brepfind.errors import CheckpointError, InputError
from brepfind.graphs.batch import PartBatch
from brepfind.models import rope
from brepfind.models.attend import SharedBias, attend
from brepfind.models.features import FaceFeatures, PairBias
from brepfind.models.grid_cnn import GridCNN
from brepfind.models.linear import Linear
from brepfind.models.norm import RMSNorm
from brepfind.models.ragged import Layout
from brepfind.models.swiglu import swiglu
from brepfind.params import Section

# The bias grows with the square of the faces: at 512 it takes 33 MB per part with 32 heads, and
# each layer keeps as much for the backward pass.
DEFAULT_MAX_FACES = 512
MOST_FACES = rope.POSITIONS - 1
_HIDDEN_MULTIPLE = 256


class EncoderConfig(Section):
    """Size and limits of :class:`BrepEncoder`."""

    dim: int = Field(256, description="width of a face token", ge=16)
    layers: int = Field(8, description="transformer layers", ge=1)
    heads: int = Field(32, description="query heads", ge=1)
    kv_heads: int = Field(8, description="key and value heads; each serves heads/kv_heads", ge=1)
    feed_forward: int = Field(
        512,
        description="the authors' setting; the hidden size is 2/3 of it, up to a multiple of 256",
        ge=1,
    )
    dropout: float = Field(0.3, description="of embeddings, attention and feed-forward", ge=0, lt=1)
    max_faces: int = Field(
        DEFAULT_MAX_FACES,
        description="a part with more faces is refused; memory grows with the square",
        ge=1,
        le=MOST_FACES,
    )

    @model_validator(mode="after")
    def _fits(self) -> EncoderConfig:
        if self.dim % 8 or self.dim % self.heads:
            raise ValueError(f"dim {self.dim} must be a multiple of 8 and of heads {self.heads}")
        if (self.dim // self.heads) % 2:
            raise ValueError(f"dim / heads is {self.dim // self.heads}; RoPE needs an even number")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} must be a multiple of kv_heads {self.kv_heads}")
        return self

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.dim // self.heads

    @property
    def hidden(self) -> int:
        """Hidden width of the feed-forward block."""
        return _HIDDEN_MULTIPLE * math.ceil(int(2 * self.feed_forward / 3) / _HIDDEN_MULTIPLE)

    @classmethod
    def from_shapes(
        cls,
        shapes: Mapping[str, tuple[int, ...]],
        *,
        dropout: float = 0.3,
        max_faces: int = DEFAULT_MAX_FACES,
    ) -> EncoderConfig:
        """The size that a set of weights has.

        Args:
            shapes: shape of each tensor by name, with or without the prefix ``brep_encoder.`` and
                with complex or real RoPE tables.
            dropout, max_faces: what shapes cannot tell.

        Raises:
            CheckpointError: if these are not the shapes of a BRepFormer encoder; it names the key.
        """
        bare = {name.removeprefix("brep_encoder."): tuple(shape) for name, shape in shapes.items()}

        def shape(name: str, dims: int) -> tuple[int, ...]:
            found = bare.get(name)
            if found is None or len(found) != dims:
                what = "is missing" if found is None else f"has shape {found}, not {dims} axes"
                raise CheckpointError(f"not a BRepFormer encoder: {name} {what}")
            return found

        numbers = [int(m[1]) for name in bare if (m := re.match(r"layers\.(\d+)\.", name))]
        dim = shape("emb_layer_norm.weight", 1)[0]
        heads = shape("graph_attn_bias.graph_token_virtual_distance.weight", 2)[1]
        hidden = shape("layers.0.feed_forward.w1.weight", 2)[0]
        keys = shape("layers.0.self_attn.wk.weight", 2)[0]
        if dim % heads or keys % (dim // heads) or hidden % _HIDDEN_MULTIPLE:
            raise CheckpointError(
                f"not a BRepFormer encoder: width {dim}, {heads} heads, {keys} key rows and "
                f"{hidden} hidden units do not belong together"
            )
        try:
            return cls(
                dim=dim,
                layers=max(numbers) + 1,
                heads=heads,
                kv_heads=keys // (dim // heads),
                feed_forward=hidden * 3 // 2,
                dropout=dropout,
                max_faces=max_faces,
            )
        except ValueError as error:
            raise CheckpointError(f"not a BRepFormer encoder: {error}") from error


class EncoderOutput(NamedTuple):
    """Attributes:

    graph: (B, dim), each part's graph token after the last layer; not normalised.
    faces: (F, dim), the face tokens, part after part in the batch's order.
    """

    graph: Tensor
    faces: Tensor


class FeedForward(nn.Module):
    """SwiGLU: ``w2(silu(w1 x) * w3 x)``, no biases."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.w1 = Linear(dim, hidden, bias=False)
        self.w2 = Linear(hidden, dim, bias=False)
        self.w3 = Linear(dim, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Args: x: (T, dim). Returns (T, dim)."""
        return swiglu(x, self.w1.weight, self.w2.weight, self.w3.weight)


class Attention(nn.Module):
    """Grouped-query attention within each part, with RoPE and an additive bias."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.head_dim = config.head_dim
        keys = config.kv_heads * config.head_dim
        self.wq = Linear(config.dim, config.dim, bias=False)
        self.wk = Linear(config.dim, keys)
        self.wv = Linear(config.dim, keys)
        self.wo = Linear(config.dim, config.dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, bias: SharedBias, layout: Layout
    ) -> Tensor:
        """Args:

        x: (T, dim). cos, sin: (T, 1, head_dim / 2).

        Returns (T, dim).
        """
        queries = rope.rotate(self.wq(x).unflatten(-1, (self.heads, self.head_dim)), cos, sin)
        keys = rope.rotate(self.wk(x).unflatten(-1, (self.kv_heads, self.head_dim)), cos, sin)
        values = self.wv(x).unflatten(-1, (self.kv_heads, self.head_dim))
        dropout = self.dropout.p if self.training else 0.0
        return self.wo(attend(queries, keys, values, bias, layout, dropout))


class Layer(nn.Module):
    """Pre-norm attention, then the same feed-forward twice."""

    freqs_cos: Tensor
    freqs_sin: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        cos, sin = rope.rope_tables(config.head_dim)
        self.register_buffer("freqs_cos", cos)
        self.register_buffer("freqs_sin", sin)
        self.feed_forward = FeedForward(config.dim, config.hidden)
        self.self_attn = Attention(config)
        self.self_attn_layer_norm = RMSNorm(config.dim)
        self.final_layer_norm = RMSNorm(config.dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, bias: SharedBias, layout: Layout) -> Tensor:
        """Args: x: (T, dim). Returns (T, dim)."""
        cos = self.freqs_cos[layout.positions, None]
        sin = self.freqs_sin[layout.positions, None]
        x = x + self.dropout(self.self_attn(self.self_attn_layer_norm(x), cos, sin, bias, layout))
        inner = self.dropout(self.feed_forward(self.final_layer_norm(x)))
        return x + self.dropout(self.feed_forward(inner))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Layer:
        """Keep the RoPE tables in float32 through ``.to(bfloat16)`` and ``.half()``.

        In bfloat16 the angle of a far face would be off by several degrees.
        """
        tables = {name: getattr(self, name) for name in ("freqs_cos", "freqs_sin")}
        super()._apply(fn, recurse)
        for name, table in tables.items():
            moved = getattr(self, name)
            if moved.dtype != torch.float32:
                self._buffers[name] = table.to(moved.device)
        return self


class BrepEncoder(nn.Module):
    """Parts to one vector each, and one per face.

    Args:
        config: its size.
        seed: of the initial weights; the global random state is left as it was.

    Attributes:
        checkpoint_layers: recompute each layer in the backward pass instead of keeping what it
            computed; less memory, about a third more time.
    """

    def __init__(self, config: EncoderConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.checkpoint_layers = False
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.graph_node_feature = FaceFeatures(config.dim)
            self.graph_attn_bias = PairBias(config.dim, config.heads)
            self.emb_layer_norm = nn.LayerNorm(config.dim)
            self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
            self.dropout = nn.Dropout(config.dropout)
            self.apply(_initialise)
        self.graph_attn_bias.shortest_distance_encoder.weight.data[0].zero_()

    def forward(self, batch: PartBatch) -> EncoderOutput:
        """Encode a batch.

        Raises:
            InputError: if a part has more than ``config.max_faces`` faces.
        """
        layout = Layout.of(batch.face_counts)
        self._check(layout)
        faces = self.graph_node_feature(batch)
        bias = SharedBias.of(self.graph_attn_bias(batch, faces, layout))
        token = self.graph_node_feature.graph_token.weight.to(faces.dtype)
        x = layout.with_token(token, faces)
        x = self.dropout(self.emb_layer_norm(x))
        for layer in self.layers:
            if self.checkpoint_layers and torch.is_grad_enabled():
                x = checkpoint(layer, x, bias, layout, use_reentrant=False)
            else:
                x = layer(x, bias, layout)
        return EncoderOutput(graph=x[layout.token_rows], faces=x[layout.face_rows])

    def encode_surfaces(self, face_grid: Tensor) -> Tensor:
        """The surface CNN alone: (F, 7, G, G) to (F, dim / 2), for ``PartBatch.face_surface``."""
        return self.graph_node_feature.surf_encoder(face_grid)

    def encode_curves(self, edge_grid: Tensor) -> Tensor:
        """The curve CNN alone: (E, 12, G) to (E, heads), for ``PartBatch.edge_curve``.

        E may be 0.
        """
        return self.graph_attn_bias.curv_encoder(edge_grid)

    def cnns(self) -> tuple[GridCNN, GridCNN]:
        """The surface and the curve CNN, the parts that are frozen by default."""
        return self.graph_node_feature.surf_encoder, self.graph_attn_bias.curv_encoder

    def _check(self, layout: Layout) -> None:
        most = max(layout.counts)
        if most > self.config.max_faces:
            place = layout.counts.index(most)
            raise InputError(
                f"part {place} of the batch has {most} faces, more than max_faces = "
                f"{self.config.max_faces}; leave it out or raise max_faces (at most {MOST_FACES}, "
                "and memory grows with its square)"
            )
        assert min(layout.counts) >= 1, "a part without faces is not a graph"


def architecture(config: EncoderConfig) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Dtype and shape of every tensor in the encoder's state dict, by name."""
    with torch.device("meta"):
        encoder = BrepEncoder(config)
    return {name: (t.dtype, tuple(t.shape)) for name, t in encoder.state_dict().items()}


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    elif isinstance(module, nn.Conv1d | nn.Conv2d):
        nn.init.kaiming_uniform_(module.weight, nonlinearity="leaky_relu")
