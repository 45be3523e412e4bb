"""Dead layers are named; what is constant by design is not taken for one."""

import numpy as np
import pytest
import torch
from torch import nn

from brepfind.metrics.activations import unit_findings
from brepfind.training.dead import choose, vital_signs, watched
from tests.ranks import run_ranks
from tests.training.runs import codes, reason
from tests.training.tiny import make_job


def failed(model: nn.Module, *inputs: torch.Tensor) -> list[str]:
    with torch.inference_mode(), watched(model) as seen:
        model(*inputs)
    found = unit_findings(vital_signs(seen), prefix="train")
    return [f.name.removeprefix("train.units.") for f in found if f.verdict == "failed"]


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.GELU()))


def test_a_layer_whose_weights_are_zero_is_dead_and_what_follows_it_is_not_blamed() -> None:
    dead = model()
    dead[0].weight.data.zero_()
    assert failed(dead, torch.randn(8, 3)) == ["0"]


def test_units_that_are_shut_by_their_bias_are_dead_after_the_activation() -> None:
    dead = model()
    dead[2][0].bias.data.fill_(-1e9)  # GELU gives zero for every row
    assert failed(dead, torch.randn(8, 3)) == ["2.0", "2"]


def test_a_well_model_has_no_dead_layer_and_a_constant_input_none_either() -> None:
    assert failed(model(), torch.randn(8, 3)) == []
    assert failed(model(), torch.ones(8, 3)) == []


def test_an_embedding_of_a_flag_that_nobody_sets_is_constant_by_design() -> None:
    flags = nn.Sequential(nn.Embedding(2, 4))
    assert failed(flags, torch.zeros(8, dtype=torch.int64)) == []
    flags[0].weight.data.fill_(0.5)  # the same for both values of the flag
    assert failed(flags, torch.arange(8) % 2) == ["0"]


def test_channels_of_a_convolution_are_its_units() -> None:
    torch.manual_seed(0)
    conv = nn.Sequential(nn.Conv2d(2, 3, 1))
    conv[0].weight.data.zero_()  # each channel is its own bias everywhere
    assert failed(conv, torch.randn(4, 2, 5, 5)) == ["0"]


def test_the_probe_takes_parts_of_different_shape_spread_over_all() -> None:
    twins = np.array([0, 0, 1, 2, 2, 3, 4])
    assert choose(twins, 3) == [0, 3, 6]
    assert choose(twins, 20) == [0, 2, 3, 5, 6]


def _starts_dead(job: str) -> None:
    """The output of an attention has no weights when training begins."""
    from brepfind.training import __main__ as command

    def prepare(*args):
        prepared = prepared_well(*args)
        prepared.dual.encoder.layers[1].self_attn.wo.weight.data.zero_()
        return prepared

    prepared_well, command.prepare = command.prepare, prepare
    raise SystemExit(command.main([job]))


def _dies_later(job: str) -> None:
    """A layer of the text tower loses its weights in every step."""
    from brepfind.training import step
    from brepfind.training.__main__ import main

    def run(self, *args, **kwargs):
        report = ran(self, *args, **kwargs)
        self.module.dual.text_projection.hidden.weight.data.zero_()
        return report

    ran, step.GuardedStep.run = step.GuardedStep.run, run
    raise SystemExit(main([job]))


@pytest.mark.parametrize(
    ("broken", "world", "layer"),
    [
        (_starts_dead, 2, "encoder.layers.1.self_attn.wo"),
        (_dies_later, 1, "text_projection.hidden"),
    ],
)
def test_a_dead_layer_stops_the_run_and_is_named(inputs, tmp_path, broken, world, layer) -> None:
    make_job(inputs, tmp_path, processes=world).write(tmp_path / "job.json")
    assert codes(run_ranks(broken, world, str(tmp_path / "job.json"))) == [1] * world
    why = reason(tmp_path)
    assert f"train.units.{layer} is 1, asked is <= 0.5" in why["reason"]
    assert "every unit is constant while the input varies" in why["reason"]
    assert not (tmp_path / "out").exists()
