"""Parts of different size side by side without padding them to the largest.

A batch is cut into groups of similar face counts. Tokens of all groups stand end to end in one flat
tensor, each part padded to the longest of its group; whatever works on one token at a time runs on
all of them at once, and attention runs group by group on views, so that a 400-face part does not
pad sixty small ones. Everything that works on faces, edges or pairs pads nothing at all.

Shape letters: B parts, F faces, P face pairs, b parts of one group, L its sequence length (most
faces + 1), T tokens of all groups with padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

# What things cost, in attention cells: a token's way through the linear layers, measured on a CPU
# at the paper's size; and another group, some dozens of small calls per layer, which on a GPU are
# kernel launches.
TOKEN_COST = 170
GROUP_COST_CPU = 600
GROUP_COST_GPU = 150_000


def cut_groups(sizes: Sequence[int], group_cost: int, token_cost: int = 0) -> list[list[int]]:
    """Cut parts into groups of similar size so that padding and group count are cheap together.

    A group of ``b`` parts whose longest sequence is ``L`` costs ``b * L * (L + token_cost) +
    group_cost``; the sum is the least possible for groups that are runs of the sorted sizes. Parts
    of equal size always stay together, so the work depends on the number of distinct sizes.

    Args:
        sizes: sequence length of each part.
        group_cost, token_cost: see above, in cells.

    Returns:
        Indices into ``sizes``, group by group, smallest sizes first.
    """
    order = sorted(range(len(sizes)), key=lambda part: sizes[part])
    runs = [(size, list(parts)) for size, parts in groupby(order, key=lambda part: sizes[part])]
    best = [0] + [0] * len(runs)
    first_of_last = [0] * (len(runs) + 1)
    for end in range(1, len(runs) + 1):
        longest = runs[end - 1][0]
        each = longest * (longest + token_cost)
        count = 0
        options = []
        for start in range(end - 1, -1, -1):
            count += len(runs[start][1])
            options.append((best[start] + count * each + group_cost, start))
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
    """One padded block of parts, as numbers on the host.

    Attributes:
        counts: faces of each of its parts.
        pair_slices: per part, its first row among all face pairs, and its faces.
        length: L.
        start: its first row among the flat tokens; it has ``len(counts) * length``.
    """

    counts: tuple[int, ...]
    pair_slices: tuple[tuple[int, int], ...]
    length: int
    start: int

    @property
    def end(self) -> int:
        """One past its last row among the flat tokens."""
        return self.start + len(self.counts) * self.length


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything of a batch is.

    Attributes:
        counts: faces of each part, on the host.
        groups: every part is in exactly one.
        token_rows: int64 (B,), rows of the graph tokens among the flat tokens.
        face_rows: int64 (F,), rows of the faces among the flat tokens.
        sources: int64 (T,), what stands in each flat token: 0 the graph token (and padding), f + 1
            face f.
        positions: int64 (T,), place in the sequence; the graph token's is 0.
    """

    counts: tuple[int, ...]
    groups: tuple[Group, ...]
    token_rows: Tensor
    face_rows: Tensor
    sources: Tensor
    positions: Tensor

    @classmethod
    def of(cls, face_counts: Tensor) -> Layout:
        """Lay out a batch. On a GPU this waits for the counts, once.

        Args:
            face_counts: int64 (B,), each at least 1.
        """
        device = face_counts.device
        counts: tuple[int, ...] = tuple(face_counts.tolist())
        cost = GROUP_COST_GPU if device.type == "cuda" else GROUP_COST_CPU
        pair_starts = _starts([count**2 for count in counts])
        groups, begin = [], 0
        token_rows = [0] * len(counts)
        for parts in cut_groups([count + 1 for count in counts], cost, TOKEN_COST):
            length = max(counts[part] for part in parts) + 1
            for place, part in enumerate(parts):
                token_rows[part] = begin + place * length
            group = Group(
                counts=tuple(counts[part] for part in parts),
                pair_slices=tuple((pair_starts[part], counts[part]) for part in parts),
                length=length,
                start=begin,
            )
            groups.append(group)
            begin = group.end
        places = [
            torch.arange(group.length).expand(len(group.counts), -1).flatten() for group in groups
        ]
        of_face = torch.repeat_interleave(torch.tensor(counts))
        in_part = torch.arange(sum(counts)) - torch.tensor(_starts(counts))[of_face]
        face_rows = torch.tensor(token_rows)[of_face] + in_part + 1
        sources = torch.zeros(begin, dtype=torch.int64)
        sources[face_rows] = torch.arange(1, sum(counts) + 1)
        return cls(
            counts=counts,
            groups=tuple(groups),
            token_rows=torch.tensor(token_rows).to(device),
            face_rows=face_rows.to(device),
            sources=sources.to(device),
            positions=torch.cat(places).to(device),
        )

    def with_token(self, token: Tensor, faces: Tensor) -> Tensor:
        """Graph token (1, dim) and faces (F, dim) as flat tokens (T, dim)."""
        return torch.cat((token, faces))[self.sources]


def starts_of(counts: Tensor) -> Tensor:
    """Where each part's rows begin, int64 (B,)."""
    return torch.cumsum(counts, 0) - counts


def owners_of(counts: Tensor, total: int) -> Tensor:
    """Which part each row belongs to, int64 (total,)."""
    parts = torch.arange(len(counts), device=counts.device)
    return torch.repeat_interleave(parts, counts, output_size=total)


def _starts(counts: Sequence[int]) -> list[int]:
    starts, total = [], 0
    for count in counts:
        starts.append(total)
        total += count
    return starts
