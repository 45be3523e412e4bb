import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from brepfind.graphs.twins import twin_groups


def naive(signatures, relative, absolute):
    n = len(signatures)
    group = list(range(n))
    for i in range(n):
        for j in range(i):
            limit = absolute + relative * np.maximum(abs(signatures[i]), abs(signatures[j]))
            if (abs(signatures[i] - signatures[j]) <= limit).all() and group[i] != group[j]:
                group = [group[j] if g == group[i] else g for g in group]
    names: dict[int, int] = {}
    return [names.setdefault(g, len(names)) for g in group]


def groups(values, relative=0.0, absolute=0.1):
    return twin_groups(np.array(values, float), relative=relative, absolute=absolute).tolist()


def test_by_hand():
    assert groups([[1.0], [5.0], [1.05], [5.2], [1.0]]) == [0, 1, 0, 2, 0]


def test_values_on_both_sides_of_any_border_match():
    for border in np.arange(0, 1, 0.01):
        assert groups([[border - 0.04], [border + 0.04]]) == [0, 0]


def test_every_number_must_match():
    assert groups([[1.0, 1.0], [1.0, 1.2]]) == [0, 1]


def test_a_chain_joins():
    assert groups([[0.0], [0.2], [0.1]]) == [0, 0, 0]


def test_relative_tolerance_grows_with_the_number():
    assert groups([[1e6], [1e6 + 5]], relative=1e-5) == [0, 0]
    assert groups([[1e6], [1e6 + 50]], relative=1e-5) == [0, 1]


def test_a_sign_tells_a_mirrored_part():
    assert groups([[100.0, 0.5], [100.0, -0.5]]) == [0, 1]


def test_nan_matches_nothing():
    assert groups([[np.nan], [1.0], [np.nan], [1.0]]) == [0, 1, 2, 1]


def test_no_parts():
    assert groups(np.zeros((0, 3))) == []


@settings(max_examples=150, deadline=None)
@given(data=st.data(), k=st.integers(1, 3))
def test_against_all_pairs(data, k):
    value = st.one_of(st.integers(-40, 40).map(lambda i: i * 0.05), st.floats(-1e4, 1e4, width=32))
    rows = data.draw(arrays(np.float64, (data.draw(st.integers(1, 25)), k), elements=value))
    relative = np.array([data.draw(st.sampled_from([0.0, 1e-3, 0.1])) for _ in range(k)])
    absolute = np.array([data.draw(st.sampled_from([0.01, 0.05, 1.0])) for _ in range(k)])
    found = twin_groups(rows, relative=relative, absolute=absolute).tolist()
    assert found == naive(rows, relative, absolute)


def test_many_parts_and_a_large_family():
    r = np.random.default_rng(0)
    base = r.normal(size=(8_000, 12)) * 100
    which = r.integers(0, len(base), 20_000)
    which[:3_000] = 0
    rows = base[which]
    rows *= 1 + r.normal(size=rows.shape) * 1e-7
    found = twin_groups(rows, relative=1e-5, absolute=1e-6)
    assert len(set(zip(found, which, strict=True))) == found.max() + 1 == len(set(which))


@pytest.mark.parametrize("bad", [{"absolute": 0.0}, {"relative": 0.5}, {"relative": np.nan}])
def test_tolerances_out_of_range(bad):
    with pytest.raises(ValueError, match="tolerances must be"):
        groups([[1.0]], **bad)
