"""The attention bias of face pairs, computed without ever holding what it is computed from.

Written plainly, the bias of P pairs needs each path's edges (P x S x H numbers) and eight tensors
of P x H for its two scalar encoders, all kept for the backward pass. Here

- every edge is multiplied by every step's matrix first (E x S x H), so that a pair only adds up
  rows; forwards and backwards are weighted sums of rows, without any scatter;
- the scalar encoders run on a few thousand pairs at a time, which fit into a processor's cache, and
  are run again in the backward pass instead of being kept.

Shape letters are those of ``PartBatch``; H heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from brepfind.models.linear import product
from brepfind.models.ragged import Layout

# Pairs per pass of the scalar encoders: small enough for a processor's second-level cache, or
# large enough that a GPU's launches do not count.
_CHUNK_CPU = 2_048
_CHUNK_GPU = 262_144


class ScalarEncoder(NamedTuple):
    """A two-layer encoder of one number: each layer a linear map, a fixed scale and shift, a ReLU.

    The scales are not folded into the linear maps: with angles of up to 181 degrees and weights of
    any size that would round differently from the authors' code, visibly so.

    All (H,) but ``weight2``, (H, H).
    """

    weight1: Tensor
    scale1: Tensor
    shift1: Tensor
    weight2: Tensor
    scale2: Tensor
    shift2: Tensor


@dataclass(frozen=True, slots=True)
class Walks:
    """Which rows of a table each pair adds up, and with what weight; and the same transposed.

    Attributes:
        rows: int32 (W,), rows of the table, pair after pair.
        starts: int32 (P,), where each pair's rows begin.
        weights: float32 (W,).
        pairs, row_starts, pair_weights: for each row of the table the pairs that add it.
    """

    rows: Tensor
    starts: Tensor
    weights: Tensor
    pairs: Tensor
    row_starts: Tensor
    pair_weights: Tensor

    @classmethod
    def of(cls, path: Tensor, starts: Tensor, weights: Tensor, table_size: int) -> Walks:
        """The walks along ``path``; a table has a row for every edge and step, edge after edge.

        Args:
            path: int64 (P, S), the edge of each step, counted within its part; negative where there
                is none.
            starts: int64 (P,), the number of edges before those of the pair's part.
            weights: (P,), of each row that the pair adds up.
        """
        steps = path.shape[1]
        cells = torch.nonzero(path.flatten() >= 0)[:, 0]
        pairs = torch.div(cells, steps, rounding_mode="floor") if steps else cells
        rows = path.flatten()[cells].add_(starts[pairs]).mul_(steps).add_(cells - pairs * steps)
        lengths = torch.bincount(pairs, minlength=len(path))
        flat_weights = weights[pairs]
        rows, pairs = rows.int(), pairs.int()
        order = torch.argsort(rows, stable=True)
        uses = torch.bincount(rows, minlength=table_size)
        return cls(
            rows=rows,
            starts=(lengths.cumsum(0) - lengths).int(),
            weights=flat_weights,
            pairs=pairs[order],
            row_starts=(uses.cumsum(0) - uses).int(),
            pair_weights=flat_weights[order],
        )


def pair_rows(
    hops: Tensor,
    hop_table: Tensor,
    scalars: list[tuple[Tensor, ScalarEncoder]],
    table: Tensor,
    walks: Walks,
) -> Tensor:
    """The bias of each pair: its hops' row, its encoded numbers, the weighted sum of its walk.

    They are added in this order, which is the authors': where an encoded angle is in the hundreds
    the last bits depend on it.

    Args:
        hops: int64 (P,), rows of ``hop_table``; row 0 is padding and learns nothing.
        hop_table: (64, H).
        scalars: numbers (P,) and their encoder.
        table: (R, H); like the rest float32 or float64.
        walks: of the P pairs, over ``table``.

    Returns:
        (P, H).
    """
    flat = [tensor for x, encoder in scalars for tensor in (x, *encoder)]
    rows: Tensor = _PairRows.apply(hops, hop_table, table, walks, *flat)
    return rows


def pad_bias(rows: Tensor, token: Tensor, blocked: Tensor, layout: Layout) -> list[Tensor]:
    """The bias of each group's cells.

    Args:
        rows: (P, H), from :func:`pair_rows`.
        token: (1, H), the bias between a graph token and anything of its part.
        blocked: bool (P,), pairs that may not see each other.

    Returns:
        (b, H, L, L) per group. Minus infinity for blocked pairs and for keys past a part's end;
        queries past the end see their part's graph token, so that no softmax is empty.
    """
    return list(_PadBias.apply(rows, token.to(rows.dtype), blocked, layout))


class _PairRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hops: Tensor, hop_table: Tensor, table: Tensor, walks: Walks, *flat: Tensor
    ) -> Tensor:
        ctx.walks, ctx.hop_rows = walks, len(hop_table)
        ctx.save_for_backward(hops, *flat)
        out = _weighted_sums(table, walks.rows, walks.starts, walks.weights)
        scalars = _scalars(flat)
        with _full_precision(out):
            for here in _chunks(hops):
                total = hop_table[hops[here]]
                for x, encoder in scalars:
                    total += _encode(x[here], encoder)[-1]
                out[here] += total
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        walks: Walks = ctx.walks
        hops, *flat = ctx.saved_tensors
        gradient = gradient.contiguous()
        to_hops = torch.ops.aten.embedding_dense_backward(gradient, hops, ctx.hop_rows, 0, False)
        to_table = _weighted_sums(gradient, walks.pairs, walks.row_starts, walks.pair_weights)
        to_scalars: list[Tensor | None] = []
        with _full_precision(gradient):
            for x, encoder in _scalars(flat):
                to_scalars += [None, *_gradients(gradient, x, encoder)]
        return None, to_hops, to_table, None, *to_scalars


class _PadBias(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, token: Tensor, blocked: Tensor, layout: Layout
    ) -> tuple[Tensor, ...]:
        ctx.layout, ctx.shape = layout, rows.shape
        heads = rows.shape[1]
        any_blocked = bool(blocked.any())
        padded = []
        for group in layout.groups:
            size = (len(group.counts), heads, group.length, group.length)
            bias = rows.new_full(size, float("-inf"))
            bias[:, :, :, 0] = token[:, :, None]
            for cells, (start, faces) in zip(bias, group.pair_slices, strict=True):
                cells[:, 0, 1 : faces + 1] = token[0, :, None]
                inner = cells[:, 1 : faces + 1, 1 : faces + 1]
                here = slice(start, start + faces * faces)
                inner.copy_(rows[here].t().view(heads, faces, faces))
                if any_blocked:
                    inner.masked_fill_(blocked[here].view(faces, faces), float("-inf"))
            padded.append(bias)
        return tuple(padded)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        # Cells at minus infinity have weight 0 after the softmax, so their gradient is 0 already;
        # so is that of queries past the end, which nobody reads.
        heads = ctx.shape[1]
        to_rows = gradients[0].new_empty(ctx.shape)
        to_token = gradients[0].new_zeros(1, heads)
        for group, gradient in zip(ctx.layout.groups, gradients, strict=True):
            to_token += gradient[:, :, 0, :].sum((0, 2)) + gradient[:, :, 1:, 0].sum((0, 2))
            for cells, (start, faces) in zip(gradient, group.pair_slices, strict=True):
                here = to_rows[start : start + faces * faces].view(faces, faces, heads)
                here.copy_(cells[:, 1 : faces + 1, 1 : faces + 1].permute(1, 2, 0))
        return to_rows, to_token, None, None


def _weighted_sums(table: Tensor, rows: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    if len(rows) == 0:
        return table.new_zeros(len(starts), table.shape[1])
    return functional.embedding_bag(
        rows, table, starts, mode="sum", per_sample_weights=weights.to(table.dtype)
    )


def _scalars(flat: Sequence[Tensor]) -> list[tuple[Tensor, ScalarEncoder]]:
    width = 1 + len(ScalarEncoder._fields)
    return [
        (flat[at], ScalarEncoder(*flat[at + 1 : at + width])) for at in range(0, len(flat), width)
    ]


def _chunks(pairs: Tensor) -> list[slice]:
    size = _CHUNK_CPU if pairs.device.type == "cpu" else _CHUNK_GPU
    return [slice(start, start + size) for start in range(0, len(pairs), size)]


def _encode(x: Tensor, encoder: ScalarEncoder) -> tuple[Tensor, Tensor]:
    """What each layer gives, (chunk, H)."""
    first = x[:, None] * encoder.weight1
    inner = torch.relu_(torch.addcmul(encoder.shift1, first, encoder.scale1))
    second = product(inner, encoder.weight2)
    return inner, torch.relu_(torch.addcmul(encoder.shift2, second, encoder.scale2))


def _gradients(gradient: Tensor, x: Tensor, encoder: ScalarEncoder) -> ScalarEncoder:
    """Those of the encoder's fields.

    What a scale multiplies is a linear map's output, so the scale's gradient follows from the sums
    that the map's own needs: no pass over the pairs for either.
    """
    by_inner, to_shift2 = torch.zeros_like(encoder.weight2), torch.zeros_like(encoder.shift2)
    by_x, to_shift1 = torch.zeros_like(encoder.weight1), torch.zeros_like(encoder.shift1)
    back = (encoder.weight2 * encoder.scale2[:, None]).t()
    for here in _chunks(x):
        inner, outer = _encode(x[here], encoder)
        to_outer = torch.ops.aten.threshold_backward(gradient[here], outer, 0)
        by_inner.addmm_(to_outer.t(), inner)
        to_shift2 += to_outer.sum(0)
        to_inner = product(to_outer, back)
        to_inner = torch.ops.aten.threshold_backward(to_inner, inner, 0)
        by_x.addmv_(to_inner.t(), x[here])
        to_shift1 += to_inner.sum(0)
    return ScalarEncoder(
        weight1=by_x * encoder.scale1,
        scale1=by_x * encoder.weight1,
        shift1=to_shift1,
        weight2=by_inner * encoder.scale2[:, None],
        scale2=(by_inner * encoder.weight2).sum(1),
        shift2=to_shift2,
    )


def _full_precision(like: Tensor) -> torch.autocast:
    return torch.autocast(like.device.type, enabled=False)
