"""Where the weights are in people's trees, and what the other tensors are for."""

from typing import Any

import pytest
import torch

from brepfind.checkpoints.layout import survey, unwrapped

T = torch.ones(2)


def roles(tree: Any) -> dict[str, str]:
    return {entry.name: entry.role for entry in survey(tree).entries}


@pytest.mark.parametrize(
    ("tree", "where", "names"),
    [
        ({"a": T, "b.c": T}, (), {"a": "weights", "b.c": "weights"}),
        ({"model": {"w": T}, "step": 3}, ("model",), {"w": "weights"}),
        ({"model": {"w": T, "v": T}, "rng": T}, ("model",), {"w": "weights", "v": "weights"}),
        ({"gen": {"w": T}, "disc": {"w": T}}, (), {"gen.w": "weights", "disc.w": "weights"}),
        ({"a": {"b": {"w": T}}}, ("a", "b"), {"w": "weights"}),
        ({"a": T, "head": {"w": T}}, (), {"a": "weights", "head.w": "weights"}),
        ([T, T], (), {"0": "weights", "1": "weights"}),
        (T, (), {"": "weights"}),
    ],
)
def test_where_the_weights_are(tree: Any, where: tuple[str, ...], names: dict[str, str]) -> None:
    assert survey(tree).where == where
    found = {name: role for name, role in roles(tree).items() if role == "weights"}
    assert found == names


def test_roles_of_what_stands_beside() -> None:
    tree = {
        "state_dict": {"w": T, "layers.0.ema.w": T, "scaler": T, "model_ema.w": T},
        "optimizer_states": [{"state": {0: {"exp_avg": T}}, "param_groups": []}],
        "ema": {"w": T},
        "MixedPrecision": {"scale": T, "growth_factor": 2.0},
        "callbacks": {"best": T},
        "rng_state": T,
    }
    assert roles(tree) == {
        "w": "weights",
        "layers.0.ema.w": "weights",
        "scaler": "weights",
        "state_dict.model_ema.w": "ema",
        "optimizer_states.0.state.0.exp_avg": "optimizer",
        "ema.w": "ema",
        "MixedPrecision.scale": "scaler",
        "callbacks.best": "other",
        "rng_state": "other",
    }


def test_two_weights_of_one_name_are_not_merged() -> None:
    with pytest.raises(Exception, match=r"both be called 'a\.b'"):
        survey({"a": {"b": T}, "a.b": T})


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("module.a.w", "a.w"),
        ("module._orig_mod.a.w", "a.w"),
        ("_orig_mod.module.a.w", "a.w"),
        ("a._fsdp_wrapped_module.module.w", "a.module.w"),
        ("module", "module"),
    ],
)
def test_wrappers_leave_names(name: str, plain: str) -> None:
    assert unwrapped(name) == plain
