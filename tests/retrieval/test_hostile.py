"""Files made to fool or to break the commands on anyone's embeddings.

Each gets a clear verdict: 1 sick, 2 not readable or too few, with a word that says why; never a
traceback, and 0 only for what is sound in an odd form.
"""

import json
import os
import pickle
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from brepfind.errors import BrepfindError
from brepfind.retrieval.commands import evaluate_of, vitals_of

N, D = 200, 16


def normal(n=N, d=D, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


CAD, TEXT = normal(), normal() + normal(seed=1) / 2


def changed(value, at=(7, 3)):
    rows = CAD.astype(np.float64)
    rows[at] = value
    return rows


def run(command, path):
    """The exit code, and what is printed."""
    try:
        outcome = command(path)
    except BrepfindError as error:
        return error.exit_code, str(error)
    json.dumps(outcome.data, allow_nan=False)
    return outcome.code, outcome.text


class Trap:
    """Runs a command when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch sprung",)


def save_object(path):
    np.save(path, np.array([Trap()] * 100, object).reshape(10, 10), allow_pickle=True)


def save_pickle(path):
    path.write_bytes(pickle.dumps(Trap()))


def save_archive(path):
    with path.open("wb") as file:
        np.savez(file, a=CAD)


def save_torch(path):
    torch.save({"cad": torch.from_numpy(CAD)}, path)


def claim_terabytes(path):
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (250000000000, 4), }".ljust(117)
    path.write_bytes(b"\x93NUMPY\x01\x00v\x00" + header.encode() + b"\n" + bytes(64))


def cut_short(path):
    np.save(path, CAD)
    path.write_bytes(path.read_bytes()[:-5])


def array(rows):
    return lambda path: np.save(path, rows)


MATRICES = {
    # sound, in an odd form
    "float16": (array(CAD.astype(np.float16)), 0, "  ok"),
    "float64": (array(CAD.astype(np.float64)), 0, "  ok"),
    "long double": (array(CAD.astype(np.longdouble)), 0, "  ok"),
    "big endian": (array(CAD.astype(">f4")), 0, "  ok"),
    "column-major": (array(np.asfortranarray(CAD)), 0, "  ok"),
    "integers": (array((100 * CAD).astype(np.int64)), 0, "  ok"),
    "huge": (array(1e300 * CAD.astype(np.float64)), 0, "  ok"),
    "denormal": (array(1e-310 * CAD.astype(np.float64)), 0, "  ok"),
    "on its side, few": (array(normal(D, N)), 2, "TOO FEW"),
    "on its side, many": (array(normal(100, 300)), 0, "is it transposed?"),
    # sick
    "NaN in one number": (array(changed(np.nan)), 1, "nonfinite_rows"),
    "infinity in one number": (array(changed(-np.inf)), 1, "nonfinite_rows"),
    "a zero row": (array(changed(0.0, 7)), 1, "zero_rows"),
    "all zero": (array(np.zeros((N, D))), 1, "COLLAPSED"),
    "all NaN": (array(np.full((N, D), np.nan)), 1, "COLLAPSED"),
    "one column": (array(CAD[:, :1]), 1, "COLLAPSED"),
    "row numbers": (array(np.arange(N * D).reshape(N, D)), 1, "COLLAPSED"),
    "zeros of int": (array(np.zeros((N, D), np.int8)), 1, "COLLAPSED"),
    # too few
    "no row": (array(CAD[:0]), 2, "TOO FEW"),
    "one row": (array(CAD[:1]), 2, "TOO FEW"),
    "63 rows": (array(CAD[:63]), 2, "TOO FEW"),
    # not readable
    "no column": (array(CAD[:, :0]), 2, "no matrix of numbers"),
    "a vector": (array(CAD[0]), 2, "no matrix of numbers"),
    "a number": (array(np.float32(1.0)), 2, "no matrix of numbers"),
    "three dimensions": (array(CAD.reshape(N, 4, 4)), 2, "no matrix of numbers"),
    "complex": (array(CAD.astype(np.complex64)), 2, "holds complex64, not numbers"),
    "booleans": (array(CAD > 0), 2, "holds bool, not numbers"),
    "words": (array(CAD.astype(str)), 2, "not numbers"),
    "times": (array(np.zeros((N, D), "M8[s]")), 2, "not numbers"),
    "records": (array(np.zeros((N, D), [("x", "f4")])), 2, "not numbers"),
    "objects": (save_object, 2, "not a plain .npy file"),
    "a pickle": (save_pickle, 2, "not a plain .npy file"),
    "an archive": (save_archive, 2, "an archive of several"),
    "a checkpoint": (save_torch, 2, "not a plain .npy file"),
    "empty": (lambda path: path.write_bytes(b""), 2, "not a plain .npy file"),
    "a folder": (lambda path: path.mkdir(), 2, "no such file"),
    "terabytes claimed": (claim_terabytes, 2, "not a plain .npy file"),
    "cut short": (cut_short, 2, "not a plain .npy file"),
}


@pytest.mark.parametrize("name", MATRICES)
def test_vitals_of_a_matrix(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    make, code, word = MATRICES[name]
    make(tmp_path / "x.npy")
    found, said = run(vitals_of, tmp_path / "x.npy")
    assert found == code
    assert word in said
    assert not (tmp_path / "sprung").exists()


def lists(rows):
    return pa.array(list(rows))


def table(**columns):
    whole = {"model_id": [f"p{i}" for i in range(N)], "cad": lists(CAD), "text": lists(TEXT)}
    return lambda path: pq.write_table(pa.table(whole | columns), path)


def without(*names):
    whole = {"model_id": [f"p{i}" for i in range(N)], "cad": lists(CAD), "text": lists(TEXT)}
    return lambda path: pq.write_table(
        pa.table({name: column for name, column in whole.items() if name not in names}), path
    )


def twice_called(path):
    columns = [lists(CAD), lists(CAD), lists(TEXT)]
    pq.write_table(pa.Table.from_arrays(columns, names=["cad", "cad", "text"]), path)


def of_two_halves(second):
    """Every part twice, with other CAD rows the second time."""
    ids = [f"p{i % 100}" for i in range(N)]
    rows = np.concatenate([CAD[:100], second])
    return table(model_id=ids, cad=lists(rows))


IDS = [f"p{i}" for i in range(N)]
NAN_TWICE = CAD[:100].copy()
NAN_TWICE[5, 5] = np.nan
TABLES = {
    "sound": (table(), 0, "R_at_1"),
    "no ids": (without("model_id"), 0, "R_at_1"),
    "an id missing": (table(model_id=[*IDS[:-1], None]), 2, f"row {N - 1} has no model_id"),
    "one id with two CAD rows": (of_two_halves(normal(100, seed=9)), 2, "two different cad rows"),
    "one id with a NaN the second time": (of_two_halves(NAN_TWICE), 2, "two different cad rows"),
    "ragged": (table(cad=pa.array([[1.0], *CAD[1:].tolist()])), 2, "differ in length"),
    "a list missing": (table(cad=pa.array([None, *CAD[1:].tolist()])), 2, "nothing in row 0"),
    "a number missing": (table(cad=pa.array([[None, *CAD[0, 1:].tolist()], *CAD[1:].tolist()])),
                         1, "nonfinite_rows"),
    "lists of lists": (table(cad=pa.array([[row.tolist()] for row in CAD])), 2, "not numbers"),
    "lists of words": (table(cad=pa.array([["a", "b"]] * N)), 2, "not numbers"),
    "empty lists": (table(cad=pa.array([[]] * N, pa.list_(pa.float32()))), 2, "dimensions"),
    "numbers for lists": (table(cad=CAD[:, 0]), 2, "no column 'cad' of lists"),
    "no text": (without("text"), 2, "no column 'text' of lists"),
    "two columns of a name": (twice_called, 2, "Multiple matches"),
    "other dimensions": (table(text=lists(TEXT[:, :8])), 2, "must share one space"),
    "a level that is no number": (table(level=["deep"] * N), 2, "'level' is 'deep' in row 0"),
    "a level out of range": (table(level=[300] * N), 2, "'level' is 300 in row 0"),
    "a level missing": (table(level=[0.0] * (N - 1) + [None]), 2, f"in row {N - 1}"),
    "half a twin": (table(twin=[0.5] * N), 2, "'twin' is 0.5 in row 0"),
    "a family missing": (table(family=["nut", None] * (N // 2)), 0, "R_at_1"),
    "all parts twins": (table(twin=[7] * N), 2, "TOO FEW"),
    "all captions one": (table(caption=["a part"] * N), 2, "TOO FEW"),
    "all captions missing": (table(caption=pa.array([None] * N, pa.string())), 2, "TOO FEW"),
    "text is CAD": (table(text=lists(CAD)), 1, "same_rows"),
    "one text tower": (table(text=lists(np.ones((N, D)))), 1, "column_std"),
    "NaN in a text": (table(text=lists(np.where(TEXT[3, 3] == TEXT, np.nan, TEXT))), 1,
                      "nonfinite_rows"),
    "a part twice": (table(model_id=[*IDS[:-1], "p0"], cad=lists([*CAD[:-1], CAD[0]])), 0,
                     "R_at_1"),
    "empty": (lambda path: path.write_bytes(b""), 2, "not a Parquet file"),
    "cut short": (lambda path: path.write_bytes(b"PAR1" + bytes(40)), 2, "not a Parquet file"),
    "no row": (lambda path: pq.write_table(pa.table({"cad": pa.array([], pa.list_(pa.float32())),
               "text": pa.array([], pa.list_(pa.float32()))}), path), 2, "holds no part"),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_evaluate_of_a_table(tmp_path, name):
    make, code, word = TABLES[name]
    make(tmp_path / "x.parquet")
    found, said = run(evaluate_of, tmp_path / "x.parquet")
    assert found == code, said
    assert word in said
    run(vitals_of, tmp_path / "x.parquet")  # no traceback there either


def test_a_list_column_that_begins_with_nothing_is_not_passed_over(tmp_path):
    """The numbers beside it are no embeddings, whatever they look like."""
    columns = {f"n{i}": CAD[:, i] for i in range(D)}
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({**columns, "cad": pa.array([None, *CAD[1:].tolist()])}), path)
    assert run(vitals_of, path) == (2, f"{path}: column 'cad' holds nothing in row 0")


def tensors(**changes):
    whole = {"cad": torch.from_numpy(CAD), "text": torch.from_numpy(TEXT)}
    return lambda path: save_file({**whole, **changes}, path)


def parts(values, dtype=torch.int64):
    return torch.tensor(values, dtype=dtype)


SAFE = {
    "sound": (tensors(), 0, "R_at_1"),
    "captions pointing nowhere": (tensors(caption_part=parts([*range(N - 1), N])), 2, "must name"),
    "captions pointing before": (tensors(caption_part=parts([-1, *range(1, N)])), 2, "must name"),
    "captions pointing between": (
        tensors(caption_part=torch.arange(N) + 0.5), 2, "'caption_part' is 0.5 in row 0"),
    "captions pointing at NaN": (
        tensors(caption_part=torch.full((N,), float("nan"))), 2, "is nan in row 0"),
    "captions pointing in bf16": (
        tensors(caption_part=torch.arange(N) * torch.ones(N, dtype=torch.bfloat16)), 0, "R_at_1"),
    "too few captions pointing": (tensors(caption_part=parts([0, 1])), 2, "must name a row"),
    "a matrix of pointers": (tensors(caption_part=torch.zeros(N, 1, dtype=torch.int64)), 2, "name"),
    "no caption": (
        tensors(text=torch.zeros(0, D), caption_part=parts([])), 2, "TOO FEW"),
    "unequal numbers": (tensors(text=torch.from_numpy(TEXT[:-1].copy())), 2, "say which caption"),
    "CAD on its side": (tensors(cad=torch.from_numpy(CAD.T.copy())), 2, "say which caption"),
    "integers": (tensors(cad=torch.ones(N, D, dtype=torch.int64)), 2, "has no cad"),
    "bfloat16": (tensors(cad=torch.from_numpy(CAD).bfloat16()), 0, "R_at_1"),
    "float8": (tensors(cad=torch.from_numpy(CAD).to(torch.float8_e4m3fn)), 0, "R_at_1"),
    "huge": (tensors(cad=torch.from_numpy(CAD).double() * 1e200), 0, "R_at_1"),
    "denormal": (tensors(cad=torch.from_numpy(CAD).double() * 1e-200), 0, "R_at_1"),
    "empty": (lambda path: path.write_bytes(b""), 2, "not a whole safetensors file"),
    "a header of gigabytes": (
        lambda path: path.write_bytes((1 << 40).to_bytes(8, "little") + b"{}"), 2, "not a whole"),
    "a zip": (lambda path: zipfile.ZipFile(path, "w").close(), 2, "not a whole safetensors file"),
}  # fmt: skip


@pytest.mark.parametrize("name", SAFE)
def test_evaluate_of_tensors(tmp_path, name):
    make, code, word = SAFE[name]
    make(tmp_path / "x.safetensors")
    found, said = run(evaluate_of, tmp_path / "x.safetensors")
    assert found == code, said
    assert word in said
    run(vitals_of, tmp_path / "x.safetensors")


def test_names_from_a_file_cannot_drive_the_terminal(tmp_path):
    save_file({"\x1b[2J\ncad": torch.from_numpy(CAD)}, tmp_path / "x.safetensors")
    code, said = run(vitals_of, tmp_path / "x.safetensors")
    assert code == 0
    assert "\x1b" not in said and len(said.splitlines()) == 2


OURS = {"parts.parquet": "model_id", "captions.parquet": "caption"}


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("harm", ["gone", "cut", "column", "null"])
def test_a_folder_of_ours_that_was_harmed(tmp_path, embeddings_of, name, harm):
    from brepfind.retrieval.embeddings import write_embeddings

    rows = [(f"p{i}", f"caption {i}", 0) for i in range(N)]
    write_embeddings(tmp_path, embeddings_of(CAD, rows, TEXT))
    assert run(evaluate_of, tmp_path)[0] == 0
    path = tmp_path / name
    whole = pq.read_table(path)
    if harm == "gone":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:-9])
    elif harm == "column":
        pq.write_table(whole.drop_columns([OURS[name]]), path)
    else:
        column = pa.array([None, *whole[OURS[name]].to_pylist()[1:]], pa.string())
        at = whole.column_names.index(OURS[name])
        pq.write_table(whole.set_column(at, OURS[name], column), path)
    code, said = run(evaluate_of, tmp_path)
    assert code == 2
    assert name in said
    assert {"gone": "cannot be read", "cut": "damaged", "column": "has the columns",
            "null": "is missing in a row"}[harm] in said  # fmt: skip


@pytest.mark.parametrize("said", ["[]", "{", '{"format": 2}', '{"format": 1, "notes": 3}'])
def test_a_folder_of_ours_that_says_something_odd(tmp_path, embeddings_of, said):
    from safetensors.numpy import save_file as save_arrays

    from brepfind.retrieval.embeddings import write_embeddings

    rows = [(f"p{i}", f"caption {i}", 0) for i in range(N)]
    ours = embeddings_of(CAD, rows, TEXT)
    write_embeddings(tmp_path, ours)
    arrays = {name: getattr(ours, name) for name in ("cad", "text", "cad_before", "text_before")}
    save_arrays(arrays, tmp_path / "embeddings.safetensors", metadata={"brepfind": said})
    code, _ = run(evaluate_of, tmp_path)
    assert code == 2
