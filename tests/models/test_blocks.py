"""Blocks with a backward pass of their own give what torch's own operations give."""

from typing import Literal

import pytest
import torch
from torch import nn
from torch.nn import functional

from brepfind.models import linear as linear_module
from brepfind.models.attend import SharedBias, attend
from brepfind.models.grid_cnn import GridCNN
from brepfind.models.linear import linear
from brepfind.models.norm import BatchNorm, RMSNorm
from brepfind.models.ragged import Layout
from brepfind.models.swiglu import swiglu


def _gradients(out: torch.Tensor, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(9)
    return torch.autograd.grad(out, inputs, torch.randn(out.shape).to(out.dtype))


@pytest.mark.parametrize("rows", [0, 1, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_linear_through_onednn(
    rows: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on an AMD processor, whatever this one is.
    monkeypatch.setattr(linear_module, "_OPERATOR", torch.ops.mkldnn._linear_pointwise)
    torch.manual_seed(0)
    x = torch.randn(rows, 24, dtype=dtype, requires_grad=True)
    weight = torch.randn(40, 24, dtype=dtype, requires_grad=True)
    bias = torch.randn(40, dtype=dtype, requires_grad=True)
    ours, theirs = linear(x, weight, bias), functional.linear(x, weight, bias)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    for mine, other in zip(
        _gradients(ours, [x, weight, bias]), _gradients(theirs, [x, weight, bias]), strict=True
    ):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)


def test_product_added_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    total, x, weight = torch.randn(5, 4), torch.randn(5, 3), torch.randn(4, 3)
    expected = total + x @ weight.T
    for operator in (None, torch.ops.mkldnn._linear_pointwise):
        monkeypatch.setattr(linear_module, "_OPERATOR", operator)
        ours = total.clone()
        assert linear_module.add_product(ours, x, weight) is ours
        torch.testing.assert_close(ours, expected)


def test_linear_without_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = torch.randn(5, 3), torch.randn(4, 3)
    monkeypatch.setattr(linear_module, "_OPERATOR", None)
    assert torch.equal(linear(x, weight), functional.linear(x, weight))


def test_linear_under_autocast_is_torchs() -> None:
    x, weight = torch.randn(5, 3), torch.randn(4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight).dtype == torch.bfloat16


def test_swiglu() -> None:
    torch.manual_seed(0)
    x, w1, w2, w3 = (
        torch.randn(s, dtype=torch.float64, requires_grad=True)
        for s in ((7, 6), (10, 6), (6, 10), (10, 6))
    )
    ours = swiglu(x, w1, w2, w3)
    theirs = (functional.silu(x @ w1.T) * (x @ w3.T)) @ w2.T
    torch.testing.assert_close(ours, theirs)
    for mine, other in zip(
        _gradients(ours, [x, w1, w2, w3]), _gradients(theirs, [x, w1, w2, w3]), strict=True
    ):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("training", [True, False])
def test_grid_cnn(dims: Literal[1, 2], training: bool) -> None:
    torch.manual_seed(0)
    cnn = GridCNN(dims, 3, 8).double()
    layers: list[nn.Module] = []
    for block in (cnn.conv1, cnn.conv2, cnn.conv3):
        norm = (nn.BatchNorm1d, nn.BatchNorm2d)[dims - 1](block[0].out_channels).double()
        layers += [block[0], norm, nn.LeakyReLU()]
    plain = nn.Sequential(*layers)
    for norm in plain:
        if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.normal_(norm.running_mean)
            norm.running_var.uniform_(0.5, 2)
    norms = [m for m in cnn.modules() if isinstance(m, BatchNorm)][:3]
    for ours, theirs in zip(norms, plain[1::3], strict=True):
        ours.load_state_dict(theirs.state_dict())
    cnn.train(training)
    plain.train(training)
    cnn.fc.eval()
    # More grids than one chunk holds, and the last chunk is not full.
    grid = torch.randn((70, 3, *[10] * dims), dtype=torch.float64, requires_grad=True)
    ours, theirs = cnn(grid), cnn.fc(plain(grid).flatten(2).mean(2))
    torch.testing.assert_close(ours, theirs)
    weights = [grid, cnn.conv1[0].weight, cnn.conv3[0].weight]
    for mine, other in zip(_gradients(ours, weights), _gradients(theirs, weights), strict=True):
        torch.testing.assert_close(mine, other)
    if training:
        for mine, other in zip(norms, plain[1::3], strict=True):
            torch.testing.assert_close(mine.running_var, other.running_var)
            assert mine.num_batches_tracked == other.num_batches_tracked


@pytest.mark.parametrize("rows", [0, 1])
def test_batch_norm_of_nothing_uses_what_it_knows(rows: int) -> None:
    norm = BatchNorm(3).train()
    norm.running_mean.fill_(2.0)
    out = norm(torch.full((rows, 3), 3.0))
    torch.testing.assert_close(out, torch.ones(rows, 3), rtol=1e-4, atol=1e-4)
    assert norm.num_batches_tracked == 0


def test_rms_norm() -> None:
    torch.manual_seed(0)
    norm = RMSNorm(6).double()
    nn.init.normal_(norm.weight)
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    theirs = functional.rms_norm(x, (6,), norm.weight, 1e-5)
    torch.testing.assert_close(norm(x), theirs)
    for mine, other in zip(
        _gradients(norm(x), [x, norm.weight]), _gradients(theirs, [x, norm.weight]), strict=True
    ):
        torch.testing.assert_close(mine, other)


def _attention_inputs(dtype: torch.dtype) -> tuple[Layout, list[torch.Tensor], list[torch.Tensor]]:
    """Parts of 2, 4, 4 and 7 faces; 6 query heads over 2 key heads of width 4; a bias per group."""
    torch.manual_seed(0)
    layout = Layout.of(torch.tensor([4, 2, 7, 4]))
    tokens = layout.groups[-1].end
    qkv = [torch.randn(tokens, heads, 4, dtype=dtype, requires_grad=True) for heads in (6, 2, 2)]
    sizes = [(len(group.counts), 6, group.length, group.length) for group in layout.groups]
    bias_dtype = max(dtype, torch.float32, key=lambda each: torch.finfo(each).bits)
    biases = [torch.randn(size, dtype=bias_dtype) for size in sizes]
    for bias in biases:
        bias[:, :, :, -1] = float("-inf")
        bias.requires_grad_()
    return layout, qkv, biases


def _plain_attention(
    layout: Layout, qkv: list[torch.Tensor], biases: list[torch.Tensor], dropout: float = 0.0
) -> torch.Tensor:
    out = []
    for group, bias in zip(layout.groups, biases, strict=True):
        q, k, v = (
            tokens[group.start : group.end].unflatten(0, (-1, group.length)).transpose(1, 2)
            for tokens in qkv
        )
        k, v = k.repeat_interleave(3, 1), v.repeat_interleave(3, 1)
        weights = torch.softmax((q @ k.mT).to(bias.dtype) / 2 + bias, -1)
        weights = functional.dropout(weights, dropout)
        out.append((weights.to(v.dtype) @ v).transpose(1, 2).flatten(0, 1).flatten(1))
    return torch.cat(out)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_attention(dropout: float) -> None:
    layout, qkv, biases = _attention_inputs(torch.float64)
    assert len(layout.groups) > 1
    torch.manual_seed(3)
    ours = attend(*qkv, SharedBias.of(biases), layout, dropout)
    torch.manual_seed(3)  # the same weights are dropped
    theirs = _plain_attention(layout, qkv, biases, dropout)
    torch.testing.assert_close(ours, theirs)
    inputs = [*qkv, *biases]
    for mine, other in zip(_gradients(ours, inputs), _gradients(theirs, inputs), strict=True):
        torch.testing.assert_close(mine, other)


def test_attention_in_half_precision() -> None:
    """Products in bfloat16, the bias and the softmax in float32, each gradient in its own dtype."""
    layout, qkv, biases = _attention_inputs(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        ours = attend(*qkv, SharedBias.of(biases), layout)
    exact = [tensor.detach().float().requires_grad_() for tensor in qkv]
    theirs = _plain_attention(layout, exact, biases)
    assert ours.dtype == torch.bfloat16
    torch.testing.assert_close(ours.float(), theirs, rtol=0, atol=0.03)
    mine = _gradients(ours, [*qkv, *biases])
    for tensor, gradient, other in zip(
        [*qkv, *biases], mine, _gradients(theirs, [*exact, *biases]), strict=True
    ):
        assert gradient.dtype == tensor.dtype
        torch.testing.assert_close(gradient.float(), other, rtol=0.05, atol=0.05)


def test_attentions_share_one_bias() -> None:
    """Its gradient is the sum over the attentions, each time that the graph is walked."""
    layout, qkv, biases = _attention_inputs(torch.float64)
    other = [tensor.detach().flip(0).requires_grad_() for tensor in qkv]
    shared = SharedBias.of(biases)
    ours = attend(*qkv, shared, layout) + attend(*other, shared, layout).sin()
    theirs = _plain_attention(layout, qkv, biases) + _plain_attention(layout, other, biases).sin()
    inputs = [*qkv, *other, *biases]
    seed = torch.ones_like(ours)
    expected = torch.autograd.grad(theirs, inputs, seed)
    for _ in range(2):
        found = torch.autograd.grad(ours, inputs, seed, retain_graph=True)
        for mine, plain in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, plain)


def test_a_gradient_that_leaves_the_bias_out_leaves_nothing_behind() -> None:
    layout, qkv, biases = _attention_inputs(torch.float64)
    ours = attend(*qkv, SharedBias.of(biases), layout)
    seed = torch.ones_like(ours)
    torch.autograd.grad(ours, qkv, seed, retain_graph=True)
    expected = torch.autograd.grad(_plain_attention(layout, qkv, biases), biases, seed)
    for mine, plain in zip(torch.autograd.grad(ours, biases, seed), expected, strict=True):
        torch.testing.assert_close(mine, plain)
