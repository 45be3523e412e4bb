"""Dead layers: their output is constant over a probe batch while their input varies.

The batch is a fixed choice of validation parts and captions, run through both towers in eval mode
under hooks. A module whose own input is constant is not judged: the embedding of a flag that no
part sets, or of a token's type, is constant by design; the graph token and its virtual distance
have no input at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from brepfind.findings import Finding
from brepfind.graphs.batch import PartBatch
from brepfind.graphs.collate import collate
from brepfind.metrics.activations import UnitVitals, unit_findings, unit_vitals
from brepfind.models.dual import DualEncoder
from brepfind.models.norm import BatchNorm
from brepfind.training.data import Items, Pieces

_PARTS = 12
# Rows of a module kept for the verdict.
_ROWS = 2048
# Their units are along axis 1; those of all others along the last one.
_CHANNELS_FIRST = (nn.Conv1d, nn.Conv2d, BatchNorm)

Rows = NDArray[np.floating[Any]]


def probe(
    dual: DualEncoder, pieces: Pieces, items: Items, device: torch.device, *, grids: bool
) -> list[Finding]:
    """One finding for each module with weights that the batch reaches, inner ones first.

    Args:
        grids: read the parts' grids instead of what frozen CNNs gave, so that these are judged.
    """
    chosen = choose(items.twins, _PARTS)
    numbers = [int(items.numbers[n]) for n in chosen]
    texts = [int(items.captions[n][0]) for n in chosen]
    micro = pieces.micro(numbers, texts).to(device)
    parts = micro.parts
    if grids:
        parts = collate(*pieces.reader.read([pieces.ids[n] for n in numbers])).to(device)
    training = dual.training
    dual.eval()
    try:
        with torch.inference_mode(), watched(dual) as seen:
            dual.embed_parts(parts)
            dual.embed_texts(micro.hidden, micro.mask, micro.numbers)
            _scalars(dual, parts)
    finally:
        dual.train(training)
    return unit_findings(vital_signs(seen), prefix="train")


def choose(twins: NDArray[np.int64], most: int) -> list[int]:
    """Numbers of at most ``most`` items of different shape, spread over all of them."""
    _, first = np.unique(twins, return_index=True)
    first.sort()
    places = np.linspace(0, len(first) - 1, min(most, len(first))).round().astype(int)
    return [int(first[place]) for place in places]


def _scalars(dual: DualEncoder, batch: PartBatch) -> None:
    """Encoders of single numbers, whose weights are used without calling the module."""
    bias = dual.encoder.graph_attn_bias
    bias.angle_encoder(batch.angle[:, None] + 1)
    bias.centroid_distance_encoder(batch.distance[:, None])


@contextmanager
def watched(module: nn.Module) -> Iterator[Mapping[str, list[tuple[Rows, Rows]]]]:
    """What goes into and comes out of every module with weights, in the order they finish."""
    seen: dict[str, list[tuple[Rows, Rows]]] = {}

    def hook(name: str) -> Callable[..., None]:
        def look(child: nn.Module, given: Any, named: dict[str, Any], made: Any) -> None:
            into, out = _first([*given, *named.values()]), _first([made])
            if into is not None and out is not None:
                axis = 1 if isinstance(child, _CHANNELS_FIRST) else -1
                seen.setdefault(name, []).append((_rows(into, axis), _rows(out, axis)))

        return look

    handles = [
        child.register_forward_hook(hook(name), with_kwargs=True)
        for name, child in module.named_modules()
        if name and next(child.parameters(), None) is not None
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def vital_signs(seen: Mapping[str, Sequence[tuple[Rows, Rows]]]) -> list[UnitVitals]:
    """A module that was used several times is judged on all of its rows together."""
    return [
        unit_vitals(
            name,
            np.concatenate([given for given, _ in rows]),
            np.concatenate([made for _, made in rows]),
        )
        for name, rows in seen.items()
    ]


def _first(values: Sequence[Any]) -> Tensor | None:
    for value in values:
        if isinstance(value, Tensor) and value.dim():
            return value
        if isinstance(value, tuple) and (found := _first(value)) is not None:
            return found
    return None


def _rows(values: Tensor, axis: int) -> Rows:
    """(R, U), a row per token, face, edge, pixel or part; numbers of an embedding are one unit."""
    if not values.is_floating_point():
        values = values.flatten()[:, None]
    flat = values.movedim(axis, -1).reshape(-1, values.shape[axis])
    step = max(1, len(flat) // _ROWS)
    # A copy: a ReLU that works in place would change it after the hook.
    return flat[::step].float().cpu().numpy().copy()
