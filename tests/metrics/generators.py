"""Embeddings that have fooled a single number, each with the verdict it deserves (F61, F62)."""

from collections.abc import Callable

import numpy as np

DIM = 256

Make = Callable[[int, np.random.Generator], np.ndarray]


def _normal(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((n, DIM))


def _clusters(noise: float) -> Make:
    def make(n: int, rng: np.random.Generator) -> np.ndarray:
        side = np.where(np.arange(n)[:, None] % 2, 1.0, -1.0)
        return side * _normal(1, rng) + noise * _normal(n, rng)

    return make


def _rank_4(noise: float) -> Make:
    return lambda n, rng: rng.standard_normal((n, 4)) @ _normal(4, rng) + noise * _normal(n, rng)


def _few(kinds: int, noise: float) -> Make:
    return lambda n, rng: _normal(kinds, rng)[np.arange(n) % kinds] + noise * _normal(n, rng)


def _one_row(value: float) -> Make:
    def make(n: int, rng: np.random.Generator) -> np.ndarray:
        rows = _normal(n, rng)
        rows[n // 2, 3] = value
        return rows

    return make


def _zero(where: tuple[slice, ...]) -> Make:
    def make(n: int, rng: np.random.Generator) -> np.ndarray:
        rows = _normal(n, rng)
        rows[where] = 0.0
        return rows

    return make


# Every one must be called collapsed.
COLLAPSED: dict[str, Make] = {
    "constant": lambda n, rng: np.ones((n, DIM)),
    "constant_random_row": lambda n, rng: np.repeat(_normal(1, rng), n, axis=0),
    "constant_plus_1e-6": lambda n, rng: 1.0 + 1e-6 * _normal(n, rng),
    "two_clusters": _clusters(0.01),
    "two_noisy_clusters": _clusters(0.1),
    "rank_4": _rank_4(0.0),
    "rank_4_plus_1e-6": _rank_4(1e-6),
    "few_distinct": _few(4, 0.0),
    "few_distinct_but_for_noise": _few(16, 1e-7),
    "nan_in_one_row": _one_row(np.nan),
    "infinity_in_one_row": _one_row(np.inf),
    "half_zero": _zero((slice(None, None, 2),)),
}

# None may be called collapsed; with the verdict it deserves.
SOUND: dict[str, tuple[Make, str]] = {
    "healthy": (_normal, "ok"),
    "healthy_tiny": (lambda n, rng: 1e-20 * _normal(n, rng), "ok"),
    "healthy_but_off_centre": (lambda n, rng: _normal(n, rng) + 3.0, "warning"),
    "half_the_columns_dead": (_zero((slice(None), slice(None, None, 2))), "warning"),
}


def rows_of(make: Make, n: int) -> np.ndarray:
    """The rows of a generator, the same each time."""
    return make(n, np.random.default_rng(n))
