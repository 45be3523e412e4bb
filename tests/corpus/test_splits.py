"""Splits: no shape on two sides, the user's wish honoured, and few parts move."""

import numpy as np
import pandas as pd
import pytest

from brepfind.corpus.splits import SplitConfig, divide, leaking_parts, make_split, uniform
from brepfind.errors import CheckFailed, InputError


def config(**changes: object) -> SplitConfig:
    values = {"test": 0.25, "validation": 0.1, "seed": 0, "min_parts": 1, "allow_leaks": False}
    return SplitConfig.model_validate(values | changes)


def ids(n: int) -> list[str]:
    return [f"part_{i:04d}" for i in range(n)]


def alone(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.int64)


def shares(table: pd.DataFrame) -> dict[str, int]:
    return table["split"].value_counts().to_dict()


def test_a_quarter_of_each_family_is_for_test() -> None:
    families = ["bolt"] * 20 + ["nut"] * 40
    table = make_split(ids(60), families, alone(60), None, config())
    assert list(table["model_id"]) == ids(60)
    assert shares(table.iloc[:20])["test"] == 5
    assert shares(table.iloc[20:])["test"] == 10
    assert shares(table)["validation"] == 6


def test_many_small_families_come_to_a_quarter_together() -> None:
    families = [f"family {i // 3}" for i in range(600)]
    table = make_split(ids(600), families, alone(600), None, config())
    assert 130 <= shares(table)["test"] <= 170
    assert 40 <= shares(table)["validation"] <= 80


def test_what_pretraining_has_seen_is_for_train_with_its_twins_and_moves_nothing_else() -> None:
    groups = np.repeat(np.arange(40), 2)
    plain = make_split(ids(80), ["x"] * 80, groups, None, config())
    held = plain["model_id"][plain["split"] == "test"].tolist()
    table = make_split(ids(80), ["x"] * 80, groups, None, config(), known=held[:1])
    changed = table["split"] != plain["split"]
    assert table["model_id"][changed].tolist() == held[:2]  # it and its twin
    assert set(table["split"][changed]) == {"train"}


def test_the_user_may_ask_for_test_what_pretraining_has_seen() -> None:
    asked = ["test", *[""] * 39]
    table = make_split(ids(40), ["x"] * 40, alone(40), asked, config(), known=ids(1))
    assert table["split"][0] == "test"


def test_input_order_does_not_matter() -> None:
    table = make_split(ids(50), ["x"] * 50, alone(50), None, config())
    order = np.random.default_rng(0).permutation(50)
    shuffled = make_split([ids(50)[i] for i in order], ["x"] * 50, alone(50)[order], None, config())
    pd.testing.assert_frame_equal(table, shuffled)


def test_another_seed_is_another_division() -> None:
    first = make_split(ids(80), ["x"] * 80, alone(80), None, config())
    second = make_split(ids(80), ["x"] * 80, alone(80), None, config(seed=1))
    assert list(first["split"]) != list(second["split"])


def test_twins_stay_together_even_across_families() -> None:
    groups = np.repeat(np.arange(30), 2)
    families = ["spacer", "bushing"] * 30
    table = make_split(ids(60), families, groups, None, config())
    assert (table.groupby(groups)["split"].nunique() == 1).all()
    assert shares(table)["test"] == pytest.approx(15, abs=2)


def test_a_new_part_moves_few_others() -> None:
    before = make_split(ids(200), ["x"] * 200, alone(200), None, config())
    more = [*ids(200), "another"]
    after = make_split(more, ["x"] * 201, alone(201), None, config())
    both = before.merge(after, on="model_id", suffixes=("", "_after"))
    assert (both["split"] != both["split_after"]).sum() <= 2


def test_another_familys_growth_moves_nothing() -> None:
    before = make_split(ids(40), ["x"] * 40, alone(40), None, config())
    more = [*ids(40), *(f"y{i}" for i in range(33))]
    after = make_split(more, ["x"] * 40 + ["y"] * 33, alone(73), None, config())
    both = before.merge(after, on="model_id", suffixes=("", "_after"))
    assert (both["split"] == both["split_after"]).all()


def test_the_users_split_is_kept_and_the_rest_divided() -> None:
    user = ["test"] * 3 + ["train"] * 3 + ["validation"] + [""] * 33
    table = make_split(ids(40), ["x"] * 40, alone(40), user, config())
    assert list(table["split"][:7]) == user[:7]
    assert set(table["split"]) == {"train", "validation", "test"}
    assert shares(table.iloc[7:])["test"] == pytest.approx(8, abs=1)


def test_a_twin_of_a_placed_part_goes_to_its_side() -> None:
    groups = alone(40)
    groups[30] = groups[0]
    table = make_split(ids(40), ["x"] * 40, groups, ["test"] + [""] * 39, config())
    assert table["split"][30] == "test"


def test_a_leaking_split_of_the_users_is_refused_with_names() -> None:
    groups = alone(12)
    groups[7] = groups[2]
    user = ["train", "validation", "test"] * 4
    with pytest.raises(CheckFailed, match=r"split\.leaking_parts is 2 \(part_0002, part_0007\)"):
        make_split(ids(12), ["x"] * 12, groups, user, config())


def test_a_leaking_split_may_be_allowed() -> None:
    groups = alone(12)
    groups[7] = groups[2]
    user = ["train", "validation", "test"] * 4
    table = make_split(ids(12), ["x"] * 12, groups, user, config(allow_leaks=True))
    assert list(table["split"]) == user
    assert leaking_parts(groups, user) == [2, 7]


def test_too_few_parts_stop_the_run() -> None:
    with pytest.raises(CheckFailed, match=r"split\.validation\.parts is 0"):
        make_split(ids(3), ["x"] * 3, alone(3), ["train", "train", "test"], config())
    with pytest.raises(CheckFailed, match=r"split\.test\.parts is 5"):
        make_split(ids(20), ["x"] * 20, alone(20), None, config(validation=0.3, min_parts=6))
    with pytest.raises(CheckFailed, match=r"split\.train\.parts is 0"):
        make_split([], [], alone(0), None, config())


def test_shares_must_leave_something_to_train_on() -> None:
    with pytest.raises(InputError, match="leave no part to train on"):
        make_split(ids(4), ["x"] * 4, alone(4), None, config(test=0.6, validation=0.4))


def test_an_id_that_stands_twice_is_refused() -> None:
    with pytest.raises(InputError, match="'a' stands twice"):
        make_split(["a", "a"], ["", ""], alone(2), None, config())


def test_one_huge_twin_group_is_trained_on() -> None:
    sides = divide("x", [("a", 0, 90), *[(f"b{i}", i + 1, 1) for i in range(10)]], config())
    assert sides[0] == "train"


def test_uniform_is_the_same_everywhere() -> None:
    assert uniform(0, "part", "a") == pytest.approx(0.4798, abs=1e-4)
