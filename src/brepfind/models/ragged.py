"""Parts of different size side by side without padding them to the largest.

Everything that works on one face, edge or face pair at a time runs on flat tensors, part after
part, and pads nothing. Only attention looks across a part. For it the batch is cut into groups of
similar face counts, each a small padded block.

Shape letters: B parts, F faces, T = F + B tokens (each part's graph token before its faces),
P face pairs, b parts of one group, L its sequence length (most faces + 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

# What starting another group costs, in attention cells of work that padding would waste instead.
# On a CPU a group costs some dozens of small calls per layer; on a GPU each is a kernel launch.
GROUP_COST_CPU = 1_500
GROUP_COST_GPU = 150_000


def cut_groups(sizes: Sequence[int], group_cost: int) -> list[list[int]]:
    """Cut parts into groups of similar size so that padding and group count are cheap together.

    A group of ``b`` parts whose longest sequence is ``L`` costs ``b * L**2 + group_cost``; the sum
    is the least possible for groups that are runs of the sorted sizes. Parts of equal size always
    stay together, so the work depends on the number of distinct sizes.

    Args:
        sizes: sequence length of each part.
        group_cost: see above, in cells.

    Returns:
        Indices into ``sizes``, group by group, smallest sizes first.
    """
    order = sorted(range(len(sizes)), key=lambda part: sizes[part])
    runs = [(size, list(parts)) for size, parts in groupby(order, key=lambda part: sizes[part])]
    best = [0] + [0] * len(runs)
    first_of_last = [0] * (len(runs) + 1)
    for end in range(1, len(runs) + 1):
        longest = runs[end - 1][0]
        count = 0
        options = []
        for start in range(end - 1, -1, -1):
            count += len(runs[start][1])
            options.append((best[start] + count * longest**2 + group_cost, start))
        best[end], first_of_last[end] = min(options)
    groups: list[list[int]] = []
    end = len(runs)
    while end > 0:
        start = first_of_last[end]
        groups.append([part for _, parts in runs[start:end] for part in parts])
        end = start
    return groups[::-1]


@dataclass(frozen=True, slots=True)
class Group:
    """One padded block.

    Attributes:
        parts: int64 (b,), which parts of the batch.
        lengths: int64 (b,), tokens of each.
        tokens: int64 (b, L), rows of the flat tokens; places past a part's end repeat its token 0.
    """

    parts: Tensor
    lengths: Tensor
    tokens: Tensor


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything of a batch is.

    Attributes:
        counts: faces of each part, on the host.
        face_starts, edge_starts, pair_starts: int64 (B,), where each part's rows begin.
        token_rows: int64 (B,), rows of the graph tokens among the flat tokens.
        face_rows: int64 (F,), rows of the faces among the flat tokens.
        positions: int64 (T,), place in the sequence; the graph token's is 0.
        part_of_edge, part_of_pair: int64 (E,), (P,).
        groups: the padded blocks; every part is in exactly one.
        unpad: int64 (T,), for each flat token its row among all groups' places, end to end.
    """

    counts: tuple[int, ...]
    face_starts: Tensor
    edge_starts: Tensor
    pair_starts: Tensor
    token_rows: Tensor
    face_rows: Tensor
    positions: Tensor
    part_of_edge: Tensor
    part_of_pair: Tensor
    groups: tuple[Group, ...]
    unpad: Tensor

    @classmethod
    def of(cls, face_counts: Tensor, edge_counts: Tensor) -> Layout:
        """Lay out a batch.

        Args:
            face_counts: int64 (B,), each at least 1.
            edge_counts: int64 (B,).
        """
        device = face_counts.device
        counts = tuple(face_counts.tolist())
        face_starts = _starts(face_counts)
        token_rows = face_starts + torch.arange(len(counts), device=device)
        lengths = face_counts + 1
        total = sum(counts) + len(counts)
        part_of_token = _owners(lengths, total)
        positions = torch.arange(total, device=device) - token_rows[part_of_token]
        cost = GROUP_COST_GPU if device.type == "cuda" else GROUP_COST_CPU
        groups = []
        unpad = torch.empty(total, dtype=torch.int64, device=device)
        begin = 0
        for indices in cut_groups([count + 1 for count in counts], cost):
            parts = torch.tensor(indices, device=device)
            longest = max(counts[index] for index in indices) + 1
            places = torch.arange(longest, device=device)
            inside = places < lengths[parts, None]
            tokens = token_rows[parts, None] + places * inside
            places_here = begin + torch.arange(tokens.numel(), device=device).view_as(tokens)
            # Places past an end write to their part's token 0; the real place 0 must win, so
            # only real places are written.
            unpad[tokens[inside]] = places_here[inside]
            begin += tokens.numel()
            groups.append(Group(parts, lengths[parts], tokens))
        return cls(
            counts=counts,
            face_starts=face_starts,
            edge_starts=_starts(edge_counts),
            pair_starts=_starts(face_counts * face_counts),
            token_rows=token_rows,
            face_rows=(positions > 0).nonzero().squeeze(1),
            positions=positions,
            part_of_edge=_owners(edge_counts),
            part_of_pair=_owners(face_counts * face_counts, sum(count**2 for count in counts)),
            groups=tuple(groups),
            unpad=unpad,
        )

    def with_token(self, token: Tensor, faces: Tensor) -> Tensor:
        """(1, dim) before each part's rows of (F, dim): (T, dim)."""
        rows = torch.cat((token, faces))
        source = torch.zeros_like(self.positions)
        source[self.face_rows] = torch.arange(1, len(faces) + 1, device=faces.device)
        return rows[source]

    def pad_bias(self, pairs: Tensor, token: Tensor, row_of_pair: Tensor) -> list[Tensor]:
        """The bias of each group's cells from that of its live face pairs.

        Args:
            pairs: (M, H), one row per live pair.
            token: (1, H), the bias between a graph token and anything of its part.
            row_of_pair: int64 (P,), row of ``pairs``, or M + 1 for a pair that is not live.

        Returns:
            (b, H, L, L) per group. Minus infinity for pairs that are not live and keys past the
            end; queries past the end see the rest of the part, so that no softmax is empty.
        """
        at_token = len(pairs)
        blocked = pairs.new_full((1, pairs.shape[1]), float("-inf"))
        table = torch.cat((pairs, token.to(pairs.dtype), blocked))
        padded = []
        for group in self.groups:
            places = torch.arange(group.tokens.shape[1], device=pairs.device)
            lengths = group.lengths[:, None, None]
            query, key = places[:, None], places[None, :]
            real = (query > 0) & (key > 0) & (query < lengths) & (key < lengths)
            pair = (query - 1) * (lengths - 1) + key - 1
            pair = (pair + self.pair_starts[group.parts, None, None]).masked_fill(~real, 0)
            rows = torch.where(real, row_of_pair[pair], at_token)
            rows = torch.where(key < lengths, rows, at_token + 1)
            padded.append(table[rows].permute(0, 3, 1, 2).contiguous())
        return padded


def _owners(counts: Tensor, total: int | None = None) -> Tensor:
    """Which part each row belongs to; ``total`` spares a GPU a look at ``counts``."""
    parts = torch.arange(len(counts), device=counts.device)
    return torch.repeat_interleave(parts, counts, output_size=total)


def _starts(counts: Tensor) -> Tensor:
    return torch.cumsum(counts, 0) - counts
