import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brepfind.models.ragged import Layout, cut_groups


def _cost(groups: list[list[int]], sizes: list[int], group_cost: int) -> int:
    return sum(len(g) * max(sizes[i] for i in g) ** 2 + group_cost for g in groups)


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


@given(st.lists(st.integers(1, 30), min_size=1, max_size=9), st.integers(0, 400))
def test_no_cut_of_the_sorted_sizes_is_cheaper(sizes: list[int], group_cost: int) -> None:
    groups = cut_groups(sizes, group_cost)
    assert sorted(i for group in groups for i in group) == list(range(len(sizes)))
    order = sorted(range(len(sizes)), key=lambda i: sizes[i])
    cheapest = min(
        _cost(_cut(order, cuts), sizes, group_cost) for cuts in range(2 ** (len(sizes) - 1))
    )
    assert _cost(groups, sizes, group_cost) == cheapest


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
    layout = Layout.of(torch.tensor([2, 1, 2]), torch.tensor([2, 0, 4]))
    assert layout.face_starts.tolist() == [0, 2, 3]
    assert layout.edge_starts.tolist() == [0, 2, 2]
    assert layout.pair_starts.tolist() == [0, 4, 5]
    assert layout.token_rows.tolist() == [0, 3, 5]
    assert layout.face_rows.tolist() == [1, 2, 4, 6, 7]
    assert layout.positions.tolist() == [0, 1, 2, 0, 1, 0, 1, 2]
    assert layout.part_of_edge.tolist() == [0, 0, 2, 2, 2, 2]
    assert layout.part_of_pair.tolist() == [0, 0, 0, 0, 1, 2, 2, 2, 2]


def test_padding_and_back_is_the_identity() -> None:
    layout = Layout.of(torch.tensor([3, 50, 1, 4, 50]), torch.zeros(5, dtype=torch.int64))
    assert len(layout.groups) > 1
    x = torch.arange(108 + 5)
    padded = torch.cat([x[group.tokens].flatten() for group in layout.groups])
    assert torch.equal(padded[layout.unpad], x)
