"""Tensors that share memory in a checkpoint."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import torch


def tied_groups(tensors: Mapping[str, torch.Tensor]) -> list[tuple[str, ...]]:
    """Groups of names that are views of one storage and overlap in it, in order."""
    spans: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided or tensor.is_meta or not tensor.numel():
            continue
        start = int(tensor.storage_offset()) * tensor.element_size()
        reach: int = sum(
            (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        )
        stop = start + (reach + 1) * tensor.element_size()
        spans[tensor.untyped_storage().data_ptr()].append((start, stop, name))
    groups = []
    for shared in spans.values():
        if len(shared) > 1:
            groups += _overlapping(sorted(shared))
    return groups


def _overlapping(spans: list[tuple[int, int, str]]) -> list[tuple[str, ...]]:
    groups: list[list[str]] = []
    reach = -1
    for start, stop, name in spans:
        if start < reach:
            groups[-1].append(name)
        else:
            groups.append([name])
        reach = max(reach, stop)
    return [tuple(group) for group in groups if len(group) > 1]
