"""Blocks with a backward pass of their own give what torch's own operations give."""

from typing import Literal

import pytest
import torch
from torch import nn
from torch.nn import functional

from brepfind.models import linear as linear_module
from brepfind.models.grid_cnn import GridCNN
from brepfind.models.linear import linear
from brepfind.models.norm import BatchNorm, RMSNorm
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
