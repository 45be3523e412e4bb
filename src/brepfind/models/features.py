"""What BRepFormer reads from a part before attention: face tokens, edge features, pair bias.

Module and parameter names are the authors', because their checkpoints name them. Shape letters
are those of ``PartBatch``; H heads, M live face pairs (those that may attend to each other).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from brepfind.graphs.batch import MAX_PATH, PartBatch
from brepfind.models.norm import BatchNorm
from brepfind.models.ragged import Layout
from brepfind.models.rope import at_least_float32

N_FACE_TYPES = 9
N_EDGE_TYPES = 11
N_CONVEXITIES = 3
SURFACE_CHANNELS = 7
CURVE_CHANNELS = 12
HOP_ROWS = 64  # rows of the hop embedding; row 0 is padding, row h + 1 is h hops
PATH_MATRICES = 64  # matrices stored in edge_dis_encoder; MAX_PATH of them are read
MAX_HOPS = 32  # faces so many hops apart, or more, do not see each other
_CNN_WIDTHS = (64, 128, 256)
_NODE_CAT_WIDTH = 64


class GridCNN(nn.Module):
    """Three 3-wide convolutions, the mean over the grid, one linear layer; in 1 or 2 dimensions.

    Args:
        dims: 1 for curves (N, channels, G), 2 for surfaces (N, channels, G, G).
        channels: of the input.
        width: of the output (N, width).
    """

    def __init__(self, dims: Literal[1, 2], channels: int, width: int) -> None:
        super().__init__()
        conv = nn.Conv1d if dims == 1 else nn.Conv2d
        self.dims = dims
        before = channels
        for number, after in enumerate(_CNN_WIDTHS, start=1):
            block = nn.Sequential(
                conv(before, after, kernel_size=3, padding=1, bias=False), BatchNorm(after)
            )
            self.add_module(f"conv{number}", block)
            before = after
        self.fc = nn.Sequential(nn.Linear(before, width, bias=False), BatchNorm(width))

    def forward(self, grid: Tensor) -> Tensor:
        """Args: grid: (N, channels, G) or (N, channels, G, G). Returns (N, width)."""
        x = grid
        for block in (self.conv1, self.conv2, self.conv3):
            assert isinstance(block, nn.Module)
            x = functional.leaky_relu(_conv_norm(x, block), inplace=True)
        return self.fc(x.flatten(2).mean(2))


class TwoLayer(nn.Module):
    """Linear, BatchNorm, ReLU, twice; from a few numbers (N, inputs) to (N, width)."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.linear1 = nn.Linear(inputs, width, bias=False)
        self.bn1 = BatchNorm(width)
        self.linear2 = nn.Linear(width, width, bias=False)
        self.bn2 = BatchNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Args: x: (N, inputs). Returns (N, width)."""
        x = torch.relu_(self.bn1(self.linear1(x)))
        return torch.relu_(self.bn2(self.linear2(x)))


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
            (nn.Linear(width, _NODE_CAT_WIDTH), nn.Linear(_NODE_CAT_WIDTH, width))
        )
        self.batch_norms = nn.ModuleList((BatchNorm(_NODE_CAT_WIDTH),))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu_(self.batch_norms[0](self.linears[0](x)))
        return self.linears[1](hidden)


class _Projection(nn.Module):
    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, width)


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
            One (b, H, L, L) per group of ``layout``, minus infinity where a query may not look.
        """
        seen = (batch.hops >= 0) & (batch.hops < MAX_HOPS)
        live = seen.nonzero().squeeze(1)
        hops = batch.hops[live]
        bias = self.shortest_distance_encoder(hops + 1)
        bias = bias + self.angle_encoder(batch.angle[live, None] + 1)
        bias = bias + self.centroid_distance_encoder(batch.distance[live, None])
        path = batch.path[live, :MAX_PATH]
        if batch.edge_src.numel() == 0 or path.numel() == 0:
            bias = bias + zero_term(
                self.curv_encoder,
                self.edge_type_encoder,
                self.edge_length_encoder,
                self.edge_convexity_encoder,
                self.edge_dis_encoder,
                self.node_cat,
            )
        else:
            edges = self._edges(batch, faces, layout)
            shift = layout.edge_starts[layout.part_of_pair[live]]
            bias = bias + self._along_paths(edges, path, shift) / hops.clamp(1, MAX_PATH)[:, None]
        row_of_pair = torch.full_like(batch.hops, len(live) + 1)
        row_of_pair[live] = torch.arange(len(live), device=live.device)
        return layout.pad_bias(bias, self.graph_token_virtual_distance.weight, row_of_pair)

    def _edges(self, batch: PartBatch, faces: Tensor, layout: Layout) -> Tensor:
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
        shift = layout.face_starts[layout.part_of_edge]
        return self.node_cat(edges, faces, batch.edge_src + shift, batch.edge_dst + shift)

    def _along_paths(self, edges: Tensor, path: Tensor, shift: Tensor) -> Tensor:
        """Sum over each pair's path of ``edge @ matrix of the step``; (M, H).

        Every edge is multiplied by every step's matrix first (E x S x H numbers), so that a pair
        only adds up rows; gathering the edges of all paths before the product needs M x S x H.
        """
        steps = path.shape[1]
        matrices = self.edge_dis_encoder.weight.view(-1, self.heads, self.heads)[:steps]
        stepped = at_least_float32(torch.matmul(edges, matrices))  # (S, E, H)
        total = stepped.new_zeros(len(path), self.heads)
        for step in range(steps):
            pairs = (path[:, step] >= 0).nonzero().squeeze(1)
            rows = path[pairs, step] + shift[pairs]
            total = total.index_add(0, pairs, stepped[step][rows])
        return total


def zero_term(*modules: nn.Module) -> Tensor | float:
    """Zero, in whose graph every learning parameter of ``modules`` takes part.

    DDP waits for the gradient of every parameter in every step. A batch that gives a module
    nothing to do adds this instead of leaving its parameters out.
    """
    learning = [p for module in modules for p in module.parameters() if p.requires_grad]
    if not learning or not torch.is_grad_enabled():
        return 0.0
    return torch.stack([parameter.sum() for parameter in learning]).sum() * 0.0


def _conv_norm(x: Tensor, block: nn.Module) -> Tensor:
    """``norm(conv(x))``; fixed statistics are folded into the kernel, which saves a pass."""
    assert isinstance(block, nn.Sequential)
    conv, norm = block[0], block[1]
    assert isinstance(conv, nn.Conv1d | nn.Conv2d) and isinstance(norm, BatchNorm)
    if norm.uses_batch(x.numel() // max(x.shape[1], 1)):
        return norm(conv(x))
    scale, shift = norm.affine()
    weight = conv.weight * scale.view(-1, *[1] * (conv.weight.dim() - 1))
    convolve = functional.conv1d if conv.weight.dim() == 3 else functional.conv2d
    return convolve(x, weight, shift, padding=1)
