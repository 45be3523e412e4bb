"""Entries end to end in a file, taken one by one."""

import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from brepfind.training.ragged import Ragged, write_ragged


def test_entries_come_back_and_none_is_kept_while_writing(tmp_path: Path) -> None:
    before: list[weakref.ref[Tensor]] = []

    def entries() -> Iterator[Tensor]:
        for number in range(5):
            assert sum(one() is not None for one in before) <= 1
            entry = torch.full((number, 3), float(number))
            before.append(weakref.ref(entry))
            yield entry
            del entry

    write_ragged(tmp_path / "new/piece", "x", entries())
    found = Ragged([tmp_path / "new/piece"])
    for number in range(5):
        assert torch.equal(found.entry("x", number), torch.full((number, 3), float(number)))
    assert [path.name for path in sorted((tmp_path / "new").iterdir())] == [
        "piece",
        "piece.sha256",
    ]


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_the_numbers_keep_their_type(tmp_path: Path, dtype: torch.dtype) -> None:
    write_ragged(tmp_path / "piece", "x", iter([torch.tensor([1, 2], dtype=dtype)]))
    assert Ragged([tmp_path / "piece"]).entry("x", 0).dtype == dtype


def test_a_column_without_entries_is_a_file(tmp_path: Path) -> None:
    write_ragged(tmp_path / "piece", "x", iter([]))
    assert (tmp_path / "piece").stat().st_size > 0


@pytest.mark.parametrize("other", [torch.zeros(1, 3), torch.zeros(1, 2, dtype=torch.int64)])
def test_entries_of_another_kind_are_refused(tmp_path: Path, other: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"x: entry 1 is .*, the first"):
        write_ragged(tmp_path / "file", "x", [torch.zeros(4, 2), other])
    assert not (tmp_path / "file").exists()
