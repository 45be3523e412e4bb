"""The dense numbers of a tensor of any kind: complex, sparse, quantised, strided anyhow."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from math import prod

import torch

from brepfind.checkpoints.bits import integer_of
from brepfind.checkpoints.blocks import Plain, plain

_WIDE = 4  # narrower rows hold one value by chance
_REPEATS, _LARGE = 1000, 1 << 30  # more than both: a few bytes made to fill a disk


@dataclass(frozen=True, slots=True)
class Parts:
    """The numbers of a tensor.

    Attributes:
        plain: the dense ones.
        width: how many stand in one row (along the first dimension), where rows are looked at.
        beside: small ones that belong to it: quantisation scales.
    """

    plain: Plain
    width: int = 0
    beside: tuple[torch.Tensor, ...] = ()


def prepare(tensor: torch.Tensor) -> Parts | str:
    """The numbers of a tensor of any kind, or why they cannot be looked at."""
    try:
        if tensor.is_meta:
            return "has no data (it was saved from the meta device)"
        if tensor.is_quantized:
            per_channel = tensor.qscheme() in (
                torch.per_channel_affine,
                torch.per_channel_symmetric,
                torch.per_channel_affine_float_qparams,
            )
            scales = (
                tensor.q_per_channel_scales() if per_channel else torch.tensor(tensor.q_scale())
            )
            # Quantised integers cannot be NaN; what can be broken is their scale.
            return Parts(plain(torch.empty(0, dtype=torch.uint8)), beside=(scales,))
        if tensor.layout is not torch.strided:
            tensor = _values(tensor)
        was_complex = tensor.is_complex()
        if was_complex:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # complex32 is called experimental
                tensor = torch.view_as_real(tensor.conj() if tensor.is_conj() else tensor)
        if tensor.is_neg():
            tensor = tensor.resolve_neg()
        integer_of(tensor.dtype)
        return Parts(plain(tensor), 0 if was_complex else _width(tensor))
    except (RuntimeError, KeyError, NotImplementedError, AttributeError) as error:
        return f"cannot be looked at ({type(error).__name__}: {str(error).splitlines()[0]})"


def _values(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers of a sparse tensor, whose indices fit its shape.

    Raises:
        RuntimeError: they do not; torch loads such a tensor and fails, or worse, when it is used.
    """
    shape = tuple(tensor.shape)
    if tensor.layout is torch.sparse_coo:
        indices, values = tensor._indices(), tensor._values()
        torch.sparse_coo_tensor(indices, values, shape, check_invariants=True)
        return values
    by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
    outer = tensor.crow_indices() if by_row else tensor.ccol_indices()
    inner = tensor.col_indices() if by_row else tensor.row_indices()
    values = tensor.values()
    torch.sparse_compressed_tensor(
        outer, inner, values, shape, layout=tensor.layout, check_invariants=True
    )
    return values


def stored_bytes(tensor: torch.Tensor) -> int:
    """Bytes that a tensor takes in its file; a view may repeat some of them."""
    if tensor.layout is torch.sparse_coo:
        tensor = tensor._values()
    elif tensor.layout is not torch.strided:
        tensor = tensor.values()
    whole = tensor.numel() * tensor.element_size()
    return min(whole, 0 if tensor.is_meta else tensor.untyped_storage().nbytes())


def unwritable(tensor: torch.Tensor) -> str:
    """Why a tensor cannot be written as a plain dense one; empty if it can."""
    if tensor.is_quantized:
        return f"quantised ({_name(tensor.dtype)})"
    if tensor.layout is not torch.strided:
        return _name(tensor.layout)
    whole, stored = tensor.numel() * tensor.element_size(), stored_bytes(tensor)
    if not tensor.is_meta and whole > max(_REPEATS * stored, _LARGE):
        return f"a view of {whole:,} bytes that repeats {stored:,}"
    return ""


def _name(kind: object) -> str:
    return str(kind).removeprefix("torch.")


def _width(tensor: torch.Tensor) -> int:
    if not tensor.is_floating_point() or not tensor.is_contiguous() or tensor.dim() < 2:
        return 0
    width = prod(tensor.shape[1:])
    return width if width >= _WIDE and tensor.shape[0] > 1 else 0
