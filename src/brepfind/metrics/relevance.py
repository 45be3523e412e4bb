"""Which items answer which query, as a sparse table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Relevance:
    """The relevant items of each query.

    Attributes:
        starts: int64 (Q + 1,); the items of query q are ``items[starts[q]:starts[q + 1]]``.
        items: int64, ascending and without repeats within a query.
        n_items: the number of items in the gallery.

    A query may have no relevant item; it has no rank then, and is counted apart.
    """

    starts: NDArray[np.int64]
    items: NDArray[np.int64]
    n_items: int

    @classmethod
    def from_pairs(
        cls, queries: NDArray[np.int64], items: NDArray[np.int64], n_queries: int, n_items: int
    ) -> Relevance:
        """From pairs (query, item) in any order; a pair given twice counts once."""
        queries, items = np.asarray(queries, np.int64), np.asarray(items, np.int64)
        if queries.shape != items.shape or queries.ndim != 1:
            raise ValueError(f"pairs do not match: {queries.shape} queries, {items.shape} items")
        for name, index, limit in (("query", queries, n_queries), ("item", items, n_items)):
            if len(index) and not (index.min() >= 0 and index.max() < limit):
                raise ValueError(f"{name} index outside 0..{limit - 1}")
        keys = np.unique(queries * np.int64(max(n_items, 1)) + items)
        rows = keys // max(n_items, 1)
        starts = np.zeros(n_queries + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=n_queries), out=starts[1:])
        return cls(starts, keys % max(n_items, 1), n_items)

    @classmethod
    def from_groups(
        cls, query_groups: NDArray[np.int64], item_groups: NDArray[np.int64]
    ) -> Relevance:
        """Query and item belong together if their groups are equal (twins share a group)."""
        item_groups = np.asarray(item_groups, np.int64)
        return cls.from_group_sets(
            [(int(group),) for group in np.asarray(query_groups, np.int64)], item_groups
        )

    @classmethod
    def from_group_sets(
        cls, query_groups: Sequence[Sequence[int]], item_groups: NDArray[np.int64]
    ) -> Relevance:
        """Every query names the groups that answer it; an item answers if its group is named."""
        order = np.argsort(item_groups, kind="stable")
        ordered = item_groups[order]
        counts = [len(groups) for groups in query_groups]
        asked = np.array([g for groups in query_groups for g in groups], np.int64)
        first = np.searchsorted(ordered, asked, "left")
        sizes = np.searchsorted(ordered, asked, "right") - first
        queries = np.repeat(np.repeat(np.arange(len(counts)), counts), sizes)
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        items = order[np.repeat(first, sizes) + within]
        return cls.from_pairs(queries, items, len(counts), len(item_groups))

    @property
    def n_queries(self) -> int:
        """The number of queries."""
        return len(self.starts) - 1

    @property
    def counts(self) -> NDArray[np.int64]:
        """int64 (Q,), the number of relevant items of each query."""
        return np.diff(self.starts)

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Every pair (query, item), ordered by query."""
        return np.repeat(np.arange(self.n_queries), self.counts), self.items

    def transpose(self) -> Relevance:
        """The queries that each item answers: the same table for the other direction."""
        queries, items = self.pairs()
        return Relevance.from_pairs(items, queries, self.n_items, self.n_queries)

    def select(self, queries: NDArray[np.int64]) -> Relevance:
        """The table of some of the queries, in the order given."""
        sizes = self.counts[queries]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
        return Relevance(
            starts, self.items[np.repeat(self.starts[queries], sizes) + within], self.n_items
        )
