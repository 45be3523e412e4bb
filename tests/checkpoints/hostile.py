"""More of the zoo: files that mean harm, and what strange tools write."""

import json
import os
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from tests.checkpoints.zoo import CASES as CASES
from tests.checkpoints.zoo import NAN, State, case, model, torch_file

# --- indexes of shards ---------------------------------------------------------------------------


def index(folder: Path, content: str, **shards: State) -> Path:
    for name, state in shards.items():
        save_file(state, folder / f"{name}.safetensors")
    path = folder / "model.safetensors.index.json"
    path.write_text(content)
    return path


@case("unreadable", "an index, where a shard should be")
def index_names_itself(folder: Path) -> Path:
    return index(folder, json.dumps({"weight_map": {"a": "model.safetensors.index.json"}}))


@case("unreadable", "'/etc/hostname', which is outside its own folder")
def index_names_a_file_of_the_system(folder: Path) -> Path:
    return index(folder, json.dumps({"weight_map": {"a": "/etc/hostname"}}))


@case("unreadable", "not an index of shards")
def index_nested_beyond_any_parser(folder: Path) -> Path:
    return index(folder, "[" * 100_000)


@case("unreadable", "'a' stands in it twice")
def index_names_a_key_twice(folder: Path) -> Path:
    twice = '{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}'
    return index(folder, twice, x={"a": torch.rand(2)}, y={"a": torch.rand(2)})


@case("sick", "a: in another shard than indexed")
def index_puts_keys_into_the_wrong_shard(folder: Path) -> Path:
    swapped = json.dumps({"weight_map": {"a": "x.safetensors", "b": "y.safetensors"}})
    return index(folder, swapped, x={"b": torch.rand(2)}, y={"a": torch.rand(2)})


# --- safetensors whose header lies ---------------------------------------------------------------


def safetensors(folder: Path, header: Any, data: bytes, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


TWO = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
for name, header, data, length in (
    ("a_header_longer_than_the_file", {"a": TWO}, bytes(8), 1 << 20),
    ("a_header_longer_than_any_file", {"a": TWO}, bytes(8), 1 << 63),
    ("a_header_of_no_length", {"a": TWO}, bytes(8), 0),
    ("a_header_cut_short", {"a": TWO}, bytes(8), 20),
    ("bytes_left_over", {"a": TWO}, bytes(16), None),
    ("tensors_over_each_other", {"a": TWO, "b": TWO | {"data_offsets": [4, 12]}}, bytes(12), None),
    ("a_shape_without_end", {"a": TWO | {"shape": [1 << 40, 1 << 40]}}, bytes(8), None),
    ("a_dtype_from_the_future", {"a": TWO | {"dtype": "F1"}}, bytes(8), None),
):

    def lie(folder: Path, _lie: tuple[Any, bytes, int | None] = (header, data, length)) -> Path:
        return safetensors(folder, *_lie)

    lie.__name__ = f"safetensors_{name}"
    case("unreadable", "not a whole safetensors file")(lie)


@case("unreadable", "not a whole safetensors file")
def safetensors_with_one_name_twice(folder: Path) -> Path:
    other = json.dumps(TWO | {"data_offsets": [8, 16]})
    text = f'{{"a": {json.dumps(TWO)}, "a": {other}}}'
    return safetensors(folder, text.encode(), bytes(16))


# --- few bytes that ask for much -----------------------------------------------------------------


class _AsksForMemory:
    def __reduce__(self) -> tuple[Any, ...]:
        return bytearray, (1 << 50,)


@case("unreadable", "more memory than there is")
def asks_for_more_memory_than_there_is(folder: Path) -> State:
    return {**model(), "much": _AsksForMemory()}


@case("unreadable", "unpacks to a suspicious size")
def zip_bomb(folder: Path) -> Path:
    path = torch_file(folder, model())
    with zipfile.ZipFile(path, "a", compression=zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/data/99", bytes(20_000_000))
    return path


@case("healthy", "(1 tensor, 800 KB)")
def windows_that_overlap_without_end(folder: Path) -> State:
    """10^10 values over 200,000 stored ones."""
    return {"w": torch.rand(200_000).as_strided((100_000, 100_000), (1, 1))}


@case("sick", "w: 5.26% NaN")
def nan_under_windows_that_overlap(folder: Path) -> State:
    """One of the 19 stored values that 10 windows of 10 show."""
    under = torch.rand(20)
    under[7] = NAN
    return {"w": under.as_strided((10, 10), (1, 1))}


@case("healthy", "(1 tensor, 12 B)")
def one_row_a_million_million_times(folder: Path) -> State:
    return {"w": torch.rand(1, 3).expand(10**12, 3)}


@case("healthy", "(9 tensors")
def a_long_history(folder: Path) -> State:
    """More floats than a tree may point to again; they are all there, so all are read."""
    return {"model": model(), "losses": [0.5] * 1_100_000, "last": torch.rand(2)}


@case("sick", "losses.2: is NaN (and 1 more)")
def two_histories_with_many_nans(folder: Path) -> State:
    return {"model": model(), "losses": [0.5, 0.25, NAN, NAN, NAN], "scores": (NAN, 0.5)}


# --- names ---------------------------------------------------------------------------------------


@case("sick", r"\x1b[2Jw\nHEALTHY: 50.00% NaN")
def a_name_that_steers_the_terminal(folder: Path) -> State:
    return {"\x1b[2Jw\nHEALTHY": torch.tensor([NAN, 1.0])}


@case("sick", r"w\ud800: 50.00% NaN")
def a_name_that_is_not_text(folder: Path) -> State:
    return {"w\ud800": torch.tensor([NAN, 1.0])}


@case("sick", "(no name): 50.00% NaN")
def a_tensor_alone(folder: Path) -> torch.Tensor:
    return torch.tensor([NAN, 1.0])


@case("sick", "w" * 79 + "…")
def a_name_of_a_megabyte(folder: Path) -> State:
    return {"w" * 1_000_000: torch.tensor([NAN, 1.0])}


@case("unreadable", "two tensors of the file would both be called '1'")
def a_number_and_its_text_as_names(folder: Path) -> State:
    return {1: torch.rand(3), "1": torch.rand(3)}  # type: ignore[dict-item]


@case("sick", "embed.weight: mis-typed: float16", like=True, line="P9")
def a_whole_model_in_half_precision(folder: Path) -> State:
    """What a loader that keeps the file's dtype would train in float16 without a word."""
    half = {name: value.half() for name, value in model().items() if value.is_floating_point()}
    return model() | half


# --- containers and layouts ----------------------------------------------------------------------


@case("sick", "w: 50.00% Inf")
def weights_as_numpy_arrays(folder: Path) -> State:
    return {"state_dict": {"w": np.array([1.0, np.inf], np.float32), "b": np.arange(3.0)}}


@case("sick", "found.0: all NaN")
def nan_in_a_set(folder: Path) -> State:
    return {"found": {torch.tensor([NAN])}, "w": torch.rand(3)}


def _nested(layout: torch.layout) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.rand(3), torch.tensor([NAN, 1.0])], layout=layout)


@case("sick", "n.values: 20.00% NaN")
def nan_in_rows_of_unequal_length(folder: Path) -> State:
    return {"n": _nested(torch.strided), "w": torch.rand(3)}


@case("sick", "n.values: 20.00% NaN")
def nan_in_jagged_rows(folder: Path) -> State:
    return {"n": _nested(torch.jagged), "w": torch.rand(3)}


@case("sick", "is inconsistent with indices")
def a_sparse_index_outside_its_shape(folder: Path) -> State:
    indices, values = torch.tensor([[0, 5]]), torch.tensor([1.0, 2.0])
    return {"w": torch.sparse_coo_tensor(indices, values, (3,), check_invariants=False)}


@case("sick", "w: 12.50% NaN")
def nan_in_blocks_of_a_sparse_tensor(folder: Path) -> State:
    dense = torch.eye(4)
    dense[2, 2] = NAN
    return {"w": dense.to_sparse_bsr((2, 2))}


# --- other formats -------------------------------------------------------------------------------


@case("unreadable", "TorchScript")
def a_real_torch_script(folder: Path) -> Path:
    archive = torch_file(folder, {"code": torch.zeros(1)})
    with zipfile.ZipFile(archive, "a") as whole:
        for name in ("model/code/__torch__.py", "model/constants.pkl"):
            whole.writestr(name, b"")
    return archive


@case("unreadable", "old tar format")
def torch_of_2016(folder: Path) -> Path:
    path = folder / "model.pt"
    with tarfile.open(path, "w") as archive:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            archive.addfile(tarfile.TarInfo(name))
    return path


@case("unreadable", "operand 149")
def a_newer_pickle_protocol(folder: Path) -> Path:
    return torch_file(folder, model(), pickle_protocol=4)


@case("healthy", "all finite")
def bytes_in_the_other_order(folder: Path) -> Path:
    path = torch_file(folder, {"w": torch.arange(1.0, 300_000.0)})
    other = folder / "big.pt"
    change: dict[str, Callable[[bytes], bytes]] = {
        "byteorder": lambda _: b"big",
        "0": lambda value: np.frombuffer(value, "<f4").astype(">f4").tobytes(),
    }
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            value = old.read(name)
            new.writestr(name, change.get(name.rsplit("/", 1)[-1], bytes)(value))
    return other


@case("unreadable", "not a regular file")
def a_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "model.pt")
    return folder / "model.pt"


@case("unreadable", "not a regular file")
def bytes_without_end(folder: Path) -> Path:
    return Path("/dev/zero")
