"""BRepFormer written down plainly, as the yardstick of ``make bench-encoder``.

A transcription of what the encoder computes, as a careful person would first write it in torch:
vectorised, no loop over parts, pairs or path steps; every part padded to the largest of the batch;
torch's own layers; the edges of all paths gathered and then multiplied by the matrices of their
steps. It shares no code with ``brepfind.models``: only the names of the parameters are the same, so
that one set of weights fits both and gradients can be compared by name.

Shape letters: B parts, N most faces of a part, F faces of all parts, E directed edges of all parts,
H heads, S path steps.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from brepfind.graphs.batch import PartBatch

STEPS = 16
MAX_HOPS = 32


def _conv(dims: int, before: int, after: int) -> nn.Sequential:
    conv, norm = ((nn.Conv1d, nn.BatchNorm1d), (nn.Conv2d, nn.BatchNorm2d))[dims - 1]
    return nn.Sequential(conv(before, after, 3, padding=1, bias=False), norm(after), nn.LeakyReLU())


class CNN(nn.Module):
    def __init__(self, dims: int, channels: int, width: int) -> None:
        super().__init__()
        self.conv1 = _conv(dims, channels, 64)
        self.conv2 = _conv(dims, 64, 128)
        self.conv3 = _conv(dims, 128, 256)
        self.fc = nn.Sequential(nn.Linear(256, width, bias=False), nn.BatchNorm1d(width))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv3(self.conv2(self.conv1(x)))
        return self.fc(x.flatten(2).mean(2))


class TwoLayer(nn.Module):
    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.linear1 = nn.Linear(inputs, width, bias=False)
        self.bn1 = nn.BatchNorm1d(width)
        self.linear2 = nn.Linear(width, width, bias=False)
        self.bn2 = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.linear1(x)))
        return torch.relu(self.bn2(self.linear2(x)))


class FaceFeatures(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.surf_encoder = CNN(2, 7, dim // 2)
        self.face_area_encoder = TwoLayer(1, dim // 8)
        self.face_type_encoder = TwoLayer(9, dim // 8)
        self.face_centroid_encoder = TwoLayer(3, dim // 8)
        self.face_rational_encoder = nn.Embedding(2, dim // 8)
        self.graph_token = nn.Embedding(1, dim)

    def forward(self, batch: PartBatch) -> Tensor:
        surface = batch.face_surface
        if surface is None:
            surface = self.surf_encoder(batch.face_grid)
        area = self.face_area_encoder(batch.face_area.unsqueeze(1))
        kind = self.face_type_encoder(batch.face_type)
        centroid = self.face_centroid_encoder(batch.face_centroid)
        rational = self.face_rational_encoder(batch.face_rational)
        return torch.cat([surface, area, kind, centroid, rational], dim=1)


class MLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(width, 64), nn.Linear(64, width)])
        self.batch_norms = nn.ModuleList([nn.BatchNorm1d(64)])

    def forward(self, x: Tensor) -> Tensor:
        return self.linears[1](torch.relu(self.batch_norms[0](self.linears[0](x))))


class NodeCat(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.proj = nn.ModuleDict({"linear": nn.Linear(dim, heads)})
        self.mlp = MLP(heads)
        self.batchnorm = nn.BatchNorm1d(heads)

    def forward(self, edges: Tensor, faces: Tensor, src: Tensor, dst: Tensor) -> Tensor:
        projected = self.proj["linear"](faces)
        h = self.mlp((1 + self.eps) * edges + projected[src] + projected[dst])
        return functional.leaky_relu(self.batchnorm(h))


class Bias(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.shortest_distance_encoder = nn.Embedding(64, heads, padding_idx=0)
        self.graph_token_virtual_distance = nn.Embedding(1, heads)
        self.angle_encoder = TwoLayer(1, heads)
        self.centroid_distance_encoder = TwoLayer(1, heads)
        self.curv_encoder = CNN(1, 12, heads)
        self.edge_type_encoder = TwoLayer(11, heads)
        self.edge_length_encoder = TwoLayer(1, heads)
        self.edge_convexity_encoder = TwoLayer(3, heads)
        self.edge_dis_encoder = nn.Embedding(64 * heads * heads, 1)
        self.node_cat = NodeCat(dim, heads)

    def forward(self, batch: PartBatch, faces: Tensor, padded: "Padded") -> Tensor:
        hops = padded.hops
        bias = self.shortest_distance_encoder((hops + 1).clamp(0, 63))
        bias = bias + self._scalar(self.angle_encoder, padded.angle)
        bias = bias + self._scalar(self.centroid_distance_encoder, padded.distance)
        edges = torch.cat([self._edges(batch, faces), faces.new_zeros(1, self.heads)])
        gathered = edges[padded.path].flatten(0, 2)  # (B * N * N, S, H)
        matrices = self.edge_dis_encoder.weight.view(64, self.heads, self.heads)[:STEPS]
        along = torch.bmm(gathered.transpose(0, 1), matrices).sum(0)
        bias = bias + along.view_as(bias) / hops.clamp(1, STEPS).unsqueeze(-1)
        bias = bias.masked_fill(padded.blocked.unsqueeze(-1), float("-inf"))
        token = self.graph_token_virtual_distance.weight
        size = hops.shape[1] + 1
        full = bias.new_zeros(len(hops), size, size, self.heads)
        full[:, 1:, 1:] = bias
        full[:, 0, :] = token
        full[:, 1:, 0] = token
        full = full.masked_fill(padded.past_end[:, None, :, None], float("-inf"))
        return full.permute(0, 3, 1, 2)

    def _scalar(self, encoder: TwoLayer, x: Tensor) -> Tensor:
        return encoder(x.reshape(-1, 1)).view(*x.shape, self.heads)

    def _edges(self, batch: PartBatch, faces: Tensor) -> Tensor:
        curve = batch.edge_curve
        if curve is None:
            curve = self.curv_encoder(batch.edge_grid)
        edges = (
            curve
            + self.edge_type_encoder(batch.edge_type)
            + self.edge_length_encoder(batch.edge_length.unsqueeze(1))
            + self.edge_convexity_encoder(batch.edge_convexity)
        )
        starts = batch.face_counts.cumsum(0) - batch.face_counts
        shift = torch.repeat_interleave(starts, batch.edge_counts)
        return self.node_cat(edges, faces, batch.edge_src + shift, batch.edge_dst + shift)


class Padded:
    """The pairwise fields as (B, N, N), which the authors' loader hands to their model."""

    def __init__(self, batch: PartBatch) -> None:
        counts, most = batch.face_counts, int(batch.face_counts.max())
        places = torch.arange(most)
        self.inside = places < counts[:, None]  # (B, N)
        cells = self.inside[:, :, None] & self.inside[:, None, :]
        self.hops = torch.full(cells.shape, -1).masked_scatter(cells, batch.hops)
        self.angle = torch.zeros(cells.shape).masked_scatter(cells, batch.angle + 1)
        self.distance = torch.zeros(cells.shape).masked_scatter(cells, batch.distance)
        out_of_reach = (self.hops < 0) | (self.hops >= MAX_HOPS)
        self.blocked = cells & out_of_reach
        self.past_end = functional.pad(~self.inside, (1, 0))  # (B, N + 1)
        # Rows of the edge features of all parts; the row after the last is zeros.
        starts = batch.edge_counts.cumsum(0) - batch.edge_counts
        shift = torch.repeat_interleave(starts, counts**2)
        zeros = len(batch.edge_src)
        rows = torch.where(batch.path < 0, zeros, batch.path + shift[:, None])
        rows = functional.pad(rows, (0, STEPS - rows.shape[1]), value=zeros)
        self.path = torch.full((*cells.shape, STEPS), zeros)
        self.path[cells] = rows


class FeedForward(nn.Module):
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x: (B, L, heads, d); tables: (L, 1, d / 2)."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, kv_heads * self.head_dim)
        self.wv = nn.Linear(dim, kv_heads * self.head_dim)
        self.wo = nn.Linear(dim, dim)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, bias: Tensor) -> Tensor:
        b, length, dim = x.shape
        q = _rotate(self.wq(x).view(b, length, self.heads, self.head_dim), cos, sin)
        k = _rotate(self.wk(x).view(b, length, self.kv_heads, self.head_dim), cos, sin)
        v = self.wv(x).view(b, length, self.kv_heads, self.head_dim)
        repeats = self.heads // self.kv_heads
        k = k.repeat_interleave(repeats, dim=2)
        v = v.repeat_interleave(repeats, dim=2)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(self.head_dim) + bias
        out = torch.softmax(scores, dim=-1) @ v
        return self.wo(out.transpose(1, 2).reshape(b, length, dim))


class Layer(nn.Module):
    def __init__(self, dim: int, heads: int, kv_heads: int, hidden: int) -> None:
        super().__init__()
        self.register_buffer("freqs_cos", torch.empty(4096, dim // heads // 2))
        self.register_buffer("freqs_sin", torch.empty(4096, dim // heads // 2))
        self.feed_forward = FeedForward(dim, hidden)
        self.self_attn = Attention(dim, heads, kv_heads)
        self.self_attn_layer_norm = nn.RMSNorm(dim, eps=1e-5)
        self.final_layer_norm = nn.RMSNorm(dim, eps=1e-5)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        cos, sin = (t[: x.shape[1], None] for t in (self.freqs_cos, self.freqs_sin))
        x = x + self.self_attn(self.self_attn_layer_norm(x), cos, sin, bias)
        return x + self.feed_forward(self.feed_forward(self.final_layer_norm(x)))


class PlainEncoder(nn.Module):
    """Eval mode only: dropout, which does nothing there, is left out."""

    def __init__(self, dim: int, layers: int, heads: int, kv_heads: int, hidden: int) -> None:
        super().__init__()
        self.graph_node_feature = FaceFeatures(dim)
        self.graph_attn_bias = Bias(dim, heads)
        self.emb_layer_norm = nn.LayerNorm(dim)
        self.layers = nn.ModuleList([Layer(dim, heads, kv_heads, hidden) for _ in range(layers)])
        self.eval()

    def forward(self, batch: PartBatch, padded: Padded) -> tuple[Tensor, Tensor]:
        """(B, dim) graph embeddings and (F, dim) face tokens."""
        faces = self.graph_node_feature(batch)
        bias = self.graph_attn_bias(batch, faces, padded)
        x = faces.new_zeros(*padded.inside.shape, faces.shape[1])
        x[padded.inside] = faces
        token = self.graph_node_feature.graph_token.weight.expand(len(x), 1, -1)
        x = self.emb_layer_norm(torch.cat([token, x], dim=1))
        for layer in self.layers:
            x = layer(x, bias)
        return x[:, 0], x[:, 1:][padded.inside]
