"""The symmetric contrastive loss (CLIP's InfoNCE), with pairs that are no negatives left out.

Shape letters: B pairs of this rank, N pairs of all ranks together, D width of the common space.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from brepfind.distributed.gather import gather_with_grad


def contrastive_loss(
    parts_BD: Tensor,
    texts_BD: Tensor,
    scale: Tensor,
    same_BN: Tensor,
    *,
    rank: int = 0,
    local: bool = True,
) -> Tensor:
    """The mean over both directions of the cross-entropy of finding a pair's other half.

    Args:
        parts_BD, texts_BD: this rank's rows, not normalised; row i of both is a pair.
        scale: a scalar, what multiplies the cosines (exp of the logit scale).
        same_BN: true where the pair of a column is not a negative of the row's: its own column,
            a twin of the part, or an equal caption. (B, N), or (N, N) where ``local`` is false.
        rank: process rank, which tells where this rank's rows stand among all.
        local: compute only this rank's rows of the logits; the mean over the ranks is the loss.

    Returns:
        A scalar in float32, or float64 if the inputs are.
    """
    dtype = torch.float64 if parts_BD.dtype == torch.float64 else torch.float32
    with torch.autocast(parts_BD.device.type, enabled=False):
        # One collective for both towers, and so one order of collectives in backward.
        both = torch.cat([unit_rows(parts_BD.to(dtype)), unit_rows(texts_BD.to(dtype))], dim=1)
        everyone = gather_with_grad(both)
        width = parts_BD.shape[1]
        parts_ND, texts_ND = everyone[:, :width], everyone[:, width:]
        start = 0
        if local:
            start = rank * len(parts_BD)
            rows_parts, rows_texts = both[:, :width], both[:, width:]
        else:
            rows_parts, rows_texts = parts_ND, texts_ND
        target = torch.arange(start, start + len(rows_parts), device=both.device)
        scale = scale.to(dtype)
        to_texts = one_direction(scale * rows_parts @ texts_ND.T, target, same_BN)
        to_parts = one_direction(scale * rows_texts @ parts_ND.T, target, same_BN)
        return (to_texts + to_parts) / 2


def one_direction(logits_BN: Tensor, target_B: Tensor, same_BN: Tensor) -> Tensor:
    """Mean cross-entropy of each row's target among the columns that are negatives of it."""
    left_out = same_BN.clone()
    left_out[torch.arange(len(target_B), device=target_B.device), target_B] = False
    return F.cross_entropy(logits_BN.masked_fill(left_out, -math.inf), target_B)


def same_pairs(part_group_N: Tensor, caption_group_N: Tensor) -> Tensor:
    """True where two pairs of a batch are not each other's negatives.

    Args:
        part_group_N: int64, equal for twins.
        caption_group_N: int64, equal for equal captions.

    Returns:
        bool (N, N), true on the diagonal.
    """
    return (part_group_N[:, None] == part_group_N[None, :]) | (
        caption_group_N[:, None] == caption_group_N[None, :]
    )


def unit_rows(rows_BD: Tensor) -> Tensor:
    """Rows of length 1; a zero row stays zero (the guard takes it for a failed forward pass)."""
    return F.normalize(rows_BD, dim=1)
