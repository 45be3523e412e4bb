import pytest
import torch
from torch import Tensor

from brepfind.models.rope import rope_tables, rotate


def _rotate_complex(x: Tensor, table: Tensor) -> Tensor:
    """The authors' way: neighbouring elements as one complex number, times a complex table."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * table).flatten(-2)


@pytest.mark.parametrize("head_dim", [2, 8, 64])
def test_real_tables_are_the_complex_one_in_both_directions(head_dim: int) -> None:
    torch.manual_seed(head_dim)
    cos, sin = rope_tables(head_dim, positions=40)
    table = torch.complex(cos, sin)[:, None]
    x = torch.randn(40, 3, head_dim, requires_grad=True)
    out_gradient = torch.randn(40, 3, head_dim)
    ours = rotate(x, cos[:, None], sin[:, None])
    theirs = _rotate_complex(x, table)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    (gradient,) = torch.autograd.grad(ours, x, out_gradient)
    (expected,) = torch.autograd.grad(theirs, x, out_gradient)
    torch.testing.assert_close(gradient, expected, atol=1e-6, rtol=0)


def test_pairs_are_neighbours_not_halves() -> None:
    """Worked by hand: position 1 turns (1, 0) by 1 radian into (cos 1, sin 1)."""
    cos, sin = rope_tables(4, positions=2, theta=10_000.0)
    x = torch.tensor([[1.0, 0.0, 0.0, 1.0]])
    turned = rotate(x, cos[1:], sin[1:])
    expected = [0.5403023, 0.8414710, -0.0099998, 0.9999500]
    torch.testing.assert_close(turned, torch.tensor([expected]))


def test_scores_depend_on_the_distance_only() -> None:
    cos, sin = rope_tables(8)
    q, k = torch.randn(8), torch.randn(8)
    near = rotate(q, cos[3], sin[3]) @ rotate(k, cos[1], sin[1])
    far = rotate(q, cos[2003], sin[2003]) @ rotate(k, cos[2001], sin[2001])
    torch.testing.assert_close(near, far, atol=2e-3, rtol=0)


def test_half_precision_is_turned_in_full() -> None:
    cos, sin = rope_tables(8)
    x = torch.randn(4096, 1, 8).bfloat16()
    turned = rotate(x, cos[:, None], sin[:, None])
    exact = rotate(x.float(), cos[:, None], sin[:, None])
    assert turned.dtype == torch.bfloat16
    assert torch.equal(turned, exact.bfloat16())
