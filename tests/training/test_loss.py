import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from brepfind.distributed.group import Group, open_group
from brepfind.training.loss import contrastive_loss, same_pairs
from tests.ranks import run_ranks, values
from tests.training.toys import Toy, Toys, pairs

SIZE = 8


def _gradients() -> list[dict[str, torch.Tensor]]:
    """Gradients of the loss on SIZE pairs, dealt to the ranks, averaged as DDP does; with only the
    rank's own rows of the logits, then with all of them.
    """
    with open_group(20.0, device="cpu") as group:
        return [_gradient(group, local=True), _gradient(group, local=False)]


def _gradient(group: Group, local: bool) -> dict[str, torch.Tensor]:
    toy: nn.Module = Toy().double()
    params = dict(toy.named_parameters())
    if group.world > 1:
        toy = nn.parallel.DistributedDataParallel(toy)
    parts, texts = pairs(0, SIZE, torch.float64)
    share = SIZE // group.world
    mine = slice(group.rank * share, (group.rank + 1) * share)
    groups = torch.tensor([0, 1, 1, 3, 4, 5, 6, 7])
    same = same_pairs(groups, torch.tensor([0, 1, 2, 3, 4, 4, 6, 7]))
    rows = toy(Toys(parts[mine], texts[mine]))
    loss = contrastive_loss(*rows, same[mine] if local else same, rank=group.rank, local=local)
    loss.backward()
    return {"loss": loss.detach(), **{name: p.grad for name, p in params.items()}}


@pytest.mark.parametrize("world", [2, 4])
def test_gradients_do_not_depend_on_the_number_of_ranks(world) -> None:
    alone = _gradients()
    ranks = values(run_ranks(_gradients, world))
    for kind in (0, 1):
        loss = sum(rank[kind]["loss"] for rank in ranks) / world
        assert loss.item() == pytest.approx(alone[0]["loss"].item(), abs=1e-12)
        for name in alone[0].keys() - {"loss"}:
            for rank in ranks:
                torch.testing.assert_close(rank[kind][name], alone[0][name], atol=1e-12, rtol=0)


def test_it_is_the_mean_of_both_cross_entropies() -> None:
    torch.manual_seed(0)
    parts, texts, scale = torch.randn(4, 3), torch.randn(4, 3), torch.tensor(5.0)
    logits = 5.0 * F.normalize(parts) @ F.normalize(texts).T
    target = torch.arange(4)
    expected = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
    found = contrastive_loss(parts, texts, scale, torch.eye(4, dtype=torch.bool))
    torch.testing.assert_close(found, expected)


def test_equal_embeddings_give_ln_of_the_batch() -> None:
    rows = torch.ones(4, 3)
    loss = contrastive_loss(rows, rows, torch.tensor(10.0), torch.eye(4, dtype=torch.bool))
    assert loss.item() == pytest.approx(math.log(4), abs=1e-6)


def test_twins_and_equal_captions_are_no_negatives() -> None:
    same = same_pairs(torch.tensor([0, 1, 0]), torch.tensor([5, 6, 6]))
    assert same.tolist() == [[1, 0, 1], [0, 1, 1], [1, 1, 1]]
    rows = torch.ones(3, 2)
    # Row 2 has no negative left: its loss is 0. Rows 0 and 1 have each other: ln 2.
    loss = contrastive_loss(rows, rows, torch.tensor(1.0), same)
    assert loss.item() == pytest.approx(2 * math.log(2) / 3, abs=1e-6)


def test_it_is_computed_in_float32_under_autocast() -> None:
    rows = torch.randn(4, 8).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = contrastive_loss(rows, rows, torch.tensor(100.0), torch.eye(4, dtype=torch.bool))
    assert loss.dtype == torch.float32
