"""Embeddings that have fooled a single number, each with the verdict it deserves (F61, F62)."""

import numpy as np

DIM = 256


def collapsed(n, seed=0):
    """Name to rows; every one must be called collapsed."""
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal
    side = np.where(np.arange(n)[:, None] % 2, 1.0, -1.0)
    one_nan = normal((n, DIM))
    one_nan[n // 2, 3] = np.nan
    half_zero = normal((n, DIM))
    half_zero[::2] = 0.0
    return {
        "constant": np.ones((n, DIM)),
        "constant_random_row": np.repeat(normal((1, DIM)), n, axis=0),
        "constant_plus_1e-6": 1.0 + 1e-6 * normal((n, DIM)),
        "two_clusters": side * normal((1, DIM)) + 0.01 * normal((n, DIM)),
        "two_noisy_clusters": side * normal((1, DIM)) + 0.1 * normal((n, DIM)),
        "rank_4": normal((n, 4)) @ normal((4, DIM)),
        "rank_4_plus_1e-6": normal((n, 4)) @ normal((4, DIM)) + 1e-6 * normal((n, DIM)),
        "few_distinct": normal((4, DIM))[np.arange(n) % 4],
        "few_distinct_but_for_noise": normal((16, DIM))[np.arange(n) % 16]
        + 1e-7 * normal((n, DIM)),
        "nan_in_one_row": one_nan,
        "infinity_in_one_row": np.where(np.isnan(one_nan), np.inf, one_nan),
        "half_zero": half_zero,
    }


def sound(n, seed=0):
    """Name to (rows, verdict); none may be called collapsed."""
    normal = np.random.default_rng(seed).standard_normal
    half_the_columns = normal((n, DIM))
    half_the_columns[:, ::2] = 0.0
    return {
        "healthy": (normal((n, DIM)), "ok"),
        "healthy_tiny": (1e-20 * normal((n, DIM)), "ok"),
        "healthy_but_off_centre": (normal((n, DIM)) + 3.0, "warning"),
        "half_the_columns_dead": (half_the_columns, "warning"),
    }
