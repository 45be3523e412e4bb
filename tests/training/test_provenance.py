import math
import re

import pytest
import torch
from torch import nn

from brepfind.errors import InputError
from brepfind.training.evidence import micro_of
from brepfind.training.provenance import sentence, statistics, traced
from brepfind.training.replay import replay
from tests.training.runs import codes, reason, train


class Blown(nn.Module):
    """Finite in, infinite out."""

    def forward(self, x):
        return x / 0.0


def test_the_innermost_first_module_is_named_with_its_statistics() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), Blown()), nn.Linear(2, 2))
    with traced(model) as trace:
        model(torch.ones(3, 2))
    facts = trace.forward_facts()
    assert (facts["module"], facts["kind"]) == ("1.1", "Blown")
    assert facts["input"][0]["nan"] == 0 and facts["output"][0]["bad_rows"] == [0, 1, 2]
    assert "output of 1.1 (Blown) is the first" in sentence({"forward": facts})


def test_a_bad_weight_is_told_from_a_bad_output() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight.data[0, 1] = math.nan
    with traced(model) as trace:
        model(torch.ones(3, 2))
    said = sentence({"forward": trace.forward_facts()})
    assert said == "the weights of 1 (Linear) are not finite: weight"


def test_a_gradient_that_goes_bad_is_placed_between_two_modules() -> None:
    class Root(nn.Module):
        def forward(self, x):
            return (x * 0).clamp_min(0).sqrt()  # finite, with an infinite slope

    model = nn.Sequential(nn.Linear(2, 2), Root(), nn.Linear(2, 2))
    with traced(model) as trace:
        loss = model(torch.ones(3, 2)).sum()
        names, params = zip(*model.named_parameters(), strict=True)
        found = torch.autograd.grad(loss, params)
    facts = trace.backward_facts(dict(zip(names, found, strict=True)))
    assert (facts["module"], facts["after"]) == ("0", "1")
    assert facts["parameters"] == ["0.weight", "0.bias"]


def test_statistics_count_nan_and_inf_apart() -> None:
    facts = statistics(torch.tensor([1.0, math.nan, math.inf, -3.0]))
    assert (facts["nan"], facts["inf"], facts["min"], facts["max"]) == (1, 1, -3.0, 1.0)
    assert statistics(torch.tensor([1, 2]))["dtype"] == "int64"


@pytest.mark.parametrize(
    ("world", "fault", "said"),
    [
        (1, "nan_weight@2", r"the weights of dual\.encoder\.\S+ .* are not finite: \S+"),
        (2, "nan_statistic@2@1", r"are not finite: \S*running_mean"),
    ],
)
def test_the_post_mortem_names_the_module_and_a_replay_shows_it_again(
    inputs, tmp_path, world, fault, said
) -> None:
    assert codes(train(inputs, tmp_path, world, fault)) == [1] * world
    why = reason(tmp_path)
    assert why["provenance"]["forward"]["module"].startswith("dual.")
    pipelines = tmp_path / "as the pipeline keeps it"
    pipelines.mkdir()
    (tmp_path / "postmortem").rename(pipelines / "training")
    shown = replay(pipelines)
    assert shown.rank == world - 1 and shown.step == 2
    assert list(shown.ids) == why["part_ids"]
    assert shown.then == shown.now == why["provenance"]["sentence"]
    assert shown.facts["forward"]["module"] == why["provenance"]["forward"]["module"]
    assert re.search(said, shown.now)


def test_a_bad_gradient_is_explained_on_two_ranks_with_a_static_graph(inputs, tmp_path) -> None:
    ended = train(inputs, tmp_path, 2, "inf_gradient@0@1", gradient_checkpointing=True)
    assert codes(ended) == [1, 1]
    why = reason(tmp_path)
    assert why["cause"] == "gradient"
    # The gradient is bad everywhere once it is averaged; the step run again tells whose it was.
    assert why["rank"] == 1 and len(why["part_ids"]) == 4
    assert [p.name for p in (tmp_path / "postmortem").glob("step-*")] == ["step-rank1.pt"]


def test_a_folder_without_a_step_is_an_error(tmp_path) -> None:
    with pytest.raises(InputError, match="keeps no step; look at its reason"):
        replay(tmp_path)


def test_a_step_kept_by_another_version_is_refused() -> None:
    with pytest.raises(InputError, match="written by another version of brepfind"):
        micro_of({"parts": {}, "hidden": None, "mask": None, "lengths": None})
