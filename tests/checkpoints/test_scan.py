"""The scan against a naive oracle, for every dtype and every kind of stride."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brepfind.checkpoints import blocks as blocks_module
from brepfind.checkpoints.bits import FLOATS
from brepfind.checkpoints.scan import TensorVitals, scan
from brepfind.checkpoints.verdicts import findings, share_text

WIDE = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def one(tensor: torch.Tensor) -> TensorVitals:
    (vitals,) = scan({"t": tensor})
    return vitals


def first(mask: torch.Tensor) -> tuple[int, ...] | None:
    found = mask.nonzero()
    return tuple(found[0].tolist()) if len(found) else None


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_pattern_of_a_small_float_against_its_upcast(dtype: torch.dtype) -> None:
    if dtype.itemsize > 2:
        patterns = torch.randint(-(2**31), 2**31 - 1, (4096,), dtype=torch.int64)
        values = patterns.to(torch.int32).view(dtype)
    else:
        count = 256**dtype.itemsize
        integer = torch.uint8 if dtype.itemsize == 1 else torch.int16
        values = torch.arange(count, dtype=torch.int32).to(integer).view(dtype)
    wide = values.to(torch.float64) if dtype.itemsize > 1 else values.float().double()
    vitals = one(values)
    assert vitals.nan == int(wide.isnan().sum())
    assert vitals.inf == int(wide.isinf().sum())
    assert vitals.first_nan == first(wide.isnan())
    assert vitals.first_inf == first(wide.isinf())
    assert vitals.largest == float(wide[wide.isfinite()].abs().max())
    if dtype in WIDE:
        tiny = torch.finfo(dtype).tiny
        assert vitals.denormal == int(((wide != 0) & (wide.abs() < tiny)).sum())


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 6), min_size=0, max_size=4),
    seed=st.integers(0, 999),
    kind=st.sampled_from(["plain", "permuted", "stepped", "expanded", "complex"]),
    block=st.sampled_from([4, 16, 64, 1 << 19]),
)
def test_places_are_those_of_the_tensor_as_stored(
    shape: list[int], seed: int, kind: str, block: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    tensor = torch.randn(shape, generator=random)
    hit = torch.rand(shape, generator=random)
    tensor = tensor.masked_fill(hit < 0.1, math.nan).masked_fill(hit > 0.9, math.inf)
    if kind == "permuted":
        tensor = tensor.permute(tuple(reversed(range(tensor.dim()))))
    if kind == "stepped" and shape:
        tensor = tensor[::2]
    if kind == "expanded":
        tensor = tensor.expand(3, *tensor.shape)
    if kind == "complex":
        tensor = torch.complex(torch.ones_like(tensor), tensor)
    before, blocks_module.BLOCK_BYTES = blocks_module.BLOCK_BYTES, block
    try:
        vitals = one(tensor)
    finally:
        blocks_module.BLOCK_BYTES = before
    numbers = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    nan, inf = numbers.isnan(), numbers.isinf()
    once = 3 if kind == "expanded" else 1
    assert (vitals.nan, vitals.inf) == (int(nan.sum()) // once, int(inf.sum()) // once)
    if kind != "complex":
        nan, inf = tensor.isnan(), tensor.isinf()
    else:
        nan, inf = tensor.imag.isnan(), tensor.imag.isinf()
    if kind == "permuted":  # walked as it lies in memory: any of the places is a right one
        assert vitals.first_nan is None or bool(nan[vitals.first_nan])
        return
    assert vitals.first_nan == first(nan)
    assert vitals.first_inf == first(inf)


def test_zeros_do_not_hide_a_denormal() -> None:
    tensor = torch.zeros(1000)
    tensor[::3] = 1.0
    assert one(tensor).denormal == 0
    tensor[700] = 1e-41
    vitals = one(tensor)
    assert (vitals.denormal, vitals.first_denormal) == (1, (700,))


def test_constant_zero_and_rows() -> None:
    assert one(torch.zeros(3, 4)).zero
    assert one(torch.full((3, 4), 2.0)).constant
    assert not one(torch.full((3, 4), 2.0)).zero
    assert not one(torch.tensor([0.0, 1.0])).constant
    assert not one(torch.tensor([-1.0, 1.0])).constant  # the same magnitude is not the same value
    assert one(torch.tensor([True, True])).constant
    rows = torch.rand(9, 5)
    rows[4] = 0.25
    rows[7] = rows[7, 0]
    rows[8, [0, 1, 2, 4]] = 0.5  # agrees where it is looked at first, and not as a whole
    vitals = one(rows)
    assert (vitals.constant_rows, vitals.first_constant_row) == (2, 4)


@pytest.mark.parametrize("width", [4, 7, 1000, 98_304, 100_003])
def test_constant_rows_are_found_wherever_blocks_cut(width: int) -> None:
    rows = max(3, 400_000 // width)
    tensor = torch.rand(rows, width)
    chosen = sorted({0, rows // 2, rows - 1})
    tensor[chosen] = torch.tensor([[0.0], [0.5], [-3.0]])
    vitals = one(tensor.bfloat16() if width > 4 else tensor)
    assert (vitals.constant_rows, vitals.first_constant_row) == (3, 0)


def test_far_values_are_counted_and_placed() -> None:
    tensor = torch.rand(40, 50)
    tensor[3, 7] = 1e9
    tensor[5, 0] = -2e9
    vitals = one(tensor)
    assert (vitals.far, vitals.first_far) == (2, (3, 7))
    assert vitals.largest == 2e9
    assert one(torch.rand(40, 50)).far == 0


def test_a_tensor_of_several_stretches_adds_up() -> None:
    tensor = torch.rand(5_000_000)
    tensor[[1, 2_500_000, 4_999_999]] = torch.tensor([math.nan, math.inf, math.nan])
    vitals = one(tensor)
    assert (vitals.nan, vitals.inf) == (2, 1)
    assert (vitals.first_nan, vitals.first_inf) == ((1,), (2_500_000,))


def test_progress_adds_up_to_all_bytes() -> None:
    told: list[int] = []
    tensors = {"large": torch.rand(20_000_000), "small": torch.rand(7)}
    scan(tensors, advance=told.append)
    assert len(told) > 2
    assert sum(told) == sum(tensor.nbytes for tensor in tensors.values())


def test_the_callers_threads_stay_as_they_are() -> None:
    before = torch.get_num_threads()
    scan({"t": torch.rand(1_000_000)})
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("count", "total", "text"),
    [
        (1, 8, "12.50% NaN"),
        (8, 8, "all NaN"),
        (1, 16_777_216, "1 of 16,777,216 NaN"),
        (9_999, 10_000, "99.99% NaN"),
        (99_999_999, 100_000_000, "99.99% NaN"),
    ],
)
def test_share_text(count: int, total: int, text: str) -> None:
    assert share_text(count, total, "NaN") == text


def test_findings_put_the_failed_first() -> None:
    found = findings(scan({"a": torch.zeros(4), "b": torch.tensor([math.nan, 1.0])}))
    assert [(one.name, one.verdict, one.value) for one in found] == [
        ("b", "failed", "50.00% NaN"),
        ("a", "warning", "all zero"),
    ]
    assert findings(scan({"b": torch.rand(4)})) == []
    (complex_one,) = findings(
        scan({"t": torch.polar(torch.ones(3), torch.rand(3))}), allow_complex=False
    )
    assert complex_one.verdict == "failed"
