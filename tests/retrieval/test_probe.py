"""The units of a real, tiny dual encoder."""

import copy

import torch

from brepfind.metrics.activations import unit_findings
from brepfind.retrieval.probe import probe_units


def probed(dual, world):
    units = probe_units(dual, world.reader, world.ids[:6], ["a plate", "shaft 3 mm"])
    return {one.name: one for one in units}


def test_a_new_model_has_no_dead_module(dual, world):
    units = probed(dual, world)
    assert {"part_projection.hidden", "text_projection.out"} <= set(units)
    assert units["part_projection.hidden"].judged
    assert not [f.name for f in unit_findings(list(units.values())) if f.verdict == "failed"]
    assert not any(module._forward_hooks for module in dual.modules())


def test_dead_and_shut_units_are_seen(dual, world):
    broken = copy.deepcopy(dual)
    with torch.no_grad():
        broken.part_projection.out.weight.zero_()
        broken.text_projection.hidden.bias[:8] = -100.0
    units = probed(broken, world)
    assert units["part_projection.out"].dead == 1.0
    assert units["text_projection.hidden"].shut == 0.5
    failed = [f.name for f in unit_findings(list(units.values())) if f.verdict == "failed"]
    assert failed == ["health.units.part_projection.out"]


def test_a_nan_weight_is_seen_where_it_acts(dual, world):
    broken = copy.deepcopy(dual)
    with torch.no_grad():
        broken.part_projection.hidden.weight[0, 0] = float("nan")
    units = probed(broken, world)
    assert units["part_projection.hidden"].nonfinite == 1 / 16
    assert units["part_projection.out"].nonfinite == 1.0
    assert units["text_projection.out"].nonfinite == 0.0
