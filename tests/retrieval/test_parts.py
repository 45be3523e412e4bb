from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from brepfind.errors import InputError
from brepfind.retrieval.parts import Filters, part_table, root_from, size, step_file


def rows():
    """A cube of 10 mm, a rod of 100 mm along y, a plate of 40 mm, off the origin."""
    table = pd.DataFrame({"model_id": ["cube", "rod", "plate"], "faces": [6, 3, 20]})
    sides = {"x": [(0, 10), (0, 5), (100, 140)], "y": [(0, 10), (-50, 50), (0, 30)],
             "z": [(0, 10), (0, 5), (7, 8)]}  # fmt: skip
    for axis, ends in sides.items():
        table[f"box_min_{axis}"], table[f"box_max_{axis}"] = np.array(ends, float).T
    return table


@pytest.mark.parametrize(
    ("limits", "passed"),
    [
        ({"max_size": 40}, [True, False, True]),
        ({"min_size": 10.5}, [False, True, True]),
        ({"min_size": 40, "max_size": 40}, [False, False, True]),
        ({"min_faces": 6}, [True, False, True]),
        ({"max_faces": 6, "min_size": 50}, [False, True, False]),
        ({"max_size": 0}, [False, False, False]),
    ],
)
def test_filters(limits, passed):
    assert Filters(**limits).allowed(rows()).tolist() == passed


def test_no_filter_is_none():
    assert Filters().allowed(rows()) is None


@pytest.mark.parametrize(
    ("limits", "complaint"),
    [
        ({"min_size": -1}, "min_size is -1; give a number of at least 0"),
        ({"max_size": float("nan")}, "max_size is nan"),
        ({"max_size": float("inf")}, "max_size is inf"),
        ({"min_faces": 9, "max_faces": 3}, "min_faces is 9 and max_faces 3: no part"),
    ],
)
def test_limits_that_make_no_sense(limits, complaint):
    with pytest.raises(InputError, match=complaint):
        Filters(**limits)


def test_an_index_that_does_not_know_sizes_says_so():
    with pytest.raises(InputError, match="no box_max_x of its parts"):
        Filters(max_size=3).allowed(pd.DataFrame({"model_id": ["x"]}))


def test_the_table_tells_size_and_where_the_file_lies(world, tmp_path):
    (row,) = part_table(world.reader.store, ["plate-2"], "../step").to_dict("records")
    assert size(row) == (30, 15, 1)
    assert step_file(tmp_path / "index", row) == tmp_path / "index/../step/plate-2.step"
    assert row["faces"] == 3
    assert np.isfinite(row["signature"]).all()
    assert size({"faces": 3}) is None
    assert step_file(tmp_path, {"path": "x.step"}) is None


def test_a_root_in_the_project_is_relative_and_one_beside_it_absolute(tmp_path):
    project = tmp_path / "project"
    index = project / "data" / "index"
    assert root_from(project / "data" / "corpus" / "step", index, project) == "../corpus/step"
    assert root_from(Path("/elsewhere/parts"), index, project) == "/elsewhere/parts"
    assert Path(root_from(tmp_path / "beside", index, project)).is_absolute()
