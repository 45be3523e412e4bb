"""Integrals over the inside of an outline, as weights on a grid of nodes."""

import numpy as np
import pytest

from brepfind.cad.boundary import gauss
from brepfind.cad.quadrature import nodes, trimmed_weights


def outline(corners):
    """Gauss nodes along a polygon, and their dv."""
    places, weights = gauss(5)
    a = np.array(corners, float)
    side = np.roll(a, -1, axis=0) - a
    uv = a[:, None] + side[:, None] * places[:, None]
    return uv.reshape(-1, 2), (side[:, 1:] * weights).ravel()


def quadrature(u_breaks, v_breaks, uv, dv):
    """Nodes in u and in v, and weights, of one face."""
    owner = np.zeros(len(uv), dtype=np.int64)
    (weights,) = trimmed_weights([(u_breaks, v_breaks)], owner, uv, dv)
    return nodes(u_breaks), nodes(v_breaks), weights


TRIANGLE = outline([(0, 0), (3, 0), (0, 2)])


@pytest.mark.parametrize("breaks", [[0, 3], [0, 1, 3], [0, 0.5, 0.5, 2, 3]])
def test_polynomials_over_a_triangle(breaks):
    """With corners (0, 0), (3, 0), (0, 2): u^a v^b gives 3^(a+1) 2^(b+1) a! b! / (a + b + 2)!.

    Breaks may be written twice, as knots are.
    """
    u, v, weights = quadrature(np.array(breaks, float), np.array([0.0, 2.0]), *TRIANGLE)
    factorial = (1, 1, 2, 6, 24)
    for a, b in ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0)):
        expected = 3 ** (a + 1) * 2 ** (b + 1) * factorial[a] * factorial[b] / factorial[a + b + 2]
        found = np.einsum("i,j,ij->", u**a, v**b, weights)
        assert found == pytest.approx(expected, rel=1e-6 if len(breaks) == 2 else 2e-3), (a, b)


def test_an_outline_without_width_encloses_nothing():
    there_and_back = outline([(0, 1), (3, 1)])
    _, _, weights = quadrature(np.array([0.0, 3.0]), np.array([1.0, 1.0]), *there_and_back)
    np.testing.assert_array_equal(weights, 0)
