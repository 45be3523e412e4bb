"""Sanitize: honest weights, every key accounted for, nothing repaired that cannot be."""

import json
import math
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from brepfind.checkpoints.commands import like, run_sanitize
from brepfind.checkpoints.compare import compare
from brepfind.checkpoints.doctor import diagnose
from brepfind.checkpoints.read import Checkpoint, read_checkpoint
from brepfind.checkpoints.sanitize import SanitizeConfig, examine, own_table, sanitize
from brepfind.checkpoints.ties import tied_groups
from brepfind.checkpoints.weights import load_weights
from brepfind.errors import CheckFailed, CheckpointError, ParamsError
from brepfind.findings import failed
from brepfind.params import check_section
from tests.checkpoints import zoo

TABLE = zoo.table_of(zoo.model())


def lightning(folder: Path, state: dict[str, Any] | None = None, **more: Any) -> Path:
    state = state or zoo.complex_model()
    tree = {
        "state_dict": {
            **{f"brep_encoder.{key}": value for key, value in state.items()},
            "classifier.weight": torch.rand(3, 8),
        },
        "optimizer_states": [zoo.training()["optimizer"]],
        **more,
    }
    return zoo.torch_file(folder, tree)


def read(folder: Path, **changes: torch.Tensor) -> Checkpoint:
    return read_checkpoint(lightning(folder, {**zoo.complex_model(), **changes}))


def test_the_authors_layout_becomes_real_weights_with_every_key_accounted(tmp_path: Path) -> None:
    checkpoint = read(tmp_path)
    clean = sanitize(checkpoint, TABLE)
    assert clean.tensors.keys() == TABLE.keys()
    assert zoo.table_of(clean.tensors) == TABLE
    assert all(torch.equal(clean.tensors[key], value) for key, value in zoo.model().items())
    report = clean.report
    assert (report.prefix, report.coverage, report.missing) == ("brep_encoder.", 1.0, ())
    assert len(report.sources) == len(checkpoint.entries)
    fates = {source.name: (source.fate, source.to) for source in report.sources}
    assert fates["brep_encoder.freqs_cis"] == ("split", ("freqs_cos", "freqs_sin"))
    assert fates["brep_encoder.embed.weight"] == ("used", ("embed.weight",))
    assert fates["classifier.weight"] == ("outside", ())
    assert fates["optimizer_states.0.state.0.exp_avg"] == ("beside", ())
    assert [match.key for match in report.targets] == list(TABLE)
    json.dumps(report.as_json(), allow_nan=False)


def test_the_table_may_follow_from_the_sizes_in_the_file(tmp_path: Path) -> None:
    def architecture(shapes: Any) -> Any:
        rows, _ = shapes["embed.weight"]  # LookupError under a wrong prefix
        return {**TABLE, "embed.weight": (torch.float32, (rows, 8))}

    checkpoint = read(tmp_path, **{"embed.weight": torch.rand(40, 8)})
    assert sanitize(checkpoint, architecture).tensors["embed.weight"].shape == (40, 8)


def test_a_nan_is_refused_by_name_and_never_replaced(tmp_path: Path) -> None:
    state = zoo.with_value("layers.0.feed_forward.w1.weight", zoo.NAN, 16, zoo.complex_model())
    checkpoint = read_checkpoint(lightning(tmp_path, state))
    message = r"layers\.0\.feed_forward\.w1\.weight is 12\.50% NaN, asked is finite"
    with pytest.raises(CheckFailed, match=message) as caught:
        sanitize(checkpoint, TABLE)
    first = caught.value.findings[0]
    assert (first.name, first.value) == ("layers.0.feed_forward.w1.weight", "12.50% NaN")
    assert failed(examine(checkpoint, TABLE).findings) == [first]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"embed.weight": torch.rand(3, 8)},
            r"embed\.weight is float32 3 x 8, asked is float32 16",
        ),
        ({"more.weight": torch.rand(3)}, r"more\.weight is unexpected.*drop it by name"),
        (
            {"freqs_cis": zoo.rotary().real.clone()},
            "freqs_cis is a rotary table with its real part",
        ),
        ({"freqs_cis": zoo.rotary().to(torch.complex128)}, "freqs_cos is complex128"),
        ({"freqs_cis": zoo.rotary() * torch.tensor([1, 2, 3, 4])}, "not a rotation"),
        ({"embed.weight": torch.full((16, 8), float("inf"))}, r"embed\.weight is all Inf"),
        ({"embed.weight": torch.ones(16, 8, dtype=torch.int64)}, "is int64 16 x 8"),
    ],
)
def test_what_cannot_be_repaired_is_refused(
    tmp_path: Path, changes: dict[str, torch.Tensor], message: str
) -> None:
    with pytest.raises(CheckFailed, match=message):
        sanitize(read(tmp_path, **changes), TABLE)


def test_coverage_below_the_limit_fails_and_above_it_names_what_is_missing(tmp_path: Path) -> None:
    state = zoo.complex_model()
    del state["layers.0.norm.weight"]
    checkpoint = read_checkpoint(lightning(tmp_path, state))
    with pytest.raises(CheckFailed, match=r"layers\.0\.norm\.weight is missing"):
        sanitize(checkpoint, TABLE)
    clean = sanitize(checkpoint, TABLE, min_coverage=0.8)
    assert clean.report.missing == ("layers.0.norm.weight",)
    assert clean.report.coverage == 7 / 8
    assert "layers.0.norm.weight" not in clean.tensors


def test_casts_are_exact_or_refused(tmp_path: Path) -> None:
    half = zoo.complex_model()["embed.weight"].half()
    clean = sanitize(read(tmp_path, **{"embed.weight": half}), TABLE)
    assert torch.equal(clean.tensors["embed.weight"], half.float())
    assert {s.fate for s in clean.report.sources if s.to == ("embed.weight",)} == {"cast"}
    huge = torch.full((16, 8), 1e300, dtype=torch.float64)
    with pytest.raises(CheckpointError, match="does not fit into float32 16 x 8 without loss"):
        sanitize(read(tmp_path, **{"embed.weight": huge}), TABLE)


def test_a_cast_to_float8_rounds_and_never_clips(tmp_path: Path) -> None:
    path = zoo.torch_file(tmp_path, {"w": torch.tensor([0.5, -1.1], dtype=torch.bfloat16)})
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        clean = sanitize(read_checkpoint(path), {"w": (dtype, (2,))})
        assert torch.equal(
            clean.tensors["w"].float(), torch.tensor([0.5, -1.125]).to(dtype).float()
        )
    path = zoo.torch_file(tmp_path, {"w": torch.tensor([0.5, -500.0], dtype=torch.bfloat16)})
    with pytest.raises(CheckpointError, match="does not fit into float8_e4m3fn 2 without loss"):
        sanitize(read_checkpoint(path), {"w": (torch.float8_e4m3fn, (2,))})


def test_a_complex_tensor_is_never_split_for_one_half_alone(tmp_path: Path) -> None:
    table = {key: value for key, value in TABLE.items() if key != "freqs_sin"}
    with pytest.raises(CheckFailed, match="freqs_cos is complex64 12 x 4, asked is float32"):
        sanitize(read(tmp_path), table)
    assert diagnose(lightning(tmp_path), table).verdict == "sick"


def test_halves_of_two_tensors_are_never_mixed(tmp_path: Path) -> None:
    wave = torch.polar(torch.rand(3), torch.rand(3))
    state = {"module.wave": wave, "module.wave_real": torch.rand(3)}
    checkpoint = read_checkpoint(zoo.torch_file(tmp_path, state))
    with pytest.raises(CheckpointError, match=r"'module\.wave' would become 'wave_real'"):
        sanitize(checkpoint, None)
    with pytest.raises(CheckFailed, match="wave_imag is complex64 3, asked is float32 3"):
        sanitize(checkpoint, dict.fromkeys(("wave_real", "wave_imag"), (torch.float32, (3,))))


def test_tied_tensors_are_copied_apart_and_named(tmp_path: Path) -> None:
    state = zoo.complex_model()
    state["head.weight"] = state["embed.weight"]
    table = {**TABLE, "head.weight": TABLE["embed.weight"]}
    clean = sanitize(read_checkpoint(lightning(tmp_path, state)), table)
    assert clean.report.tied == (("brep_encoder.embed.weight", "brep_encoder.head.weight"),)
    one, other = clean.tensors["embed.weight"], clean.tensors["head.weight"]
    assert torch.equal(one, other)
    assert one.data_ptr() != other.data_ptr()


def test_named_parts_are_dropped(tmp_path: Path) -> None:
    path = lightning(tmp_path, {**zoo.complex_model(), "more.weight": torch.rand(3)})
    clean = sanitize(read_checkpoint(path), TABLE, drop=["brep_encoder.more."])
    fates = {source.name: source.fate for source in clean.report.sources}
    assert fates["brep_encoder.more.weight"] == "dropped"


@pytest.mark.parametrize("reference", [None, TABLE])
def test_parts_are_dropped_by_their_names_without_wrappers_and_a_miss_is_said(
    tmp_path: Path,
    reference: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("logging.Logger.propagate", True, raising=False)
    state = {f"module.{key}": value for key, value in zoo.model().items()}
    path = zoo.torch_file(tmp_path, {**state, "module.head.weight": torch.rand(3)})
    clean = tmp_path / "clean.safetensors"
    with caplog.at_level("WARNING", logger="brepfind"):
        run_sanitize(path, clean, like=reference, drop=["head.", "tail."])
    assert load_weights(clean)[0].keys() == TABLE.keys()
    assert [record.message for record in caplog.records] == [
        "--drop tail.: no tensor's name begins so; nothing was dropped for it"
    ]


def test_without_an_architecture_a_checkpoint_keeps_its_own_keys(tmp_path: Path) -> None:
    state = {f"module.{key}": value for key, value in zoo.complex_model().items()}
    state["module.wave"] = torch.polar(torch.rand(3), torch.rand(3))
    clean = sanitize(read_checkpoint(zoo.torch_file(tmp_path, state)), None)
    assert clean.tensors.keys() == {*zoo.model(), "wave_real", "wave_imag"}
    assert clean.report.coverage == 1.0


def test_two_copies_that_fit_equally_are_not_guessed_between(tmp_path: Path) -> None:
    both = {f"{half}.{key}": value for half in ("a", "b") for key, value in zoo.model().items()}
    with pytest.raises(CheckpointError, match="2 copies in the file fit equally well"):
        compare(both, TABLE)
    assert compare(both, TABLE, prefix="b.").coverage == 1.0
    assert compare(both, TABLE, drop=["a."]).prefix == "b."
    twice = {"module.w": torch.rand(2), "w": torch.rand(2)}
    with pytest.raises(CheckpointError, match="two copies of 'w'"):
        own_table(twice)


def test_only_optimizer_state_is_no_weights(tmp_path: Path) -> None:
    path = zoo.torch_file(tmp_path, {"optimizer": zoo.training()["optimizer"]})
    with pytest.raises(CheckpointError, match="holds no weights, only optimizer"):
        sanitize(read_checkpoint(path), TABLE)


def test_command_there_and_back_bit_for_bit(tmp_path: Path) -> None:
    state = zoo.complex_model()
    state["head.weight"] = state["embed.weight"]
    source = lightning(tmp_path, state, hyper_parameters={"args": zoo.argparse.Namespace(d=8)})
    clean, back = tmp_path / "clean.safetensors", tmp_path / "back.ckpt"
    reference = zoo.safe_file(
        tmp_path, {**zoo.model(), "head.weight": torch.rand(16, 8)}, "reference.safetensors"
    )
    table = like(str(reference), {})
    assert run_sanitize(source, clean, like=table) == 0
    account = json.loads((tmp_path / "clean.report.json").read_text())
    assert account["coverage"] == 1.0
    assert run_sanitize(clean, back, restore=True) == 0
    before, after = read_checkpoint(source), read_checkpoint(back)
    kept = {name: value for name, value in before.tensors.items() if name != "classifier.weight"}
    assert after.tensors.keys() == kept.keys()
    for name, tensor in kept.items():
        assert tensor.numpy().tobytes() == after.tensors[name].numpy().tobytes()
    assert after.other["hyper_parameters"]["args"] == zoo.argparse.Namespace(d=8)
    shared = [after.tensors[f"brep_encoder.{name}.weight"] for name in ("embed", "head")]
    assert shared[0].data_ptr() == shared[1].data_ptr()


def there_and_back(folder: Path, tree: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint as sanitize and --restore leave it."""
    clean, back = folder / "clean.safetensors", folder / "back.ckpt"
    run_sanitize(zoo.torch_file(folder, tree), clean)
    run_sanitize(clean, back, restore=True)
    content: dict[str, Any] = torch.load(back, weights_only=False)
    return content


def bits(state: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {
        key: (tensor.dtype, tensor.shape, bytes(tensor.contiguous().view(torch.uint8).flatten()))
        for key, tensor in state.items()
    }


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_only_what_was_split_is_joined_again(tmp_path: Path) -> None:
    whole = zoo.rotary()
    state = {
        "freqs_cos": whole.real.clone(),
        "freqs_sin": whole.imag.clone(),
        "low.freqs_cos": whole.real.bfloat16(),
        "low.freqs_sin": whole.imag.bfloat16(),
        "mix_real": torch.rand(3),
        "mix_imag": torch.rand(3),
        "pos_sin": torch.rand(3),
        "layers.0.freqs_cis": whole,
        "wave": torch.polar(torch.rand(3), torch.rand(3)).to(torch.complex128),
        "half": torch.view_as_complex(torch.rand(4, 2).half()),
    }
    back = there_and_back(tmp_path, {"state_dict": state})["state_dict"]
    assert bits(back) == bits(state)


def test_ties_come_back_for_what_was_split_and_under_wrappers(tmp_path: Path) -> None:
    table, weight = zoo.rotary(), torch.rand(3, 4)
    state = {
        "module.l0.freqs_cis": table,
        "module.l1.freqs_cis": table,
        "module.a.weight": weight,
        "module.b.weight": weight,
        "module.c.weight": weight.clone(),
    }
    back = there_and_back(tmp_path, {"state_dict": state})["state_dict"]
    assert tied_groups(back) == [("a.weight", "b.weight"), ("l0.freqs_cis", "l1.freqs_cis")]
    assert torch.equal(back["l1.freqs_cis"], table)


@pytest.mark.parametrize(
    "hyper",
    [
        {"args": Namespace(dim=3, inner=Namespace(a=[1])), "lr": 0.1, "betas": (0.9, 0.999)},
        {"lr": 0.1},
        {"args": "--x"},
        {"args": {"dim": 3}, 1: {"dict": float("inf"), "tuple": ()}},
        Namespace(dim=3),
        SimpleNamespace(dim=3),
        [1, 2],
        {},
        None,
    ],
)
def test_hyper_parameters_come_back_as_they_were(tmp_path: Path, hyper: Any) -> None:
    back = there_and_back(tmp_path, {"state_dict": {"w": torch.rand(3)}, "hyper_parameters": hyper})
    assert back["hyper_parameters"] == hyper
    assert type(back["hyper_parameters"]) is type(hyper)


def test_no_hyper_parameters_are_made_up_and_what_json_cannot_hold_is_text(tmp_path: Path) -> None:
    state = {"state_dict": {"w": torch.rand(3)}}
    assert "hyper_parameters" not in there_and_back(tmp_path, state)
    hyper: dict[str, Any] = {"out": Path("runs/one"), "order": np.arange(3), "nan": zoo.NAN}
    hyper["self"] = Namespace(hyper=hyper)
    back = there_and_back(tmp_path, {**state, "hyper_parameters": hyper})["hyper_parameters"]
    assert math.isnan(back.pop("nan"))
    assert back == {"out": "runs/one", "order": "[0 1 2]", "self": Namespace(hyper="...")}


def test_command_leaves_its_account_when_it_refuses(tmp_path: Path) -> None:
    source = lightning(tmp_path, zoo.with_value("embed.weight", zoo.NAN, 1, zoo.complex_model()))
    clean = tmp_path / "clean.safetensors"
    with pytest.raises(CheckFailed) as caught:
        run_sanitize(source, clean, like=TABLE)
    assert caught.value.evidence == tmp_path / "clean.report.json"
    account = json.loads((tmp_path / "clean.report.json").read_text())
    assert account["findings"][0]["value"] == "0.78% NaN"
    assert not clean.exists()


def test_command_refuses_names_that_would_mislead(tmp_path: Path) -> None:
    source = lightning(tmp_path)
    with pytest.raises(CheckpointError, match="is the source itself"):
        run_sanitize(source, source)
    with pytest.raises(CheckpointError, match="are safetensors"):
        run_sanitize(source, tmp_path / "out.pt")
    (tmp_path / "fold").mkdir()
    inside = zoo.safe_file(tmp_path / "fold", zoo.model())
    shard = zoo.shards(tmp_path).with_name("model-00001-of-00002.safetensors")
    for folder, part in ((tmp_path / "fold", inside), (tmp_path, shard)):
        before = part.read_bytes()
        with pytest.raises(CheckpointError, match=rf"{part.name}: is part of the source"):
            run_sanitize(folder, part)
        assert part.read_bytes() == before
    with pytest.raises(CheckpointError, match=r"neither a known architecture \(small\) nor a file"):
        like("large", {"small": lambda: TABLE})
    assert like("small", {"small": lambda: TABLE}) == TABLE


def test_the_clean_file_says_where_it_came_from(tmp_path: Path) -> None:
    run_sanitize(lightning(tmp_path), tmp_path / "c.safetensors", like=TABLE)
    assert load_weights(tmp_path / "c.safetensors")[1]["prefix"] == "brep_encoder."


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"checkpoint": None, "min_coverage": 1.5}, "sanitize.min_coverage is 1.5"),
        ({"checkpoint": 3, "min_coverage": 1.0}, "sanitize.checkpoint is 3"),
        ({"checkpoint": None}, "sanitize.min_coverage is missing"),
    ],
)
def test_config(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        check_section(section, "sanitize", SanitizeConfig)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.eye(4).to_sparse(), r"w is sparse_coo, asked is a plain dense tensor"),
        (lambda: torch.eye(4).to_sparse_csr(), r"w is sparse_csr"),
        (
            lambda: torch._empty_affine_quantized([4], scale=0.5, zero_point=0, dtype=torch.qint8),
            r"w is quantised \(qint8\).*dequantize",
        ),
        (
            lambda: torch.rand(1, 3).expand(10**12, 3),
            r"w is a view of 12,000,000,000,000 bytes that repeats 12",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_what_safetensors_cannot_hold_is_refused_by_name(
    tmp_path: Path, make: Any, message: str
) -> None:
    path = zoo.torch_file(tmp_path, {"w": make(), "b": torch.rand(3)})
    with pytest.raises(CheckFailed, match=message):
        run_sanitize(path, tmp_path / "clean.safetensors")
    run_sanitize(path, tmp_path / "clean.safetensors", drop=["w"])
    assert list(load_weights(tmp_path / "clean.safetensors")[0]) == ["b"]


def test_a_name_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = zoo.torch_file(tmp_path, {"w\ud800": torch.rand(3), "b": torch.rand(3)})
    with pytest.raises(CheckFailed, match="a name that is not text"):
        run_sanitize(path, tmp_path / "clean.safetensors")


def test_a_name_that_safetensors_keeps_for_itself_is_refused(tmp_path: Path) -> None:
    path = zoo.torch_file(tmp_path, {"module.__metadata__": torch.rand(3), "b": torch.rand(3)})
    with pytest.raises(CheckFailed, match="__metadata__ is the name of safetensors' own notes"):
        run_sanitize(path, tmp_path / "clean.safetensors")


def test_a_file_name_beyond_ascii_can_be_read_again(tmp_path: Path) -> None:
    clean = tmp_path / "größe.safetensors"
    run_sanitize(zoo.torch_file(tmp_path, {"freqs_cis": zoo.rotary()}), clean)
    assert diagnose(clean).verdict == "healthy"
    run_sanitize(clean, tmp_path / "größe.ckpt", restore=True)
    assert read_checkpoint(tmp_path / "größe.ckpt").checksums == "SHA-256 beside it"
