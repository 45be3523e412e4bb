"""Bounds of cubic sides, beside the sides themselves, drawn finely."""

import numpy as np
import pytest

from brepfind.cad.boundary import bounds, hermite

EVERYWHERE = np.linspace(0.0, 1.0, 10_001)


@pytest.mark.parametrize("start", [1.0, 1e-3, 1e-9, 1e-17, 1e-40, 1e-300])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_bounds_hold_a_side_and_touch_it(start: float, scale: float) -> None:
    """Also one that sets off, or arrives, almost along its extreme: its bump is elsewhere."""
    draw = np.random.default_rng(3)
    n = 500
    ends, slopes = scale * draw.standard_normal((2, n, 2, 1))
    slopes[:, 1] = -np.sign(slopes[:, 0]) * np.abs(slopes[:, 1])  # so that it turns once
    slopes[:, 0] *= start
    slopes[::2] = slopes[::2, ::-1]
    found = bounds(n, np.arange(n), ends, slopes)
    drawn = np.stack([hermite(ends[:, :, 0], slopes[:, :, 0], np.full(n, t)) for t in EVERYWHERE])
    np.testing.assert_allclose(found[:, 0], drawn.min(axis=0), atol=1e-7 * scale, rtol=0)
    np.testing.assert_allclose(found[:, 1], drawn.max(axis=0), atol=1e-7 * scale, rtol=0)
