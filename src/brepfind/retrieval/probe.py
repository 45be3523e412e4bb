"""The units of a dual encoder on a probe batch of parts and captions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from brepfind.graphs.collate import collate
from brepfind.graphs.dataset import PartReader
from brepfind.metrics.activations import UnitVitals, unit_vitals
from brepfind.models.dual import DualEncoder
from brepfind.models.numbers import sentence_numbers

# Modules with one matrix in and one out, a row per token, face, edge or part.
_KINDS = (nn.Linear, nn.LayerNorm)
# Rows of a module kept for the verdict; parts of a thousand faces have a million face pairs.
_ROWS = 4096


@torch.inference_mode()
def probe_units(
    model: DualEncoder, reader: PartReader, ids: Sequence[str], captions: Sequence[str]
) -> list[UnitVitals]:
    """Vital signs of every linear and norm layer that the probe batch reaches.

    A layer that is used several times is judged on all of its rows together.
    """
    seen: dict[str, list[tuple[NDArray[Any], NDArray[Any]]]] = {}
    training = model.training
    model.eval()
    hooks = [
        module.register_forward_hook(_keep(seen.setdefault(name, [])))
        for name, module in model.named_modules()
        if isinstance(module, _KINDS)
    ]
    device = model.logit_scale.device
    try:
        model.embed_parts(collate(*reader.read(ids)).to(device))
        tokens = model.text.tokenize(captions)
        mask = tokens.mask.to(device)
        tokens = tokens._replace(ids=tokens.ids.to(device), mask=mask)
        model.embed_texts(model.text.lower(tokens), mask, sentence_numbers(captions).to(device))
    finally:
        for hook in hooks:
            hook.remove()
        model.train(training)
    return [
        unit_vitals(
            name,
            np.concatenate([given for given, _ in rows]),
            np.concatenate([made for _, made in rows]),
            gated=name.endswith("projection.hidden"),
        )
        for name, rows in seen.items()
        if rows
    ]


def _keep(rows: list[tuple[NDArray[Any], NDArray[Any]]]) -> Callable[..., None]:
    def hook(module: nn.Module, given: tuple[Tensor, ...], made: Tensor) -> None:
        rows.append((_matrix(given[0]), _matrix(made)))

    return hook


def _matrix(values: Tensor) -> NDArray[Any]:
    flat = values.reshape(-1, values.shape[-1])
    step = max(1, len(flat) // _ROWS)
    return flat[::step].float().cpu().numpy()
