"""The doctor's verdict on every checkpoint of the zoo, and how it says it."""

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from brepfind.checkpoints.commands import run_doctor
from brepfind.checkpoints.doctor import diagnose
from brepfind.checkpoints.read import read_checkpoint
from brepfind.errors import CheckpointError
from tests.checkpoints import zoo
from tests.checkpoints.hostile import CASES

TABLE = zoo.table_of(zoo.model())


@pytest.mark.filterwarnings("ignore:ComplexHalf support")  # only the maker of the file
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.filterwarnings("ignore:Sparse BSR tensor support")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_verdict(case: zoo.Case, tmp_path: Path) -> None:
    path = case.make(tmp_path)
    diagnosis = diagnose(path, TABLE if case.like else None, like_name="small")
    lines = [diagnosis.headline(), *(symptom.line() for symptom in diagnosis.symptoms)]
    assert diagnosis.verdict == case.verdict, lines
    assert any(case.says in line for line in lines), lines
    assert diagnosis.exit_code == {"healthy": 0, "sick": 1, "unreadable": 2}[case.verdict]
    json.dumps(diagnosis.as_json(), allow_nan=False)
    assert not (tmp_path / "was_run").exists()


def test_the_zoo_is_large_and_covers_every_published_failure() -> None:
    odd = [case for case in CASES.values() if case.name != "plain_zip"]
    told = {case.line for case in odd}
    assert len(odd) > 130
    asked = {"F5", "P9", *(f"F{number}" for number in range(28, 46) if number not in (30, 43))}
    assert asked <= told


def damaged(content: bytes, random: np.random.Generator) -> bytes:
    """The content cut, flipped, zeroed or shifted somewhere."""
    at, length = int(random.integers(len(content))), int(random.integers(1, 64))
    harmed = bytearray(content)
    kind = random.integers(4)
    if kind == 0:
        return bytes(harmed[:at])
    if kind == 1:
        harmed[at] ^= 1 << random.integers(8)
    elif kind == 2:
        harmed[at : at + length] = bytes(len(harmed[at : at + length]))
    else:
        harmed[at:at] = bytes(length)
    return bytes(harmed)


@pytest.mark.parametrize("kind", ["zip", "legacy", "safetensors"])
def test_no_damage_crashes_the_check_and_a_zip_hides_none(tmp_path: Path, kind: str) -> None:
    """A zip that still is called readable gives the tensors that were written."""
    if kind == "safetensors":
        path = zoo.safe_file(tmp_path, zoo.model())
    else:
        path = zoo.torch_file(
            tmp_path, zoo.training(), _use_new_zipfile_serialization=kind == "zip"
        )
    content = path.read_bytes()
    written = {entry.name: entry.tensor.clone() for entry in read_checkpoint(path).entries}
    random = np.random.default_rng(5)
    verdicts = set()
    for _ in range(100):
        path.write_bytes(damaged(content, random))
        verdict = diagnose(path).verdict
        verdicts.add(verdict)
        if kind == "zip" and verdict != "unreadable":
            found = {entry.name: entry.tensor for entry in read_checkpoint(path).entries}
            assert found.keys() == written.keys()
            assert all(torch.equal(found[name], written[name]) for name in written)
    assert "unreadable" in verdicts


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantised_scales(tmp_path: Path) -> None:
    good = torch._empty_affine_quantized([4], scale=0.5, zero_point=0, dtype=torch.qint8)
    bad = torch._empty_per_channel_affine_quantized(
        [2, 2],
        scales=torch.tensor([0.5, float("nan")], dtype=torch.float64),
        zero_points=torch.zeros(2, dtype=torch.int64),
        axis=0,
        dtype=torch.qint8,
    )
    torch.save({"good": good}, tmp_path / "good.pt")
    torch.save({"bad": bad}, tmp_path / "bad.pt")
    assert diagnose(tmp_path / "good.pt").verdict == "healthy"
    assert diagnose(tmp_path / "bad.pt").sick[0].line() == "bad: 50.00% NaN"


def test_json_and_exit_code_of_several_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = []
    for name in ("plain_zip", "the_users_own_line", "no_tensor"):
        folder = tmp_path / name
        folder.mkdir()
        paths.append(zoo.CASES[name].make(folder))
    assert run_doctor(paths, as_json=True) == 2
    told = json.loads(capsys.readouterr().out)
    assert told["exit_code"] == 2
    assert [one["verdict"] for one in told["checkpoints"]] == ["healthy", "sick", "unreadable"]
    (nan,) = told["checkpoints"][1]["symptoms"]
    assert (nan["kind"], nan["share"], nan["first"]) == ("nan", 0.125, [0, 0])
    assert run_doctor(paths[:1]) == 0
    assert run_doctor(paths[:2]) == 1


def test_a_bug_is_no_verdict_and_hides_no_other_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
    paths = [zoo.CASES["plain_zip"].make(first), zoo.CASES["the_users_own_line"].make(second)]

    def broken(path: Path, *_: object, **__: object) -> object:
        if path == paths[0]:
            raise IndexError("too many")
        return diagnose(path)

    monkeypatch.setattr("brepfind.checkpoints.commands.diagnose", broken)
    assert run_doctor(paths, as_json=True) == 2
    one, other = json.loads(capsys.readouterr().out)["checkpoints"]
    assert (one["verdict"], other["verdict"]) == ("unreadable", "sick")
    assert "the doctor failed on it (IndexError: too many)" in one["error"]


def test_every_reader_refuses_weights_without_a_number(tmp_path: Path) -> None:
    path = zoo.CASES["weights_without_a_number"].make(tmp_path)
    with pytest.raises(CheckpointError, match=r"hold no number, as DeepSpeed's ZeRO-3 .* save"):
        read_checkpoint(path)


def test_only_what_has_no_place_for_a_value_is_called_empty(tmp_path: Path) -> None:
    """A sparse matrix of zeros stores none, and what comes from the meta device lost its own."""
    state = {"w": torch.rand(3), "zeros": torch.zeros(3, 4).to_sparse()}
    assert diagnose(zoo.torch_file(tmp_path, state)).symptoms == ()
    state["ghost"] = torch.empty(3, device="meta")
    assert [s.kind for s in diagnose(zoo.torch_file(tmp_path, state)).symptoms] == ["unreadable"]


def test_a_place_in_a_sparse_tensor_is_not_made_up(tmp_path: Path) -> None:
    values = torch.tensor([0.5, float("nan"), 0.5])
    sparse = torch.sparse_coo_tensor(torch.tensor([[2, 5, 7], [1, 3, 4]]), values, (9, 8))
    torch.save({"e": sparse}, tmp_path / "m.pt")
    (symptom,) = diagnose(tmp_path / "m.pt").sick
    assert symptom.kind == "nan" and symptom.first is None


def test_piped_output_is_the_users_own_log_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = zoo.CASES["the_users_own_line"].make(tmp_path)
    run_doctor([path])
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "SICK  layers.0.feed_forward.w1.weight: 12.50% NaN  first at [0, 0]"
    assert out[-1].startswith(f"SICK  {path} (8 tensors, ")


def test_table_on_a_terminal_is_worst_first_and_says_what_it_left_out(tmp_path: Path) -> None:
    state = zoo.with_value("embed.weight", zoo.NAN, 3)
    state |= {f"layers.{number}.bias": torch.zeros(4) for number in range(60)}
    path = zoo.torch_file(tmp_path, state)
    text = _on_a_terminal(path)
    assert text.index("embed.weight") < text.index("layers.0.bias")
    assert "and 36 more; --all shows them" in text
    assert text.rstrip().endswith("60 worth a look\x1b[0m")
    assert "layers.59.bias" in _on_a_terminal(path, everything=True)


def _on_a_terminal(path: Path, *, everything: bool = False) -> str:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    run_doctor([path], console=console, everything=everything)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_name_with_brackets_is_printed_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_doctor([zoo.torch_file(tmp_path, {"a[red]b": torch.tensor([zoo.NAN, 1.0])})])
    assert "a[red]b: 50.00% NaN" in capsys.readouterr().out


def test_no_color_is_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zoo.CASES["the_users_own_line"].make(tmp_path)
    assert "\x1b[31m" in _on_a_terminal(path)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in _on_a_terminal(path)


def test_the_doctor_needs_only_the_bare_install(tmp_path: Path) -> None:
    """Not even once it has worked on a file and against the encoder's architecture."""
    path = zoo.CASES["tower_prefix"].make(tmp_path)
    code = (
        "import sys, pathlib, brepfind.cli, brepfind.checkpoints.commands as commands\n"
        "table = brepfind.cli._architecture('brepformer')\n"
        "assert commands.run_doctor([pathlib.Path(sys.argv[1])], like=table) == 1\n"
        "heavy = {'OCP', 'dgl', 'mlflow', 'transformers', 'pandas', 'faiss', 'build123d'}\n"
        "found = heavy & set(sys.modules)\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
