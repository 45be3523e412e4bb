"""Where a number first went bad: the step is run again under hooks.

The first module whose output is not finite while it runs is the culprit: inner modules finish
before the outer ones, and earlier ones before later ones. In backward it is the last module whose
output received a good gradient before one received a bad one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

# What is said where nothing bad was seen.
WELL = "the step ran well when it was run again"


def statistics(tensor: Tensor) -> dict[str, Any]:
    """What a person wants to know of a tensor, as plain data."""
    values = tensor.detach()
    facts: dict[str, Any] = {
        "shape": list(values.shape),
        "dtype": str(values.dtype).removeprefix("torch."),
    }
    if not values.is_floating_point() or not values.numel():
        return facts
    wide = values.double()
    finite = torch.isfinite(wide)
    good = wide[finite]
    facts |= {
        "nan": int(torch.isnan(wide).sum()),
        "inf": int(torch.isinf(wide).sum()),
        "min": float(good.min()) if len(good) else math.nan,
        "max": float(good.max()) if len(good) else math.nan,
        "rms": float(good.square().mean().sqrt()) if len(good) else math.nan,
    }
    if not finite.all():
        rows = (~finite).reshape(len(values), -1).any(1) if values.dim() else ~finite.reshape(1)
        facts["bad_rows"] = rows.nonzero().flatten()[:20].tolist()
    return facts


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The float tensors in a module's input or output."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from tensors_in(getattr(value, name))


class Trace:
    """What the hooks saw: the first bad output, and gradients in the order they arrived."""

    def __init__(self) -> None:
        self.first: dict[str, Any] | None = None
        self.first_minus: dict[str, Any] | None = None
        self.gradients: list[tuple[str, bool]] = []

    def forward_facts(self) -> dict[str, Any] | None:
        """The module whose output first held NaN or infinity, with its input and weights."""
        return self.first

    def minus_facts(self) -> dict[str, Any] | None:
        """The module whose output first held minus infinity and nothing worse. An attention bias
        does so by design, so it is a suspect only where there is no other.
        """
        return self.first_minus

    def backward_facts(self, gradients: Mapping[str, Tensor | None]) -> dict[str, Any]:
        """Between which modules the gradient went bad, and which parameters' gradients are.

        Args:
            gradients: of the parameters, by name.
        """
        good = ""
        for name, finite in self.gradients:
            if not finite:
                break
            good = name
        bad = next((name for name, finite in self.gradients if not finite), "")
        parameters = [
            name
            for name, gradient in gradients.items()
            if gradient is not None and not torch.isfinite(gradient).all()
        ]
        return {"module": bad, "after": good, "parameters": parameters[:20]}


@contextmanager
def traced(module: nn.Module) -> Iterator[Trace]:
    """Hooks on every module for the length of the block."""
    trace = Trace()
    handles = []

    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def look(child: nn.Module, inputs: Any, output: Any) -> None:
            for tensor in tensors_in(output):
                if trace.first is None and not torch.isfinite(tensor).all():
                    if (torch.isnan(tensor) | (tensor == math.inf)).any():
                        trace.first = _facts(name, child, inputs, output)
                    elif trace.first_minus is None:
                        trace.first_minus = _facts(name, child, inputs, output)
                if tensor.requires_grad:
                    # A copy of nothing: the hook runs when the gradient of this output arrives.
                    tensor.register_hook(
                        lambda gradient: trace.gradients.append(
                            (name, bool(torch.isfinite(gradient).all()))
                        )
                    )

        return look

    for name, child in module.named_modules():
        handles.append(child.register_forward_hook(hook(name or "the whole model")))
    try:
        yield trace
    finally:
        for handle in handles:
            handle.remove()


def _facts(name: str, module: nn.Module, inputs: Any, output: Any) -> dict[str, Any]:
    own = {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers())}
    # A module may work with its children's weights itself; the bad ones among them are told.
    below = {key: value for key, value in module.named_parameters() if not _finite(value)}
    weights = {key: value for key, value in own.items() if "." not in key or not _finite(value)}
    return {
        "module": name,
        "kind": type(module).__name__,
        "input": [statistics(tensor) for tensor in list(tensors_in(inputs))[:8]],
        "output": [statistics(tensor) for tensor in list(tensors_in(output))[:8]],
        "weights": {key: statistics(value) for key, value in {**weights, **below}.items()},
    }


def _finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def sentence(facts: dict[str, Any]) -> str:
    """What was found, in one sentence."""
    forward, backward = facts.get("forward"), facts.get("backward")
    if forward:
        bad = [key for key, value in forward["weights"].items() if _is_bad(value)]
        where = f"{forward['module']} ({forward['kind']})"
        if bad:
            return f"the weights of {where} are not finite: {', '.join(bad)}"
        if any(_is_bad(value) for value in forward["input"]):
            return f"{where} was given an input that is not finite"
        return f"its input and weights are finite, the output of {where} is the first that is not"
    if not facts.get("loss_finite", True):
        return "every module's output is finite; the loss itself is not"
    if backward and backward["module"]:
        after = f", after {backward['after']}" if backward["after"] else ""
        return f"the gradient first goes bad on its way into {backward['module']}{after}"
    if backward and backward["parameters"]:
        return f"the gradient of {backward['parameters'][0]} is the first that is not finite"
    return WELL


def _is_bad(facts: dict[str, Any]) -> bool:
    return bool(facts.get("nan", 0) or facts.get("inf", 0))
