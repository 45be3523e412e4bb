"""UV-Net (Jayaraman et al., CVPR 2021, arXiv 2006.10211) on ``PartBatch``: the layers and sizes
that its authors published, as the encoder of a dual encoder.

A CNN over each face's grid and one over each edge's curve, 64 numbers each; two rounds of message
passing of width 64 (Eq. 1 and 2), in which an edge's feature is the matrix that carries its source
face's feature to its target; of each round, the input included, the largest over the faces, a
linear map to 128 numbers and dropout of one half, and the sum of the three. It sees points,
tangents, normals and trimming masks in a box of fixed size, nothing else.

Shape letters are those of ``PartBatch``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from brepfind.graphs.batch import PartBatch
from brepfind.models.encoder import EncoderConfig
from brepfind.models.features import SURFACE_CHANNELS
from brepfind.models.grid_cnn import GridCNN
from brepfind.models.norm import BatchNorm
from brepfind.models.ragged import owners_of, starts_of

WIDTH, GRAPH_WIDTH, ROUNDS = 64, 128, 2
_CURVE_CHANNELS = 6  # of the store's twelve: point and tangent, without the faces' normals
_DROPOUT = 0.5


class Output(NamedTuple):
    """``graph`` (B, 128)."""

    graph: Tensor


class UVNet(nn.Module):
    """The encoder; it takes the place of ``BrepEncoder`` in a dual encoder.

    Args:
        settings: of the encoder whose place it takes; it keeps the limit of faces.
        seed: of the initial weights; the global random state is left as it was.
    """

    def __init__(self, settings: EncoderConfig, seed: int) -> None:
        super().__init__()
        self.config = settings.model_copy(update={"dim": GRAPH_WIDTH})
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.surfaces = GridCNN(2, SURFACE_CHANNELS, WIDTH)
            self.curves = GridCNN(1, _CURVE_CHANNELS, WIDTH)
            self.faces = nn.ModuleList(_FaceRound() for _ in range(ROUNDS))
            self.edges = nn.ModuleList(_EdgeRound() for _ in range(ROUNDS))
            self.heads = nn.ModuleList(nn.Linear(WIDTH, GRAPH_WIDTH) for _ in range(ROUNDS + 1))
            self.apply(_initialise)
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, batch: PartBatch) -> Output:
        """Encode a batch that has its grids."""
        assert batch.face_grid is not None and batch.edge_grid is not None
        shift = starts_of(batch.face_counts)[owners_of(batch.edge_counts, len(batch.edge_src))]
        src, dst = batch.edge_src + shift, batch.edge_dst + shift
        face = functional.leaky_relu(self.surfaces(batch.face_grid))
        edge = functional.leaky_relu(self.curves(batch.edge_grid[:, :_CURVE_CHANNELS]))
        seen = [face]
        for face_round, edge_round in zip(self.faces, self.edges, strict=True):
            face = face_round(face, edge, src, dst)
            edge = edge_round(face, edge, src, dst)
            seen.append(face)
        owners = owners_of(batch.face_counts, len(face))
        pooled = [_largest(rows, owners, len(batch)) for rows in seen]
        parts = [self.dropout(head(x)) for head, x in zip(self.heads, pooled, strict=True)]
        return Output(torch.stack(parts).sum(0))

    def cnns(self) -> tuple[GridCNN, GridCNN]:
        """The surface and the curve CNN; they learn."""
        return self.surfaces, self.curves


class _FaceRound(nn.Module):
    """Eq. 1: a face takes in its neighbours, each through the matrix of the edge between them."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Linear(WIDTH, WIDTH * WIDTH)
        self.mlp = _Perceptron()
        self.norm = BatchNorm(WIDTH)
        self.eps = nn.Parameter(torch.zeros(1))

    def forward(self, face: Tensor, edge: Tensor, src: Tensor, dst: Tensor) -> Tensor:
        """Args: face: (F, 64). edge: (E, 64). src, dst: int64 (E,). Returns (F, 64)."""
        given = ((1 + self.eps) * face)[src]
        # sum_j (sum_k edge_k W[j,m,k] + b[j,m]) given_j, without E matrices of 64 x 64: the map is
        # bilinear, so the outer product of face and edge meets the weights at once.
        weight = self.matrix.weight.view(WIDTH, WIDTH, WIDTH)
        outer = (given[:, :, None] * edge[:, None, :]).flatten(1)
        message = outer @ weight.transpose(1, 2).reshape(WIDTH * WIDTH, WIDTH)
        message = message + given @ self.matrix.bias.view(WIDTH, WIDTH)
        taken = torch.zeros_like(face).index_add(0, dst, message)
        return functional.leaky_relu(self.norm(self.mlp(taken)))


class _EdgeRound(nn.Module):
    """Eq. 2: an edge takes in its two faces."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, WIDTH)
        self.mlp = _Perceptron()
        self.norm = BatchNorm(WIDTH)
        self.eps = nn.Parameter(torch.zeros(1))

    def forward(self, face: Tensor, edge: Tensor, src: Tensor, dst: Tensor) -> Tensor:
        """Args as for :class:`_FaceRound`. Returns (E, 64)."""
        projected = self.project(face)
        joined = (1 + self.eps) * edge + projected[src] + projected[dst]
        return functional.leaky_relu(self.norm(self.mlp(joined)))


class _Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.norm = BatchNorm(WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.relu(self.norm(self.hidden(x))))


def _largest(rows: Tensor, owners: Tensor, parts: int) -> Tensor:
    """(B, D), the largest of each part's rows (F, D); every part has a face."""
    index = owners[:, None].expand_as(rows)
    empty = rows.new_zeros(parts, rows.shape[1])
    return empty.scatter_reduce(0, index, rows, "amax", include_self=False)


def _initialise(module: nn.Module) -> None:
    """As the authors do in their CNNs; linear layers of the graph network keep torch's own."""
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        nn.init.kaiming_uniform_(module.weight)
