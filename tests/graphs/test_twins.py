import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from brepfind.cad.signature import SIGNATURE_RTOL, SIGNATURE_SIZE
from brepfind.graphs.twins import groups_within, twin_groups


def naive(rows, tolerance):
    n = len(rows)
    group = list(range(n))
    for i in range(n):
        for j in range(i):
            if (abs(rows[i] - rows[j]) <= tolerance).all() and group[i] != group[j]:
                group = [group[j] if g == group[i] else g for g in group]
    names: dict[int, int] = {}
    return [names.setdefault(g, len(names)) for g in group]


def groups(rows):
    return groups_within(np.array(rows, float), 1.0).tolist()


def test_by_hand():
    assert groups([[10.0], [50.0], [10.5], [52.0], [10.0]]) == [0, 1, 0, 2, 0]


def test_values_on_both_sides_of_any_border_match():
    for border in np.arange(0, 10, 0.01):
        assert groups([[border - 0.45], [border + 0.45]]) == [0, 0]


def test_every_number_must_match():
    assert groups([[1.0, 1.0], [1.0, 2.5]]) == [0, 1]


def test_a_chain_joins():
    assert groups([[0.0], [1.75], [0.875]]) == [0, 0, 0]


def test_what_is_not_finite_matches_nothing():
    assert groups([[np.nan], [1.0], [np.nan], [1.0], [np.inf]]) == [0, 1, 2, 1, 3]


def test_no_parts_and_no_signatures():
    assert groups(np.zeros((0, 3))) == []
    assert twin_groups(np.zeros((3, 0))).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="must have 11"):
        twin_groups(np.zeros((3, 2)))


@settings(max_examples=150, deadline=None)
@given(data=st.data(), k=st.integers(1, 3))
def test_against_all_pairs(data, k):
    # Multiples of 1/4 put many values on a border and many pairs at exactly the tolerance.
    value = st.one_of(st.integers(-20, 20).map(lambda i: i / 4), st.floats(-1e4, 1e4, width=32))
    rows = data.draw(arrays(np.float64, (data.draw(st.integers(1, 25)), k), elements=value))
    assert groups_within(rows, 1.0).tolist() == naive(rows, 1.0)


def test_many_parts_and_a_large_family():
    r = np.random.default_rng(0)
    base = r.normal(size=(8_000, 12)) * 1e7
    which = r.integers(0, len(base), 20_000)
    which[:3_000] = 0
    found = groups_within(base[which] + r.normal(size=(20_000, 12)) * 0.05, 1.0)
    assert len(set(zip(found, which, strict=True))) == found.max() + 1 == len(set(which))


SIGNATURE = np.array([50.0, 80.0, 10.0, 20.0, 30.0, 35.0, 2.0, 0.5, -0.7, 0.1, -0.01])
HANDED = (7, 8, 9, 10)


def twins_of(changed):
    return twin_groups(np.stack([SIGNATURE, changed])).tolist() == [0, 0]


def test_a_signature_matches_within_its_tolerance():
    assert len(SIGNATURE) == SIGNATURE_SIZE
    for i in range(SIGNATURE_SIZE):
        for share, expected in ((0.5, True), (-0.5, True), (3.0, False), (-3.0, False)):
            changed = SIGNATURE.copy()
            changed[i] += share * SIGNATURE_RTOL * SIGNATURE[1]
            assert twins_of(changed) is expected, (i, share)


def test_resized_and_mirrored_signatures_are_no_twins():
    assert not twins_of(SIGNATURE * 1.001)
    mirrored = SIGNATURE.copy()
    mirrored[list(HANDED)] *= -1
    assert not twins_of(mirrored)
    symmetric = SIGNATURE.copy()
    symmetric[list(HANDED)] = 0.0
    assert twin_groups(np.stack([symmetric, -0.0 + symmetric])).tolist() == [0, 0]


@pytest.mark.parametrize("one", HANDED)
def test_one_sign_of_handedness_tells_a_mirror_image(one):
    """No pseudo-scalar sees every handed shape, so each alone must be enough."""
    symmetric = SIGNATURE.copy()
    symmetric[list(HANDED)] = 0.0
    left, right = symmetric.copy(), symmetric.copy()
    left[one], right[one] = 0.01, -0.01
    assert twin_groups(np.stack([left, right])).tolist() == [0, 1]


def test_a_volume_of_zero_is_no_error():
    flat = SIGNATURE.copy()
    flat[0] = 0.0
    assert twin_groups(np.stack([flat, flat, SIGNATURE])).tolist() == [0, 0, 1]
