"""Vital signs of a set of embeddings, and of two sets that should meet.

All are computed on unit rows in float64, so that scale says nothing; *raw* means as they stand,
*centred* with their mean taken off. None of them is trusted alone: two opposite clusters have a
mean cosine of 0 and a perfect column std, a constant plus noise of 1e-6 has a healthy centred
rank, four rows in many copies are neither. The gate asks all of them.

Shapes: N rows, D dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brepfind.metrics.rows import Rows, directed, directions, merge_identical, slices

# Centred rows shorter than this (root mean square) are rounding of float32, not a direction.
_NOTHING = 1e-7

# Cosines above this are the same embedding to all intents: rows about 5e-5 apart.
_COPY = 1.0 - 1e-9

# Numbers over all pairs are taken over at most this many rows, drawn with a fixed seed.
_SAMPLE = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """Of one tower. NaN where a number is not defined; each NaN fails its limit.

    Attributes:
        n: rows. inputs: distinct inputs among them. dim: dimensions.
        nonfinite_rows, zero_rows: rows with NaN or infinity, and rows without a direction.
        norm_min, norm_mean, norm_max: of the rows as given.
        mean_col_std: standard deviation of a column of the unit rows, mean over columns.
        column_std: the same times sqrt(dim): 1 for rows spread evenly over the sphere, 0 for equal
            rows.
        mean_cosine, mean_cosine_centred: over all pairs of different rows.
        rank, rank_centred: effective rank (RankMe): exp of the entropy of the singular values.
        rank_share, rank_share_centred: over what n rows in dim dimensions can reach.
        participation: (sum of variances)^2 over the sum of their squares, centred: how many
            directions hold the variance. Noise lifts the effective rank of two clusters, not this.
        distinct: distinct rows among distinct inputs, as a share.
        near_copies: share of rows (a sample) with a copy, but for rounding, of another input.
        dead_columns: share of columns that hardly move beside the others.
        uniformity: log of the mean of exp(-2 distance^2) over pairs; lower is more even.
    """

    n: int
    inputs: int
    dim: int
    nonfinite_rows: int
    zero_rows: int
    norm_min: float
    norm_mean: float
    norm_max: float
    mean_col_std: float
    column_std: float
    mean_cosine: float
    mean_cosine_centred: float
    rank: float
    rank_centred: float
    rank_share: float
    rank_share_centred: float
    participation: float
    distinct: float
    near_copies: float
    dead_columns: float
    uniformity: float

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON; what is not a number becomes None."""
        return {key: _plain(value) for key, value in asdict(self).items()}

    def numbers(self) -> dict[str, float | int]:
        """Those that are defined."""
        return {key: value for key, value in self.as_json().items() if value is not None}

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, float | int]) -> Vitals:
        """The reverse of :meth:`numbers`: NaN where a number was not defined."""
        names = [one.name for one in fields(cls)]
        return cls(**{name: numbers.get(name, math.nan) for name in names})  # type: ignore[arg-type]


def vitals(rows: Rows, inputs: NDArray[np.int64] | None = None) -> Vitals:
    """The vital signs of embeddings.

    Args:
        rows: (N, D), any float type; need not be unit length, finite or many.
        inputs: int64 (N,), equal for rows that come from the same input (twins, equal captions)
            and may well be equal; all different if None.

    Raises:
        ValueError: if ``rows`` is not a matrix with at least one column, or inputs do not fit.
    """
    if rows.ndim != 2 or rows.shape[1] == 0 or rows.dtype.kind != "f":
        raise ValueError(f"need a float matrix, got {rows.dtype} {rows.shape}")
    inputs = np.arange(len(rows)) if inputs is None else np.asarray(inputs, np.int64)
    if inputs.shape != (len(rows),):
        raise ValueError(f"{len(rows)} rows, but inputs of shape {inputs.shape}")
    groups = len(np.unique(inputs))
    n, dim = rows.shape
    many = n or math.nan  # of no rows nothing is defined
    lengths = np.empty(n)
    total, gram = np.zeros(dim), np.zeros((dim, dim))
    for some, unit, length in directions(rows):
        lengths[some] = length
        total += unit.sum(axis=0)
        gram += unit.T @ unit
    # Centred rows, and the sum of their directions.
    turned, off_mean, spread = np.zeros(dim), 0, np.zeros((dim, dim))
    for _, unit, _ in directions(rows):
        unit -= total / many
        spread += unit.T @ unit
        for _, direction, length in directions(unit):
            turned += direction.sum(axis=0)
            off_mean += int(np.count_nonzero(length))
    variances = spread.diagonal() / many
    if not math.sqrt(variances.sum()) > _NOTHING:
        turned, spread = np.full_like(turned, math.nan), np.full_like(spread, math.nan)
    stds = np.sqrt(variances)
    broken, zero = np.isnan(lengths).sum(), (lengths == 0).sum()
    sample = _sample(n)
    sampled, _ = directed(rows[sample], np.float64)
    # One row that is not finite leaves no number defined: all become NaN, and fail.
    sampled = sampled if not broken else np.full_like(sampled, math.nan)
    shortest, mean_length, longest = (
        (lengths.min(), lengths.mean(), lengths.max()) if n else [math.nan] * 3
    )
    rank, rank_centred = _effective_rank(gram), _effective_rank(spread)
    return Vitals(
        n=n,
        inputs=groups,
        dim=dim,
        nonfinite_rows=int(broken),
        zero_rows=int(zero),
        norm_min=float(shortest),
        norm_mean=float(mean_length),
        norm_max=float(longest),
        mean_col_std=float(stds.mean()),
        column_std=float(stds.mean() * math.sqrt(dim)),
        mean_cosine=_mean_cosine(n, total, n - zero),
        mean_cosine_centred=_mean_cosine(n, turned, off_mean),
        rank=rank,
        rank_centred=rank_centred,
        rank_share=_share(rank, min(groups, dim)),
        rank_share_centred=_share(rank_centred, min(groups - 1, dim)),
        participation=_participation(spread),
        distinct=_distinct(rows, inputs, groups),
        near_copies=_near_copies(sampled, inputs[sample]),
        dead_columns=_dead_columns(stds),
        uniformity=_uniformity(sampled),
    )


def _mean_cosine(n: int, total: NDArray[np.float64], of_length_1: int) -> float:
    """Over all ordered pairs of n different rows, of length 1 or 0, from their sum."""
    return float((total @ total - of_length_1) / (n * (n - 1))) if n > 1 else math.nan


def _effective_rank(gram: NDArray[np.float64]) -> float:
    """RankMe (Garrido et al. 2023): exp of the entropy of the singular values as shares.

    NaN if a number is not finite or all are zero: 0/0 has no rank, and must not be mistaken for
    one.
    """
    if not gram.trace() > 0:
        return math.nan
    singular = np.sqrt(np.clip(np.linalg.eigvalsh(gram), 0.0, None))
    # Below 1e-7 of the largest there is only what rounding put there.
    shares = singular[singular > 1e-7 * singular.max()] / singular.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def _participation(gram: NDArray[np.float64]) -> float:
    """Participation ratio of the squared singular values; NaN as in :func:`_effective_rank`."""
    return float(gram.trace() ** 2 / (gram * gram).sum()) if gram.trace() > 0 else math.nan


def _uniformity(unit: Rows) -> float:
    """Wang and Isola (2020), t = 2: log mean exp(-2 |x - y|^2) over pairs of different rows."""
    n = len(unit)
    if n < 2:
        return math.nan
    cosine = unit @ unit.T
    kernel = np.exp(-4.0 * (1.0 - cosine))
    return float(np.log((kernel.sum() - np.trace(kernel)) / (n * (n - 1))))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairVitals:
    """Of two towers in one space.

    Attributes:
        alignment: mean squared distance of a caption's and its part's unit embedding (0 to 4).
        modality_gap: distance of the two towers' means.
        hub_text_to_cad, hub_cad_to_text: share of queries for which the most frequent first item
            is first; 1 / (number of items) where all share evenly.
        never_first_cad, never_first_text: share of items that are first for no query.
    """

    alignment: float
    modality_gap: float
    hub_text_to_cad: float
    hub_cad_to_text: float
    never_first_cad: float
    never_first_text: float

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON; what is not a number becomes None."""
        return {key: _plain(value) for key, value in asdict(self).items()}


def pair_vitals(text: Rows, cad: Rows, part: NDArray[np.int64]) -> PairVitals:
    """The vital signs of a pair of towers.

    Args:
        text: (C, D). cad: (P, D). part: int64 (C,), the row of ``cad`` that each caption tells of.

    All NaN if a row is not finite or is zero.
    """
    text_unit, text_lengths = directed(text, np.float32)
    cad_unit, cad_lengths = directed(cad, np.float32)
    # Of rows that are not finite the length is NaN.
    if not all(len(lengths) and (lengths > 0).all() for lengths in (text_lengths, cad_lengths)):
        return PairVitals(**dict.fromkeys(PairVitals.__slots__, math.nan))
    hub_cad, never_cad = _first_shares(text_unit, cad_unit)
    hub_text, never_text = _first_shares(cad_unit, text_unit)
    gap = text_unit.mean(axis=0, dtype=np.float64) - cad_unit.mean(axis=0, dtype=np.float64)
    apart = 0.0
    for some in slices(len(text)):
        between = text_unit[some].astype(np.float64) - cad_unit[part[some]]
        apart += float((between * between).sum())
    return PairVitals(
        alignment=apart / len(text),
        modality_gap=float(np.linalg.norm(gap)),
        hub_text_to_cad=hub_cad,
        hub_cad_to_text=hub_text,
        never_first_cad=never_cad,
        never_first_text=never_text,
    )


def _first_shares(queries: Rows, items: Rows, block: int = 1024) -> tuple[float, float]:
    """Share of the most frequent first item, and share of items never first."""
    wins = np.zeros(len(items), np.int64)
    for a in range(0, len(queries), block):
        best = np.full(len(queries[a : a + block]), -np.inf, np.float32)
        first = np.zeros(len(best), np.int64)
        for c in range(0, len(items), 8192):
            scores = queries[a : a + block] @ items[c : c + 8192].T
            top = scores.argmax(axis=1)
            value = scores[np.arange(len(top)), top]
            better = value > best
            best[better], first[better] = value[better], top[better] + c
        wins += np.bincount(first, minlength=len(items))
    return float(wins.max() / len(queries)), float((wins == 0).mean())


def _share(rank: float, attainable: int) -> float:
    # Twins need not have equal rows, and may reach a little further than distinct inputs could.
    return rank if math.isnan(rank) else min(1.0, rank / max(1, attainable))


def _sample(n: int) -> NDArray[np.int64]:
    if n <= _SAMPLE:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, _SAMPLE, replace=False))


def _distinct(rows: Rows, inputs: NDArray[np.int64], groups: int) -> float:
    if groups == 0:
        return math.nan
    _, one_each = np.unique(inputs, return_index=True)
    different = rows if groups == len(rows) else rows[one_each]
    return len(merge_identical(different)[0]) / groups


def _near_copies(unit: Rows, inputs: NDArray[np.int64]) -> float:
    if len(unit) < 2 or not np.isfinite(unit).all():
        return math.nan
    cosine = unit @ unit.T
    cosine[inputs[:, None] == inputs[None, :]] = -1.0
    return float((cosine.max(axis=1) > _COPY).mean())


def _dead_columns(stds: NDArray[np.float64]) -> float:
    if not np.isfinite(stds).all():
        return math.nan
    return float((stds <= 1e-4 * stds.max()).mean())


def _plain(value: float | int) -> float | int | None:
    return value if isinstance(value, int) or math.isfinite(value) else None
