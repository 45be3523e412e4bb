"""What BRepFormer reads from a part before attention: face tokens, edge features, pair bias.

Module and parameter names are the authors', because their checkpoints name them. Shape letters
are those of ``PartBatch``; H heads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from brepfind.graphs.batch import MAX_PATH, PartBatch
from brepfind.models.grid_cnn import GridCNN
from brepfind.models.linear import Linear, linear
from brepfind.models.norm import BatchNorm
from brepfind.models.pairs import ScalarEncoder, Walks, pad_bias, pair_rows
from brepfind.models.ragged import Layout, owners_of, starts_of
from brepfind.models.rope import at_least_float32

N_FACE_TYPES = 9
N_EDGE_TYPES = 11
N_CONVEXITIES = 3
SURFACE_CHANNELS = 7
CURVE_CHANNELS = 12
HOP_ROWS = 64  # rows of the hop embedding; row 0 is padding, row h + 1 is h hops
PATH_MATRICES = 64  # matrices stored in edge_dis_encoder; MAX_PATH of them are read
MAX_HOPS = 32  # faces so many hops apart, or more, do not see each other
_NODE_CAT_WIDTH = 64


class TwoLayer(nn.Module):
    """Linear, BatchNorm, ReLU, twice; from a few numbers (N, inputs) to (N, width)."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.linear1 = Linear(inputs, width, bias=False)
        self.bn1 = BatchNorm(width)
        self.linear2 = Linear(width, width, bias=False)
        self.bn2 = BatchNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Args: x: (N, inputs). Returns (N, width)."""
        x = torch.relu_(self.bn1(self.linear1(x)))
        return torch.relu_(self.bn2(self.linear2(x)))

    def uses_batch(self, rows: int) -> bool:
        """Whether either norm would use the statistics of a batch of so many rows."""
        return self.bn1.uses_batch(rows) or self.bn2.uses_batch(rows)

    def fixed(self) -> ScalarEncoder:
        """The encoder of a single number, with its running statistics, in full precision."""
        scale1, shift1 = self.bn1.affine()
        scale2, shift2 = self.bn2.affine()
        weight1 = self.linear1.weight[:, 0]
        parts = (weight1, scale1, shift1, self.linear2.weight, scale2, shift2)
        return ScalarEncoder(*map(at_least_float32, parts))


class FaceFeatures(nn.Module):
    """Face tokens: surface dim/2, then area, type, centroid and rational, dim/8 each."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.surf_encoder = GridCNN(2, SURFACE_CHANNELS, dim // 2)
        self.face_area_encoder = TwoLayer(1, dim // 8)
        self.face_type_encoder = TwoLayer(N_FACE_TYPES, dim // 8)
        self.face_centroid_encoder = TwoLayer(3, dim // 8)
        self.face_rational_encoder = nn.Embedding(2, dim // 8)
        self.graph_token = nn.Embedding(1, dim)

    def forward(self, batch: PartBatch) -> Tensor:
        """Returns (F, dim)."""
        if batch.face_surface is not None:
            surface = batch.face_surface + zero_term(self.surf_encoder)
        else:
            assert batch.face_grid is not None, "a batch has face_grid or face_surface"
            surface = self.surf_encoder(batch.face_grid)
        return torch.cat(
            (
                surface,
                self.face_area_encoder(batch.face_area[:, None]),
                self.face_type_encoder(batch.face_type),
                self.face_centroid_encoder(batch.face_centroid),
                self.face_rational_encoder(batch.face_rational),
            ),
            dim=-1,
        )


class _Perceptron(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linears = nn.ModuleList(
            (Linear(width, _NODE_CAT_WIDTH), Linear(_NODE_CAT_WIDTH, width))
        )
        self.batch_norms = nn.ModuleList((BatchNorm(_NODE_CAT_WIDTH),))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu_(self.batch_norms[0](self.linears[0](x)))
        return self.linears[1](hidden)


class _Projection(nn.Module):
    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.linear = Linear(dim, width)


class EdgeWithFaces(nn.Module):
    """An edge's feature together with its two faces' tokens."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.proj = _Projection(dim, heads)
        self.mlp = _Perceptron(heads)
        self.batchnorm = BatchNorm(heads)

    def forward(self, edges: Tensor, faces: Tensor, src: Tensor, dst: Tensor) -> Tensor:
        """Args: edges: (E, H). faces: (F, dim). src, dst: int64 (E,), rows of ``faces``.

        Returns (E, H).
        """
        projected = self.proj.linear(faces)
        joined = (1 + self.eps) * edges + projected[src] + projected[dst]
        return functional.leaky_relu(self.batchnorm(self.mlp(joined)), inplace=True)


class PairBias(nn.Module):
    """The attention bias, computed once per batch and shared by all layers."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.shortest_distance_encoder = nn.Embedding(HOP_ROWS, heads, padding_idx=0)
        self.graph_token_virtual_distance = nn.Embedding(1, heads)
        self.angle_encoder = TwoLayer(1, heads)
        self.centroid_distance_encoder = TwoLayer(1, heads)
        self.curv_encoder = GridCNN(1, CURVE_CHANNELS, heads)
        self.edge_type_encoder = TwoLayer(N_EDGE_TYPES, heads)
        self.edge_length_encoder = TwoLayer(1, heads)
        self.edge_convexity_encoder = TwoLayer(N_CONVEXITIES, heads)
        self.edge_dis_encoder = nn.Embedding(PATH_MATRICES * heads * heads, 1)
        self.node_cat = EdgeWithFaces(dim, heads)

    def forward(self, batch: PartBatch, faces: Tensor, layout: Layout) -> list[Tensor]:
        """Args: faces: (F, dim), the face tokens.

        Returns:
            One (b, H, L, L) per group of ``layout``, float32 (float64 for a float64 model), minus
            infinity where a query may not look.
        """
        table, walks = self._table(batch, faces)
        hops = (batch.hops + 1).clamp(0, HOP_ROWS - 1)
        hop_table = at_least_float32(self.shortest_distance_encoder.weight)
        scalars = [
            (batch.angle + 1, self.angle_encoder),
            (batch.distance, self.centroid_distance_encoder),
        ]
        if any(encoder.uses_batch(len(x)) for x, encoder in scalars):
            # Statistics of the batch need all pairs at once: this is how pretraining runs.
            rows = pair_rows(hops, hop_table, [], table, walks)
            for x, encoder in scalars:
                rows = rows + encoder(x[:, None])
        else:
            fixed = [(x.to(table.dtype), encoder.fixed()) for x, encoder in scalars]
            rows = pair_rows(hops, hop_table, fixed, table, walks)
        blocked = (batch.hops < 0) | (batch.hops >= MAX_HOPS)
        return pad_bias(rows, self.graph_token_virtual_distance.weight, blocked, layout)

    def _table(self, batch: PartBatch, faces: Tensor) -> tuple[Tensor, Walks]:
        """Every edge times every step's matrix, (E * S, H), and the rows that each path adds up."""
        path = batch.path[:, :MAX_PATH]
        steps = path.shape[1]
        if batch.edge_src.numel() == 0 or steps == 0:
            nothing = faces.new_zeros(1, self.heads) + zero_term(
                self.curv_encoder,
                self.edge_type_encoder,
                self.edge_length_encoder,
                self.edge_convexity_encoder,
                self.edge_dis_encoder,
                self.node_cat,
            )
            none = batch.hops.new_zeros(len(path))
            return at_least_float32(nothing), Walks.of(path[:, :0], none, none.float(), 1)
        edges = self._edges(batch, faces)
        matrices = self.edge_dis_encoder.weight.view(-1, self.heads, self.heads)[:steps]
        weight = matrices.transpose(1, 2).reshape(steps * self.heads, self.heads)
        table = at_least_float32(linear(edges, weight)).view(-1, self.heads)
        starts = starts_of(batch.edge_counts)[owners_of(batch.face_counts**2, len(path))]
        share = 1.0 / batch.hops.clamp(1, MAX_PATH).to(table.dtype)
        return table, Walks.of(path, starts, share, len(table))

    def _edges(self, batch: PartBatch, faces: Tensor) -> Tensor:
        if batch.edge_curve is not None:
            curve = batch.edge_curve + zero_term(self.curv_encoder)
        else:
            assert batch.edge_grid is not None, "a batch has edge_grid or edge_curve"
            curve = self.curv_encoder(batch.edge_grid)
        edges = (
            curve
            + self.edge_type_encoder(batch.edge_type)
            + self.edge_length_encoder(batch.edge_length[:, None])
            + self.edge_convexity_encoder(batch.edge_convexity)
        )
        shift = starts_of(batch.face_counts)[owners_of(batch.edge_counts, len(batch.edge_src))]
        return self.node_cat(edges, faces, batch.edge_src + shift, batch.edge_dst + shift)


def zero_term(*modules: nn.Module) -> Tensor | float:
    """Zero, in whose graph every learning parameter of ``modules`` takes part.

    DDP waits for the gradient of every parameter in every step. A batch that gives a module
    nothing to do adds this instead of leaving its parameters out.
    """
    learning = [p for module in modules for p in module.parameters() if p.requires_grad]
    if not learning or not torch.is_grad_enabled():
        return 0.0
    return torch.stack([parameter.sum() for parameter in learning]).sum() * 0.0
