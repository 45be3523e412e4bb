import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brepfind.models.ragged import Layout, cut_groups, owners_of, starts_of


def _cost(groups: list[list[int]], sizes: list[int], group_cost: int, token_cost: int = 0) -> int:
    longest = [max(sizes[i] for i in group) for group in groups]
    cells = [len(g) * n * (n + token_cost) for g, n in zip(groups, longest, strict=True)]
    return sum(cells) + group_cost * len(groups)


@pytest.mark.parametrize(
    ("sizes", "group_cost", "expected"),
    [
        ([3], 10, [[0]]),
        ([4, 4, 4], 0, [[0, 1, 2]]),
        ([9, 2, 9, 2], 1, [[1, 3], [0, 2]]),  # 2 * 4 + 2 * 81 + 2 < 4 * 81 + 1
        ([9, 8], 100, [[1, 0]]),  # padding 17 cells is cheaper than a group
    ],
)
def test_groups_worked_by_hand(
    sizes: list[int], group_cost: int, expected: list[list[int]]
) -> None:
    assert cut_groups(sizes, group_cost) == expected


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=9), st.integers(0, 400), st.integers(0, 50)
)
def test_no_cut_of_the_sorted_sizes_is_cheaper(
    sizes: list[int], group_cost: int, token_cost: int
) -> None:
    groups = cut_groups(sizes, group_cost, token_cost)
    assert sorted(i for group in groups for i in group) == list(range(len(sizes)))
    order = sorted(range(len(sizes)), key=lambda i: sizes[i])
    cheapest = min(
        _cost(_cut(order, cuts), sizes, group_cost, token_cost)
        for cuts in range(2 ** (len(sizes) - 1))
    )
    assert _cost(groups, sizes, group_cost, token_cost) == cheapest


def _cut(order: list[int], cuts: int) -> list[list[int]]:
    """Cut between places where ``cuts`` has a bit."""
    groups = [[order[0]]]
    for place, part in enumerate(order[1:]):
        if cuts >> place & 1:
            groups.append([])
        groups[-1].append(part)
    return groups


def test_one_large_part_does_not_pad_sixty_small_ones() -> None:
    sizes = [401, *range(6, 66)]
    groups = cut_groups(sizes, 1_500)
    assert groups[-1] == [0]
    cells = sum(size**2 for size in sizes)
    assert _cost(groups, sizes, 0) < 1.2 * cells


def test_layout_worked_by_hand() -> None:
    layout = Layout.of(torch.tensor([2, 1, 2]))
    # One group of three, padded to two faces; the part of one face comes first.
    (group,) = layout.groups
    assert (group.counts, group.length, group.start, group.end) == ((1, 2, 2), 3, 0, 9)
    assert group.pair_slices == ((4, 1), (0, 2), (5, 2))
    assert layout.counts == (2, 1, 2)
    assert layout.token_rows.tolist() == [3, 0, 6]
    assert layout.face_rows.tolist() == [4, 5, 1, 7, 8]
    assert layout.sources.tolist() == [0, 3, 0, 0, 1, 2, 0, 4, 5]
    assert layout.positions.tolist() == [0, 1, 2] * 3
    assert starts_of(torch.tensor([2, 0, 4])).tolist() == [0, 2, 2]
    assert owners_of(torch.tensor([2, 0, 4]), 6).tolist() == [0, 0, 2, 2, 2, 2]


def test_in_and_out_of_the_groups_is_the_identity() -> None:
    layout = Layout.of(torch.tensor([3, 250, 1, 4, 250]))
    assert [group.counts for group in layout.groups] == [(1, 3, 4), (250, 250)]
    faces = torch.randn(508, 2)
    token = torch.randn(1, 2)
    flat = layout.with_token(token, faces)
    assert torch.equal(flat[layout.face_rows], faces)
    assert torch.equal(flat[layout.token_rows], token.expand(5, 2))
