import torch
from torch import Tensor
from torch.autograd import gradcheck

from brepfind.models.pairs import ScalarEncoder, Walks, pad_bias, pair_rows
from brepfind.models.ragged import Layout


def _encoder(heads: int) -> ScalarEncoder:
    shapes = [(heads,)] * 3 + [(heads, heads)] + [(heads,)] * 2
    return ScalarEncoder(*(torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes))


def _plain(x: Tensor, encoder: ScalarEncoder) -> Tensor:
    inner = torch.relu(x[:, None] * encoder.weight1 * encoder.scale1 + encoder.shift1)
    return torch.relu(inner @ encoder.weight2.T * encoder.scale2 + encoder.shift2)


def test_rows_are_sums_along_the_walks() -> None:
    """Worked by hand: edge 1 of pair 1's part is edge 2 of all, its row at step 0 is 4.

    It walks that and edge 0 (1 of all) at step 1, row 3; pair 0 walks nothing.
    """
    table = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 10.0], [4.0, 40.0]])
    path, starts = torch.tensor([[-1, -1], [1, 0]]), torch.tensor([0, 1])
    walks = Walks.of(path, starts, torch.tensor([1.0, 0.5]), 5)
    hop_table = torch.tensor([[0.0, 0.0], [100.0, 200.0]])
    rows = pair_rows(torch.tensor([1, 0]), hop_table, [], table, walks)
    assert rows.tolist() == [[100, 200], [2.5, 25]]


def test_rows_and_their_gradients_are_the_plain_ones() -> None:
    torch.manual_seed(0)
    pairs, heads, size = 9_000, 4, 50  # more pairs than one chunk
    hops = torch.randint(1, 8, (pairs,))
    hop_table = torch.randn(8, heads, dtype=torch.float64, requires_grad=True)
    table = torch.randn(size, heads, dtype=torch.float64, requires_grad=True)
    path = torch.randint(-3, 6, (pairs, 5))
    starts = torch.randint(0, 5, (pairs,))
    weights = torch.rand(pairs, dtype=torch.float64)
    walks = Walks.of(path, starts, weights, size)
    scalars = [(torch.randn(pairs, dtype=torch.float64), _encoder(heads)) for _ in range(2)]
    rows = pair_rows(hops, hop_table, scalars, table, walks)
    walk = (path + starts[:, None]) * 5 + torch.arange(5)
    picked = table[walk.clamp(min=0)] * (weights[:, None] * (path >= 0))[:, :, None]
    plain = hop_table[hops] + picked.sum(1) + sum(_plain(x, encoder) for x, encoder in scalars)
    torch.testing.assert_close(rows, plain)
    inputs = [hop_table, table, *scalars[0][1], *scalars[1][1]]
    out = torch.randn_like(rows)
    for ours, theirs in zip(
        torch.autograd.grad(rows, inputs, out), torch.autograd.grad(plain, inputs, out), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_no_walk_at_all() -> None:
    table = torch.zeros(1, 2, requires_grad=True)
    nowhere = torch.full((3, 1), -1)
    walks = Walks.of(nowhere, torch.zeros(3, dtype=torch.int64), torch.ones(3), 1)
    hop_table = torch.ones(2, 2, requires_grad=True)
    rows = pair_rows(torch.ones(3, dtype=torch.int64), hop_table, [], table, walks)
    rows.sum().backward()
    assert rows.tolist() == [[1, 1]] * 3
    assert table.grad is not None and table.grad.tolist() == [[0, 0]]


def test_padded_bias_worked_by_hand() -> None:
    """Two parts, of two faces and of one: heads first, then query by key; -inf is not looked at."""
    inf = float("inf")
    layout = Layout.of(torch.tensor([2, 1]))
    rows = torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0]])
    blocked = torch.tensor([False, True, False, False, False])
    (bias,) = pad_bias(rows, torch.tensor([[9.0]]), blocked, layout)
    assert layout.groups[0].counts == (1, 2)
    assert bias[0, 0].tolist() == [[9, 9, -inf], [9, 5, -inf], [9, -inf, -inf]]
    assert bias[1, 0].tolist() == [[9, 9, 9], [9, 1, -inf], [9, 3, 4]]


def test_padded_bias_has_the_right_gradients_through_a_softmax() -> None:
    torch.manual_seed(0)
    layout = Layout.of(torch.tensor([2, 1, 3]))
    rows = torch.randn(14, 2, dtype=torch.float64, requires_grad=True)
    token = torch.randn(1, 2, dtype=torch.float64, requires_grad=True)
    blocked = torch.zeros(14, dtype=torch.bool)
    blocked[[1, 2, 6]] = True
    weights = torch.randn(3, dtype=torch.float64)

    def seen(rows: Tensor, token: Tensor) -> Tensor:
        values = []
        for group, bias in zip(layout.groups, pad_bias(rows, token, blocked, layout), strict=True):
            looked = torch.softmax(bias, -1) ** 2
            values += [
                (part[:, : n + 1, : n + 1].sum((0, 1)) * weights[: n + 1].exp().sum()).sum()[None]
                for part, n in zip(looked, group.counts, strict=True)
            ]
        return torch.cat(values)

    assert gradcheck(seen, (rows, token))
