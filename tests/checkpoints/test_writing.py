"""Weights, trainer state and the authors' layout on disk."""

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from brepfind.checkpoints import checksums
from brepfind.checkpoints.authors import complex_tables, restore, write_authors
from brepfind.checkpoints.read import read_checkpoint
from brepfind.checkpoints.state import load_state, newest_state, save_state
from brepfind.checkpoints.weights import load_strict, load_weights, save_weights
from brepfind.errors import CheckFailed, CheckpointError
from tests.checkpoints import zoo


def same(a: Mapping[str, torch.Tensor], b: Mapping[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(
        a[key].dtype == b[key].dtype and torch.equal(a[key], b[key]) for key in a
    )


def test_weights_come_back_and_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    notes = {"b": "2", "a": "1", "c": "3"}
    save_weights(path, zoo.model(), notes)
    tensors, metadata = load_weights(path)
    assert same(tensors, zoo.model())
    assert metadata == notes
    backwards = dict(reversed(zoo.model().items()))
    save_weights(tmp_path / "again", backwards, dict(reversed(notes.items())))
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "again",
        "again.sha256",
        "w.safetensors",
        "w.safetensors.sha256",
    ]


def test_tied_and_strided_weights_are_written_apart(tmp_path: Path) -> None:
    whole = torch.rand(4, 6)
    tied = {"a": whole, "b": whole, "c": whole.T[:2], "d": torch.nn.Parameter(whole[1])}
    save_weights(tmp_path / "w", tied, {})
    assert same(load_weights(tmp_path / "w")[0], {k: v.detach() for k, v in tied.items()})


def test_broken_weights_never_replace_good_ones(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_weights(path, zoo.model(), {})
    with pytest.raises(CheckFailed, match=r"embed\.weight is 0\.78% NaN, asked is finite"):
        save_weights(path, zoo.with_value("embed.weight", zoo.NAN), {})
    with pytest.raises(CheckFailed, match="freqs_cis is complex64, asked is real"):
        save_weights(path, zoo.complex_model(), {})
    with pytest.raises(CheckpointError, match="no tensor to write"):
        save_weights(path, {}, {})
    with pytest.raises(CheckpointError, match="was written and cannot be read back"):
        save_weights(path, {"__metadata__": torch.rand(2)}, {})
    assert same(load_weights(path)[0], zoo.model())


def test_damaged_or_unvouched_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    with pytest.raises(CheckpointError, match="there is no such file"):
        load_weights(path)
    save_weights(path, zoo.model(), {})
    content = bytearray(path.read_bytes())
    content[-3] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="do not give the SHA-256"):
        load_weights(path)
    checksums.sidecar(path).unlink()
    with pytest.raises(CheckpointError, match="beside it"):
        load_weights(path)
    assert load_weights(path, require_checksum=False)[0].keys() == zoo.model().keys()


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_weights(path, zoo.model(), {})
    save_state(tmp_path / "s.pt", {"step": 1})
    code = (
        "import sys, torch; from pathlib import Path\n"
        "from brepfind.checkpoints.weights import save_weights\n"
        "from brepfind.checkpoints.state import save_state\n"
        "from brepfind.errors import CheckpointError\n"
        "folder = Path(sys.argv[1]); big = {'a': torch.rand(1_000_000)}\n"
        "for write in (lambda: save_weights(folder / 'w.safetensors', big, {}),\n"
        "              lambda: save_state(folder / 's.pt', big)):\n"
        "    try: write()\n"
        "    except CheckpointError as error: print('could not be written' in str(error))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["True", "True"], done.stderr
    assert same(load_weights(path)[0], zoo.model())
    assert load_state(tmp_path / "s.pt") == {"step": 1}
    assert not [file for file in tmp_path.iterdir() if file.name.endswith(".tmp")]


class Tiny(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2, 3))
        self.register_buffer("freqs", torch.zeros(3))


def test_load_strict_compares_before_it_loads() -> None:
    module = Tiny()
    good = {"weight": torch.rand(2, 3), "freqs": torch.rand(3)}
    for change, message in (
        ({"freqs": torch.polar(torch.ones(3), torch.rand(3))}, "freqs is complex64 3, the model"),
        ({"weight": torch.rand(3, 2)}, "weight is float32 3 x 2, the model has float32 2 x 3"),
        ({"weight": torch.rand(2, 3).half()}, "weight is float16 2 x 3"),
        ({"more": torch.rand(1)}, "more is unexpected"),
    ):
        with pytest.raises(CheckpointError, match=message):
            load_strict(module, {**good, **change}, "w.safetensors")
    with pytest.raises(CheckpointError, match=r"w\.safetensors: .*freqs is missing"):
        load_strict(module, {"weight": good["weight"]}, "w.safetensors")
    assert not module.weight.any()
    load_strict(module, {"weight": good["weight"]}, "w", missing_ok={"freqs"})
    load_strict(module, good, "w")
    assert same(dict(module.state_dict()), good)


def test_state_comes_back(tmp_path: Path) -> None:
    state = {
        **zoo.training(),
        "rng": {"torch": torch.get_rng_state(), "python": (3, tuple(range(5)), None)},
        "best": float("-inf"),
    }
    save_state(tmp_path / "a.pt", state)
    back = load_state(tmp_path / "a.pt")
    assert same(back["model"], state["model"])
    assert back["optimizer"]["param_groups"] == state["optimizer"]["param_groups"]
    assert (back["rng"]["python"], back["best"]) == (state["rng"]["python"], float("-inf"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.float64(0.5), r"s\.pt\.best\.0 is a numpy\.float64"),
        (Path("a"), "PosixPath"),
        (argparse.Namespace(a=1), "argparse.Namespace"),
    ],
)
def test_state_holds_plain_values_only(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        save_state(tmp_path / "s.pt", {"best": [value]})
    assert not list(tmp_path.iterdir())


def test_a_state_with_nan_moments_is_never_kept(tmp_path: Path) -> None:
    state = zoo.training()
    state["optimizer"]["state"][0]["exp_avg"][0, 0] = zoo.NAN
    with pytest.raises(CheckFailed, match=r"optimizer\.state\.0\.exp_avg is 16\.67% NaN"):
        save_state(tmp_path / "s.pt", state)
    assert not list(tmp_path.iterdir())


def test_the_newest_state_that_verifies_is_taken_and_others_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logging.Logger.propagate", True, raising=False)
    assert newest_state(tmp_path) is None
    for step in (1, 2, 3):
        save_state(tmp_path / f"step-{step}.pt", {"step": step})
    zoo.cut(tmp_path / "step-3.pt", lambda size: size // 2)
    with caplog.at_level("WARNING", logger="brepfind"):
        found = newest_state(tmp_path)
    assert found is not None
    assert (found[0].name, found[1]) == ("step-2.pt", {"step": 2})
    assert "step-3.pt" in caplog.text
    for step in (1, 2):
        os.truncate(tmp_path / f"step-{step}.pt", 0)
    with pytest.raises(CheckpointError, match="none of its 3 states is whole"):
        newest_state(tmp_path)


def test_the_authors_layout_bit_for_bit(tmp_path: Path) -> None:
    whole = zoo.rotary()
    whole[3, 1] = complex(-0.0, 1e-42)  # signs of zero and denormals are kept
    tensors = {
        "w": torch.rand(2, 3),
        "layers.0.freqs_cos": whole.real.clone(),
        "layers.0.freqs_sin": whole.imag.clone(),
    }
    path = tmp_path / "a.ckpt"
    write_authors(path, tensors, hyper_parameters={"d_model": 8}, epoch=2, global_step=9)
    content = torch.load(path, weights_only=False)
    assert content["hyper_parameters"]["args"] == argparse.Namespace(d_model=8)
    assert (content["epoch"], content["global_step"]) == (2, 9)
    back = content["state_dict"]
    assert list(back) == ["brep_encoder.w", "brep_encoder.layers.0.freqs_cis"]
    table = back["brep_encoder.layers.0.freqs_cis"]
    assert table.numpy().tobytes() == whole.numpy().tobytes()
    assert read_checkpoint(path).checksums == "SHA-256 beside it"


def test_half_a_rotary_table_is_refused() -> None:
    for half in ("freqs_cos", "freqs_sin"):
        with pytest.raises(CheckpointError, match=f"{half} has no"):
            complex_tables({half: torch.rand(2)})
    assert complex_tables({"is_real": torch.rand(2)}).keys() == {"is_real"}


def test_a_name_alone_never_makes_complex_what_cannot_be() -> None:
    low = {"freqs_cos": torch.rand(2).bfloat16(), "freqs_sin": torch.rand(2).bfloat16()}
    taken = {"mix": torch.rand(2), "mix_real": torch.rand(2), "mix_imag": torch.rand(2)}
    for state in (low, taken):
        assert same(complex_tables(state), state)


def test_restore_reads_the_notes_of_an_earlier_version(tmp_path: Path) -> None:
    notes = {
        "prefix": "net.",
        "tied": '[["module.net.embed.weight", "module.net.head.weight"]]',
        "hyper_parameters": '{"args": {"d": 8}, "lr": 0.1}',
    }
    tied = {"head.weight": zoo.model()["embed.weight"]}
    save_weights(tmp_path / "w.safetensors", {**zoo.model(), **tied}, notes)
    restore(tmp_path / "w.safetensors", tmp_path / "w.ckpt")
    back = torch.load(tmp_path / "w.ckpt", weights_only=False)
    assert back["hyper_parameters"] == {"args": argparse.Namespace(d=8), "lr": 0.1}
    state = {f"net.{key}": value for key, value in {**zoo.complex_model(), **tied}.items()}
    assert same(back["state_dict"], state)
    one, other = (back["state_dict"][f"net.{name}.weight"] for name in ("embed", "head"))
    assert one.data_ptr() == other.data_ptr()


@pytest.mark.parametrize(
    ("notes", "message"),
    [
        ({"split": '["layers.freqs_cis"]'}, "layers.freqs_cos has no|layers.freqs_sin has no"),
        ({"split": "[]", "hyper_parameters": '{"args": 1}'}, "notes cannot be read .*'args'"),
        ({"split": "[", "tied": "[]"}, "notes cannot be read .*sanitize the checkpoint anew"),
        ({"tied": "[1]"}, "notes cannot be read"),
        ({"split": "[1]"}, "notes cannot be read"),
    ],
)
def test_notes_that_do_not_fit_are_refused(
    tmp_path: Path, notes: dict[str, str], message: str
) -> None:
    save_weights(tmp_path / "w.safetensors", zoo.model(), notes)
    with pytest.raises(CheckpointError, match=message):
        restore(tmp_path / "w.safetensors", tmp_path / "w.ckpt")
    assert not (tmp_path / "w.ckpt").exists()


def test_restore_without_notes_takes_weights_for_an_encoders(tmp_path: Path) -> None:
    save_weights(tmp_path / "w.safetensors", zoo.model(), {})
    assert restore(tmp_path / "w.safetensors", tmp_path / "w.ckpt") == len(zoo.complex_model())
    back = read_checkpoint(tmp_path / "w.ckpt").tensors
    assert same(back, {f"brep_encoder.{k}": v for k, v in zoo.complex_model().items()})
