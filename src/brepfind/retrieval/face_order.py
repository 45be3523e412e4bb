"""How far an embedding moves when a file lists its faces in another order.

RoPE runs over the order of the faces, so the encoder sees it, though it means nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from brepfind.graphs.batch import PartBatch
from brepfind.graphs.collate import collate
from brepfind.graphs.dataset import PartReader
from brepfind.models.dual import DualEncoder
from brepfind.models.face_order import random_order, reorder_faces

_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderMoves:
    """What other orders of the faces do to N parts.

    Attributes:
        parts: N.
        orders: random orders tried for each.
        median, worst: of the N x orders cosines between a part's embedding in its file's order and
            in another.
        neighbour: the median over parts of the cosine to the nearest other part.
        finds_itself: the share of the N x orders embeddings that are nearest to their own part.
    """

    parts: int
    orders: int
    median: float
    worst: float
    neighbour: float
    finds_itself: float


@torch.no_grad()
def order_moves(
    model: DualEncoder, reader: PartReader, ids: Sequence[str], *, orders: int = 4, seed: int = 0
) -> OrderMoves:
    """Embed parts in their files' order of faces and in random ones.

    Args:
        model: in eval mode.
        reader: of the parts.
        ids: two parts at least.
        orders: random orders per part.
        seed: of the orders.
    """
    assert len(ids) > 1 and orders > 0
    generator = torch.Generator().manual_seed(seed)
    own: list[Tensor] = []
    other: list[Tensor] = []
    for start in range(0, len(ids), _AT_ONCE):
        batch = _without_grids(model, collate(*reader.read(ids[start : start + _AT_ONCE])))
        own.append(model.embed_parts(batch).projected)
        views = [
            reorder_faces(batch, random_order(batch.face_counts, generator)) for _ in range(orders)
        ]
        other.append(torch.stack([model.embed_parts(view).projected for view in views], dim=1))
    # float64: near-twins differ in the eighth digit.
    rows = normalize(torch.cat(own).double(), dim=-1)
    turned = normalize(torch.cat(other).double(), dim=-1)
    scores = turned @ rows.T  # (N, orders, N)
    same = scores.diagonal(dim1=0, dim2=2).T  # (N, orders)
    nearest = (rows @ rows.T).fill_diagonal_(-1.0).max(1).values
    mine = torch.arange(len(rows))[:, None]
    return OrderMoves(
        parts=len(rows),
        orders=orders,
        median=float(same.median()),
        worst=float(same.min()),
        neighbour=float(nearest.median()),
        finds_itself=float((scores.argmax(2) == mine).double().mean()),
    )


def _without_grids(model: DualEncoder, batch: PartBatch) -> PartBatch:
    """The same parts with what the CNNs give, which see one face or edge at a time: in another
    order of the faces they give the same, and they are most of the work.
    """
    encoder = model.encoder
    assert batch.face_grid is not None and batch.edge_grid is not None
    return replace(
        batch,
        face_grid=None,
        face_surface=encoder.encode_surfaces(batch.face_grid),
        edge_grid=None,
        edge_curve=encoder.encode_curves(batch.edge_grid),
    )
