"""A part's arrays and pairwise matrices by id, for loaders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from brepfind.cad.arrays import PartArrays
from brepfind.graphs.pairwise import AngleRule, Pairwise
from brepfind.graphs.pairwise_cache import PairwiseCache
from brepfind.graphs.store import GraphStore


class PartReader:
    """Reads parts lazily; cheap to pickle, so every loader worker can hold one.

    Args:
        store: the graph store, or its folder.
        cache: the pairwise cache, or its folder (read by ``angle_rule`` then).
        keep: how many parts to keep in memory; 0 keeps none. Parts are kept as they are first
            read and not replaced: an epoch reads each once, so the latest is the least useful.
    """

    def __init__(
        self,
        store: GraphStore | Path,
        cache: PairwiseCache | Path,
        *,
        angle_rule: AngleRule = "inside",
        keep: int = 0,
    ) -> None:
        self.store = GraphStore(store) if isinstance(store, Path) else store
        self.cache = PairwiseCache(cache, angle_rule) if isinstance(cache, Path) else cache
        self._keep = keep
        self._kept: dict[str, tuple[PartArrays, Pairwise]] = {}

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_kept": {}}

    def __getitem__(self, model_id: str) -> tuple[PartArrays, Pairwise]:
        found = self._kept.get(model_id)
        if found is None:
            arrays = self.store.load(model_id)
            found = arrays, self.cache.get(arrays, self.store.content(model_id))
            if len(self._kept) < self._keep:
                self._kept[model_id] = found
        return found

    def read(self, ids: Sequence[str]) -> tuple[list[PartArrays], list[Pairwise]]:
        """Arrays and matrices of several parts, in the order of ``ids``: what collate takes."""
        found = [self[model_id] for model_id in ids]
        return [arrays for arrays, _ in found], [pairs for _, pairs in found]
