"""Attention of many parts of different size with a bias that learns and that all layers share.

``scaled_dot_product_attention`` takes its plain path when the bias needs a gradient. Here the score
matrix of a group is made once and turned into its softmax in place; backwards, the gradient of the
weights becomes that of the scores in place and is added to the bias's, of which there is one for
all layers: a matrix of that size is never made only to be added up.

Shape letters are those of :mod:`brepfind.models.ragged`; H query heads, KV key heads, R = H / KV
query heads per key head, d their width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from brepfind.models.ragged import Group, Layout


@dataclass(frozen=True, slots=True)
class SharedBias:
    """A bias for the attention of any number of layers.

    Attributes:
        blocks: (b, H, L, L) per group, outside autograd.
        tie: (0,), what autograd sees in their place: each attention depends on it, so the bias's
            gradient is asked for after all of them have added to it.
        sums: the gradient so far, per group.
    """

    blocks: tuple[Tensor, ...]
    tie: Tensor
    sums: _Sums

    @classmethod
    def of(cls, biases: list[Tensor]) -> SharedBias:
        """Args: biases: (b, H, L, L) per group, float32 or float64."""
        sums = _Sums()
        tie: Tensor = _Tie.apply(sums, *biases)
        return cls(tuple(bias.detach() for bias in biases), tie, sums)


class _Sums:
    """What the attentions add up in one walk of autograd through the graph.

    A walk that does not reach the bias leaves its sums behind; the next must not count them.
    """

    def __init__(self) -> None:
        self._walk = -1
        self._blocks: list[Tensor] = []

    def of_this_walk(self) -> list[Tensor]:
        """One per group, empty before the first attention has added its own."""
        walk = torch._C._current_graph_task_id()
        if walk != self._walk:
            self._walk, self._blocks = walk, []
        return self._blocks

    def take(self) -> tuple[Tensor, ...]:
        """All of them, and keep none."""
        blocks = tuple(self.of_this_walk())
        self._walk, self._blocks = -1, []
        return blocks


class _Tie(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, sums: _Sums, *biases: Tensor) -> Tensor:
        ctx.sums = sums
        return biases[0].new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.sums.take()


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    bias: SharedBias,
    layout: Layout,
    dropout: float = 0.0,
) -> Tensor:
    """``dropout(softmax(q k / sqrt(d) + bias)) v`` within each part.

    Products are taken in the dtype of ``queries``, scores and softmax at least in float32.

    Args:
        queries: (T, H, d). keys, values: (T, KV, d); of one dtype.
        dropout: share of the weights that is dropped; 0 outside training.

    Returns:
        (T, H * d).
    """
    out: Tensor = _Attend.apply(queries, keys, values, bias.tie, bias, layout, dropout)
    return out


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        tie: Tensor,
        bias: SharedBias,
        layout: Layout,
        dropout: float,
    ) -> Tensor:
        ctx.sums, ctx.layout, ctx.dropout = bias.sums, layout, dropout
        ctx.shapes = queries.shape, keys.shape
        scale = queries.shape[2] ** -0.5
        out = torch.empty_like(queries)
        kept: list[Tensor] = []
        with torch.autocast(queries.device.type, enabled=False):
            for group, block in zip(layout.groups, bias.blocks, strict=True):
                q, k, v = (_stacked(group, x, keys.shape[1]) for x in (queries, keys, values))
                rows = block.view(len(q), -1, group.length)
                scores = torch.bmm(q, k.mT).to(rows.dtype)
                torch.add(rows, scores, alpha=scale, out=scores)
                weights = torch.softmax(scores, -1, out=scores)
                seen, mask = _drop(weights, dropout)
                _put(group, torch.bmm(seen.to(v.dtype), v), out)
                kept += [q, k, v, weights, *mask]
        ctx.save_for_backward(*kept)
        return out.flatten(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        kept = ctx.saved_tensors
        layout: Layout = ctx.layout
        of_queries, of_keys = ctx.shapes
        gradient = gradient.reshape(of_queries)
        shapes = (of_queries, of_keys, of_keys)
        to_queries, to_keys, to_values = map(gradient.new_empty, shapes)
        to_blocks: list[Tensor] = []
        sums = ctx.sums.of_this_walk()
        each = len(kept) // len(layout.groups)
        with torch.autocast(gradient.device.type, enabled=False):
            for at, group in enumerate(layout.groups):
                q, k, v, weights, *mask = kept[at * each : (at + 1) * each]
                to_out = _stacked(group, gradient, of_keys[1])
                seen = _dropped(weights, mask, ctx.dropout)
                # Read as they lie, the weights are multiplied in half the time of their transpose.
                _put(group, torch.bmm(to_out.mT, seen.to(v.dtype)).mT, to_values)
                to_weights = _dropped(torch.bmm(to_out, v.mT), mask, ctx.dropout)
                to_scores = to_weights.to(weights.dtype)
                torch._softmax_backward_data(
                    to_scores, weights, -1, weights.dtype, grad_input=to_scores
                )
                to_block = to_scores.view(len(group.counts), -1, group.length, group.length)
                if at < len(sums):
                    sums[at] += to_block
                else:
                    to_blocks.append(to_block)
                to_scores = to_scores.to(q.dtype)
                _put(group, torch.bmm(to_scores, k), to_queries)
                _put(group, torch.bmm(q.mT, to_scores).mT, to_keys)
        for scaled in (to_queries, to_keys):
            scaled *= of_queries[2] ** -0.5
        sums.extend(to_blocks)
        to_tie = weights.new_empty(0)
        return to_queries, to_keys, to_values, to_tie, None, None, None


def _stacked(group: Group, tokens: Tensor, kv_heads: int) -> Tensor:
    """A group's rows of (T, KV * R, d) as (b * KV, R * L, d).

    The query heads that share a key head stand under each other as rows of one product, so that
    keys and values are never repeated.
    """
    parts, length, width = len(group.counts), group.length, tokens.shape[2]
    per_head = tokens[group.start : group.end].view(parts, length, kv_heads, -1, width)
    return per_head.permute(0, 2, 3, 1, 4).reshape(parts * kv_heads, -1, width)


def _put(group: Group, stacked: Tensor, tokens: Tensor) -> None:
    """The way back from :func:`_stacked`, into the group's rows of ``tokens``."""
    parts, length, width = len(group.counts), group.length, tokens.shape[2]
    per_head = stacked.view(parts, len(stacked) // parts, -1, length, width)
    here = tokens[group.start : group.end].view(parts, length, per_head.shape[1], -1, width)
    here.copy_(per_head.permute(0, 3, 1, 2, 4))


def _drop(weights: Tensor, dropout: float) -> tuple[Tensor, list[Tensor]]:
    """Weights with a share of them dropped, and the mask of the rest if there is one."""
    if dropout == 0:
        return weights, []
    dropped, mask = torch.native_dropout(weights, dropout, True)
    return dropped, [mask]


def _dropped(weights: Tensor, mask: list[Tensor], dropout: float) -> Tensor:
    """``weights`` as :func:`_drop` made them; the gradient is dropped by the same rule."""
    if not mask:
        return weights
    return torch.ops.aten.native_dropout_backward(weights, mask[0], 1 / (1 - dropout))
