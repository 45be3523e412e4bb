"""The symmetric contrastive loss (CLIP's InfoNCE), with pairs that are no negatives left out.

Shape letters: B pairs of this rank, N pairs of all ranks together, D width of the common space.
"""

from __future__ import annotations

import math
from collections.abc import Callable

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
    lap: Callable[[str], None] = lambda name: None,
) -> Tensor:
    """The mean over both directions of the cross-entropy of finding a pair's other half.

    Args:
        parts_BD, texts_BD: this rank's rows, not normalised; row i of both is a pair.
        scale: a scalar, what multiplies the cosines (exp of the logit scale).
        same_BN: true where the pair of a column is not a negative of the row's: its own column,
            a twin of the part, or an equal caption. (B, N), or (N, N) where ``local`` is false.
        rank: process rank, which tells where this rank's rows stand among all.
        local: compute only this rank's rows of the logits; the mean over the ranks is the loss.
        lap: told the name of each part of the work when it is done, for a clock.

    Returns:
        A scalar in float32, or float64 if the inputs are.
    """
    with torch.autocast(parts_BD.device.type, enabled=False):
        own = unit_pairs(parts_BD, texts_BD)
        lap("loss")
        # One collective for both towers, and so one order of collectives in backward.
        everyone = gather_with_grad(own)
        lap("gather")
        return loss_of_rows(own, everyone, scale, same_BN, rank=rank, local=local)


def unit_pairs(parts_BD: Tensor, texts_BD: Tensor) -> Tensor:
    """Both towers' rows at length 1 beside each other, (B, 2 D), in float32 or float64."""
    dtype = torch.float64 if parts_BD.dtype == torch.float64 else torch.float32
    return torch.cat([unit_rows(parts_BD.to(dtype)), unit_rows(texts_BD.to(dtype))], dim=1)


def loss_of_rows(
    own: Tensor, everyone: Tensor, scale: Tensor, same_BN: Tensor, *, rank: int, local: bool
) -> Tensor:
    """The loss from this rank's rows (B, 2 D) and all ranks' rows (N, 2 D)."""
    width = own.shape[1] // 2
    start = rank * len(own) if local else 0
    rows = own if local else everyone
    target = torch.arange(start, start + len(rows), device=own.device)
    scale = scale.to(own.dtype)
    to_texts = one_direction(scale * rows[:, :width] @ everyone[:, width:].T, target, same_BN)
    to_parts = one_direction(scale * rows[:, width:] @ everyone[:, :width].T, target, same_BN)
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


def guessing(same_NN: Tensor) -> tuple[float, int]:
    """What the loss of a batch is if nothing is told apart, and how many pairs cannot be wrong.

    Args:
        same_NN: from :func:`same_pairs`.

    Returns:
        The mean over the pairs of ln(1 + its negatives), ln(N) where all others are negatives; and
        the number of pairs without any negative: their loss is 0 whatever the model does.
    """
    negatives = (~same_NN).sum(1)
    return float(torch.log1p(negatives.double()).mean()), int((negatives == 0).sum())


def unit_rows(rows_BD: Tensor) -> Tensor:
    """Rows of length 1; a zero row stays zero (the guard takes it for a failed forward pass)."""
    return F.normalize(rows_BD, dim=1)
