"""What the encoder is asked while it is pretrained: questions whose answers are in the graph.

Of a face and of an edge, from their grids turned at random: what kind it is, how large, where it
looks. Of a part whose faces are hidden in part: what the hidden faces are, what the whole part is
like, and which of the other views is the same part.

Shape letters are those of ``PartBatch``; M hidden faces, N grids.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from brepfind.cad.arrays import CONVEXITIES, EDGE_TYPES, FACE_TYPES, PartArrays
from brepfind.graphs.batch import PartBatch
from brepfind.training.loss import one_direction, unit_rows

_FACE_NUMBERS = 11  # log area, share inside, mean normal, extent of the points, centre
_EDGE_NUMBERS = 3  # log length, sine and cosine of the angle between the faces
_PART_NUMBERS = 4  # two ratios of the box, compactness, log of the number of faces
_MIN = 1e-6


def cube_rotations() -> Tensor:
    """(24, 3, 3), the rotations that map the box of a part onto itself."""
    found = []
    for order in itertools.permutations(range(3)):
        for signs in itertools.product((1.0, -1.0), repeat=3):
            turn = torch.zeros(3, 3)
            turn[torch.arange(3), torch.tensor(order)] = torch.tensor(signs)
            if torch.linalg.det(turn) > 0:
                found.append(turn)
    return torch.stack(found)


def turned(grid: Tensor, turns: Tensor, vectors: int) -> Tensor:
    """Grids (N, channels, ...) whose first 3 x ``vectors`` channels are turned by (N, 3, 3)."""
    head = grid[:, : 3 * vectors].reshape(len(grid), vectors, 3, -1)
    head = torch.einsum("nij,nvjg->nvig", turns, head)
    rest = grid[:, 3 * vectors :]
    return torch.cat([head.reshape(len(grid), 3 * vectors, *grid.shape[2:]), rest], dim=1)


@dataclass(frozen=True, slots=True)
class Grids:
    """Faces or edges of many parts: their grids, channels first, and the answers.

    Attributes:
        grid: (N, channels, G) or (N, channels, G, G).
        kind: int64 (N,), face types; or (N, 11), flags of edge types.
        numbers: (N, k).
    """

    grid: Tensor
    kind: Tensor
    numbers: Tensor


def face_grids(parts: Sequence[PartArrays]) -> Grids:
    """All faces of some parts."""
    grid = torch.from_numpy(np.concatenate([p.face_grid for p in parts])).permute(0, 3, 1, 2)
    area = torch.from_numpy(np.concatenate([p.face_area for p in parts]))
    kind = torch.from_numpy(np.concatenate([p.face_type for p in parts])).long()
    return Grids(grid.contiguous(), kind, face_numbers(grid, area))


def face_numbers(grid: Tensor, area: Tensor) -> Tensor:
    """(N, 11), what there is to know of faces beside their kind; it turns with the grid."""
    points, normals, inside = grid[:, :3].flatten(2), grid[:, 3:6].flatten(2), grid[:, 6].flatten(1)
    return torch.cat(
        [
            area.clamp_min(_MIN).log()[:, None] / 4,
            inside.mean(1, keepdim=True),
            normals.mean(2),
            points.std(2),
            points.mean(2),
        ],
        dim=1,
    )


def edge_grids(parts: Sequence[PartArrays]) -> tuple[Grids, Tensor]:
    """All directed edges of some parts, and their convexity, int64 (N,)."""
    grid = torch.from_numpy(np.concatenate([p.edge_grid for p in parts])).permute(0, 2, 1)
    length = torch.from_numpy(np.concatenate([p.edge_length for p in parts]))
    angle = torch.from_numpy(np.concatenate([p.edge_dihedral for p in parts]))
    numbers = torch.stack([length.clamp_min(_MIN).log() / 4, angle.sin(), angle.cos()], dim=1)
    kind = torch.from_numpy(np.concatenate([p.edge_type for p in parts])).float()
    convexity = torch.from_numpy(np.concatenate([p.edge_convexity for p in parts])).long()
    return Grids(grid.contiguous(), kind, numbers), convexity


class FaceQuestions(nn.Module):
    """Reads a face's kind and numbers from a vector."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, 64)
        self.kind = nn.Linear(64, len(FACE_TYPES))
        self.numbers = nn.Linear(64, _FACE_NUMBERS)

    def forward(self, rows: Tensor, kind: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the loss, and the share of kinds that are right."""
        hidden = F.gelu(self.hidden(rows))
        logits = self.kind(hidden)
        loss = F.cross_entropy(logits, kind)
        loss = loss + F.smooth_l1_loss(self.numbers(hidden), numbers, beta=0.1)
        return loss, (logits.argmax(1) == kind).float().mean()


class EdgeQuestions(nn.Module):
    """Reads an edge's kind, convexity and numbers from a vector."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, 64)
        self.kind = nn.Linear(64, len(EDGE_TYPES))
        self.convexity = nn.Linear(64, len(CONVEXITIES))
        self.numbers = nn.Linear(64, _EDGE_NUMBERS)

    def forward(
        self, rows: Tensor, kind: Tensor, convexity: Tensor, numbers: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the loss, and the share of convexities that are right."""
        hidden = F.gelu(self.hidden(rows))
        logits = self.convexity(hidden)
        loss = F.cross_entropy(logits, convexity)
        loss = loss + F.binary_cross_entropy_with_logits(self.kind(hidden), kind)
        loss = loss + F.smooth_l1_loss(self.numbers(hidden), numbers, beta=0.1)
        return loss, (logits.argmax(1) == convexity).float().mean()


class PartQuestions(nn.Module):
    """Reads hidden faces and whole parts from the encoder's output, and tells parts apart."""

    def __init__(self, dim: int, width: int = 64) -> None:
        super().__init__()
        self.faces = FaceQuestions(dim)
        self.part = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, 128), nn.GELU(), nn.Linear(128, _PART_NUMBERS)
        )
        self.kinds = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, len(FACE_TYPES)))
        self.project = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, 128), nn.GELU(), nn.Linear(128, width)
        )

    def whole(self, graph: Tensor, batch: PartBatch, kinds: Tensor) -> Tensor:
        """The loss of what the whole part is like. Args: kinds: int64 (F,), all faces' types."""
        logs = batch.size
        target = torch.stack(
            [
                logs[:, 0] - logs[:, 2],
                logs[:, 1] - logs[:, 2],
                logs[:, 4] - 1.5 * logs[:, 3],
                batch.face_counts.float().log(),
            ],
            dim=1,
        ).clamp(-8, 8)
        owner = torch.repeat_interleave(torch.arange(len(batch)), batch.face_counts)
        share = torch.zeros(len(batch), len(FACE_TYPES)).index_put_(
            (owner, kinds), torch.ones(len(kinds)), accumulate=True
        )
        share = share / batch.face_counts[:, None]
        loss = F.smooth_l1_loss(self.part(graph), target, beta=0.1)
        return loss + F.cross_entropy(self.kinds(graph), share)

    def contrast(self, one: Tensor, other: Tensor, same: Tensor, heat: float) -> Tensor:
        """InfoNCE between two views of each part. Args: same: bool (B, B), twins."""
        a, b = unit_rows(self.project(one)), unit_rows(self.project(other))
        target = torch.arange(len(a))
        logits = a @ b.T / heat
        return (one_direction(logits, target, same) + one_direction(logits.T, target, same)) / 2


def hide_faces(batch: PartBatch, hidden: Tensor) -> PartBatch:
    """The same batch with some faces blank. Args: hidden: bool (F,)."""
    seen = (~hidden).float()
    assert batch.face_surface is not None, "faces are hidden after the surface CNN"
    return replace(
        batch,
        face_surface=batch.face_surface * seen[:, None],
        face_type=batch.face_type * seen[:, None],
        face_area=batch.face_area * seen,
        face_rational=batch.face_rational * (~hidden).long(),
        face_centroid=batch.face_centroid * seen[:, None],
    )


def hidden_faces(counts: Tensor, share: float) -> Tensor:
    """Bool (F,), which faces are hidden: at least one of each part that has two, never all."""
    flags = []
    for count in counts.tolist():
        number = min(count - 1, max(1, round(share * count)))
        flag = torch.zeros(count, dtype=torch.bool)
        flag[torch.randperm(count)[:number]] = True
        flags.append(flag)
    return torch.cat(flags)
