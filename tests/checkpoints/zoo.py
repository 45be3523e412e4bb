"""Sound, odd, sick and unreadable checkpoints, each made by a few lines, with the right verdict.

``line`` names the published failure that a case stands for.
"""

import argparse
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

State = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One checkpoint: how to make it, what the doctor must say, and words it must use."""

    name: str
    make: Callable[[Path], Path]
    verdict: str
    says: str
    like: bool
    line: str


CASES: dict[str, Case] = {}
NAN, INF = float("nan"), float("inf")


def case(
    verdict: str, says: str = "", *, like: bool = False, line: str = ""
) -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
    """Register a maker; it returns a path, or a tree to be saved as a torch file."""

    def register(make: Callable[[Path], Any]) -> Callable[[Path], Any]:
        def to_file(folder: Path) -> Path:
            made = make(folder)
            return made if isinstance(made, Path) else torch_file(folder, made)

        name = make.__name__
        assert name not in CASES
        CASES[name] = Case(name, to_file, verdict, says, like, line)
        return make

    return register


def table_of(state: State) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    return {key: (tensor.dtype, tuple(tensor.shape)) for key, tensor in state.items()}


def rotary() -> torch.Tensor:
    """12 positions x 4 frequencies, complex64."""
    angles = torch.outer(torch.arange(12.0), 0.8 ** torch.arange(4.0))
    return torch.polar(torch.ones_like(angles), angles)


def model() -> State:
    """A small sound model with its rotary table as two real buffers."""
    random = torch.Generator().manual_seed(7)
    state = {
        "embed.weight": torch.randn(16, 8, generator=random),
        "layers.0.feed_forward.w1.weight": torch.randn(16, 8, generator=random),
        "layers.0.norm.weight": torch.randn(8, generator=random),
        "layers.0.bn.running_var": torch.rand(8, generator=random) + 0.5,
        "layers.0.bn.num_batches_tracked": torch.tensor(12),
        "logit_scale": torch.tensor(2.65),
    }
    whole = rotary()
    return {**state, "freqs_cos": whole.real.clone(), "freqs_sin": whole.imag.clone()}


def complex_model() -> State:
    """The same with its table complex, as the authors store it."""
    state = {key: value for key, value in model().items() if not key.startswith("freqs_")}
    return {**state, "freqs_cis": rotary()}


def with_value(key: str, value: float, count: int = 1, state: State | None = None) -> State:
    """A model with ``count`` values of one tensor replaced."""
    state = state or model()
    state[key] = state[key].clone()
    state[key].view(-1)[:count] = value
    return state


def torch_file(folder: Path, tree: Any, **options: Any) -> Path:
    path = folder / "model.pt"
    torch.save(tree, path, **options)
    return path


def safe_file(folder: Path, state: State, name: str = "model.safetensors") -> Path:
    save_file(state, folder / name)
    return folder / name


def training(state: State | None = None, **more: Any) -> State:
    """A trainer's checkpoint after two real steps of AdamW."""
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(layer.parameters())
    for _ in range(2):
        layer(torch.rand(4, 3)).sum().backward()
        optimizer.step()
    scaler = {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "_growth_tracker": 3}
    return {
        "epoch": 3,
        "model": state or model(),
        "optimizer": optimizer.state_dict(),
        "scaler": scaler,
        **more,
    }


def shards(folder: Path, *, suffix: str = "safetensors", state: State | None = None) -> Path:
    """Two shards and their index."""
    state = state or model()
    keys = sorted(state)
    weight_map = {}
    for number, part in enumerate((keys[:3], keys[3:]), start=1):
        name = f"model-{number:05}-of-00002.{suffix}"
        piece = {key: state[key] for key in part}
        if suffix == "safetensors":
            save_file(piece, folder / name)
        else:
            torch.save(piece, folder / name)
        weight_map |= dict.fromkeys(part, name)
    index = folder / ("model.safetensors.index.json" if suffix != "bin" else "m.bin.index.json")
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return index


def cut(path: Path, keep: Callable[[int], int]) -> Path:
    content = path.read_bytes()
    path.write_bytes(content[: keep(len(content))])
    return path


def rewritten(path: Path, change: Callable[[str, bytes], bytes], **options: Any) -> Path:
    """A zip with the content of its entries changed, checksums right again."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, value in content.items():
            archive.writestr(name, change(name, value))
    return path


class Omega:
    """Stands for any class of somebody's program."""


class Runs:
    """A pickle that runs a command."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.target}",)


# --- sound, however odd they look ---------------------------------------------------------------


@case("healthy", "all finite", like=True)
def plain_zip(folder: Path) -> State:
    return model()


@case("healthy")
def legacy_file(folder: Path) -> Path:
    return torch_file(folder, model(), _use_new_zipfile_serialization=False)


@case("healthy", like=True)
def safetensors_file(folder: Path) -> Path:
    return safe_file(folder, model())


@case("healthy", like=True, line="F44")
def lightning(folder: Path) -> State:
    state = {f"brep_encoder.{key}": value for key, value in model().items()}
    namespace = argparse.Namespace(lr=1e-4, out=PurePosixPath("runs"))
    return {"epoch": 1, "state_dict": state, "hyper_parameters": {"args": namespace}}


@case("healthy", like=True, line="F33")
def ddp_prefix(folder: Path) -> State:
    return {f"module.{key}": value for key, value in model().items()}


@case("healthy", like=True, line="F33")
def compile_prefix(folder: Path) -> State:
    return {f"_orig_mod.{key}": value for key, value in model().items()}


@case("healthy", like=True, line="F33")
def averaged_model(folder: Path) -> State:
    state = {f"module._orig_mod.{key}": value for key, value in model().items()}
    return {"n_averaged": torch.tensor(5), **state}


@case("healthy", like=True)
def tower_prefix(folder: Path) -> State:
    head = {"head.weight": torch.rand(4, 8)}
    return {f"model.encoder.{key}": value for key, value in model().items()} | head


@case("healthy", like=True)
def nested_dicts(folder: Path) -> State:
    return {"checkpoint": {"model_state_dict": model()}, "step": 3}


@case("healthy", "complex64", like=True)
def complex_table_for_a_real_pair(folder: Path) -> State:
    return complex_model()


@case("healthy")
def trainer_state(folder: Path) -> State:
    rng = {"torch": torch.get_rng_state(), "numpy": np.random.default_rng(0).bytes(8)}
    return training(rng=rng, ema=model())


@case("healthy", line="F31")
def harmless_classes(folder: Path) -> State:
    return {
        **model(),
        "loss": np.float64(0.5),
        "order": np.arange(4),
        "path": Path("runs/one"),
        "args": argparse.Namespace(lr=0.1, nested=argparse.Namespace(deep=torch.ones(2))),
        "version": torch.__version__,
    }


@case("healthy", like=True)
def sharded_safetensors(folder: Path) -> Path:
    return shards(folder)


@case("healthy", like=True)
def sharded_torch(folder: Path) -> Path:
    return shards(folder, suffix="bin")


@case("healthy", like=True)
def folder_with_an_index(folder: Path) -> Path:
    shards(folder)
    return folder


@case("healthy", "shares memory", line="F38")
def tied_tensors(folder: Path) -> State:
    state = model()
    return {**state, "head.weight": state["embed.weight"]}


@case("healthy", line="F38")
def not_contiguous(folder: Path) -> State:
    return {"a": torch.rand(4, 4).T[:2], "b": torch.rand(3, 5, 7).permute(2, 0, 1)[:, ::2]}


@case("healthy", "all zero")
def fresh_model(folder: Path) -> State:
    zeros = {f"layers.{number}.bias": torch.zeros(8) for number in range(30)}
    return {**model(), **zeros, "norm.weight": torch.ones(8)}


@case("healthy", "rows constant")
def padding_row(folder: Path) -> State:
    return {"embed.weight": torch.cat((torch.zeros(1, 8), torch.rand(7, 8)))}


@case("healthy", "times what 90% stay below")
def far_out(folder: Path) -> State:
    return {"w": torch.cat((torch.rand(999), torch.tensor([1e30])))}


@case("healthy", "denormal")
def denormals(folder: Path) -> State:
    return {"w": torch.cat((torch.rand(6), torch.tensor([0.0, 1e-40])))}


@case("healthy", line="F39")
def every_float8(folder: Path) -> State:
    values = torch.tensor([0.5, 1.0, 2.0, 4.0])
    names = [name for name in dir(torch) if name.startswith("float8_")]
    assert len(names) >= 5
    return {name: values.to(getattr(torch, name)) for name in names}


@case("healthy", "complex128")
def every_complex(folder: Path) -> State:
    parts = torch.rand(4, 2)
    whole = torch.view_as_complex(parts)
    return {
        "a": torch.view_as_complex(parts.half()),
        "b": whole,
        "c": whole.to(torch.complex128),
        "d": whole.conj(),
    }


@case("healthy")
def every_integer(folder: Path) -> State:
    names = ("bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
    return {name: torch.tensor([0, 1, 1]).to(getattr(torch, name)) for name in names}


@case("healthy")
def other_layouts(folder: Path) -> State:
    dense = torch.eye(4)
    return {
        "coo": dense.to_sparse(),
        "csr": dense.to_sparse_csr(),
        "expanded": torch.rand(1, 3).expand(1000, 3),
        "empty": torch.empty(0, 4),
        "scalar": torch.tensor(0.5, dtype=torch.float64),
        "packed": torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
    }


@case("healthy", line="F37")
def complex_safetensors(folder: Path) -> Path:
    return safe_file(folder, complex_model())


@case("healthy", line="F28")
def saved_without_checksums(folder: Path) -> Path:
    torch.serialization.set_crc32_options(False)
    try:
        return torch_file(folder, model())
    finally:
        torch.serialization.set_crc32_options(True)


@case("healthy", like=True)
def compressed_again(folder: Path) -> Path:
    path = torch_file(folder, model())
    return rewritten(path, lambda _, value: value, compression=zipfile.ZIP_DEFLATED)


@case("healthy", "Inf")
def best_score_never_beaten(folder: Path) -> State:
    return {"state_dict": model(), "callbacks": {"stop": {"best_score": torch.tensor(INF)}}}


# --- sick ---------------------------------------------------------------------------------------


@case("sick", "layers.0.feed_forward.w1.weight: 12.50% NaN", like=True)
def the_users_own_line(folder: Path) -> State:
    return with_value("layers.0.feed_forward.w1.weight", NAN, 16)


@case("sick", "1 of 1,000,000 NaN")
def one_nan_of_a_million(folder: Path) -> State:
    weight = torch.rand(1000, 1000)
    weight[731, 17] = NAN
    return {"w": weight}


@case("sick", "layers.0.norm.weight: 12.50% Inf")
def one_infinity(folder: Path) -> State:
    return with_value("layers.0.norm.weight", -INF)


@case("sick", "all NaN", line="P1")
def nan_in_batch_norm_statistics(folder: Path) -> State:
    return with_value("layers.0.bn.running_var", NAN, 8)


@case("sick", "exp_avg", line="F5")
def nan_in_adam_moments(folder: Path) -> State:
    state = training()
    state["optimizer"]["state"][0]["exp_avg"][0, 0] = NAN
    return state


@case("sick", "exp_avg_sq", line="F5")
def infinity_in_lightning_optimizer(folder: Path) -> State:
    optimizer = training()["optimizer"]
    optimizer["state"][1]["exp_avg_sq"][0] = INF
    return {"state_dict": model(), "optimizer_states": [optimizer]}


@case("sick", "ema.embed.weight", line="F42")
def ema_copy_alone_is_nan(folder: Path) -> State:
    return training(ema=with_value("embed.weight", NAN))


@case("sick", "loss scale 0.0", line="F2")
def loss_scale_is_zero(folder: Path) -> State:
    return training(scaler={"scale": 0.0, "growth_factor": 2.0, "_growth_tracker": 0})


@case("sick", "loss scale nan")
def loss_scale_is_nan(folder: Path) -> State:
    return training(amp={"scale": NAN, "growth_factor": 2.0})


@case("sick", "lr: is NaN")
def learning_rate_is_nan(folder: Path) -> State:
    state = training()
    state["optimizer"]["param_groups"][0]["lr"] = NAN
    return state


@case("sick", "best_model_score", line="F41")
def best_score_is_nan(folder: Path) -> State:
    best = {"best_model_score": torch.tensor(NAN), "best_model_path": "epoch=3.ckpt"}
    return {"state_dict": model(), "callbacks": {"ModelCheckpoint": best}}


@case("sick", "best: is NaN", line="F41")
def best_number_is_nan(folder: Path) -> State:
    return {"model": model(), "best": NAN}


@case("sick", "loss scale 0.0", line="F2")
def loss_scale_of_apex_is_zero(folder: Path) -> State:
    return {"model": model(), "amp": {"loss_scaler0": {"loss_scale": 0.0, "unskipped": 3}}}


@case("sick", "loss scale 0.0", line="F2")
def loss_scale_is_a_tensor(folder: Path) -> State:
    return training(scaler={"scale": torch.tensor(0.0), "growth_factor": 2.0})


@case("sick", "loss scale 0.0", line="F2")
def loss_scale_is_a_whole_number(folder: Path) -> State:
    return training(scaler={"scale": 0, "growth_factor": 2.0})


@case("sick", "optimizer.grad_scaler.scale: loss scale 0.0", line="F2")
def loss_scale_of_megatron_is_zero(folder: Path) -> State:
    scaler = {"scale": torch.tensor([0.0]), "growth_tracker": torch.tensor([0])}
    return {"model": model(), "optimizer": {"grad_scaler": scaler}}


@case("sick", "loss scale inf")
def loss_scale_has_four_hundred_digits(folder: Path) -> State:
    return training(scaler={"scale": 10**400, "growth_factor": 2.0})


@case("healthy", "all finite")
def loss_scale_is_asked_to_be_found(folder: Path) -> State:
    """In DeepSpeed's settings 0 means that."""
    return {"model": model(), "hyper_parameters": {"amp": {"loss_scale": 0}}}


@case("healthy", "all finite")
def loss_scale_is_a_large_whole_number(folder: Path) -> State:
    return training(scaler={"scale": 65536, "growth_factor": 2.0})


@case("sick", "text_encoder.d: all Inf", line="F44")
def infinity_in_a_folder_beside_the_model(folder: Path) -> State:
    return {"model": model(), "text_encoder": {"d": torch.full((4, 4), INF)}}


@case("sick", "text_encoder.d: all Inf")
def one_infinity_shown_many_times(folder: Path) -> State:
    return {"model": model(), "text_encoder": {"d": torch.full((1,), INF).expand(4, 4)}}


@case("healthy", "all weights finite")
def best_score_is_infinite(folder: Path) -> State:
    best = {"best_model_score": torch.tensor(INF)}
    return {"state_dict": model(), "callbacks": {"ModelCheckpoint": best}}


@case("unreadable", "zero_to_fp32.py", line="F44")
def weights_without_a_number(folder: Path) -> State:
    return {key: torch.empty(0) for key in model()}


@case("sick", "embed.weight: holds no value", line="F44")
def one_weight_without_a_number(folder: Path) -> State:
    """ZeRO-3 leaves the weights so and the buffers whole, wherever a model has any."""
    return {**model(), "embed.weight": torch.empty(0)}


@case("healthy", "embed.weight: holds no value")
def a_table_without_rows(folder: Path) -> State:
    return {**model(), "embed.weight": torch.empty(0, 8)}


@case("healthy", "holds no value")
def slice_of_nothing(folder: Path) -> State:
    return {**model(), "cut": torch.empty(0, 20)[:, :2]}


@case("sick", "all NaN")
def long_doubles(folder: Path) -> State:
    return {"model": model(), "seen": {"x": np.array([NAN, NAN], np.longdouble)}}


@case("sick", "best: is NaN", line="F41")
def best_number_is_a_long_double(folder: Path) -> State:
    return {"model": model(), "best": np.longdouble(NAN)}


@case("unreadable", "a NumPy array in it has no values")
def numpy_array_without_its_state(folder: Path) -> State:
    class Bare:
        def __reduce__(self) -> Any:
            return np.zeros(1).__reduce__()[0], (np.ndarray, (0,), b"b")

    return {"model": model(), "x": Bare()}


@case("healthy", "all finite")
def rotary_halves_of_any_name(folder: Path) -> State:
    whole = rotary()
    return {
        **{"a.freqs_cis_cos": whole.real.clone(), "a.freqs_cis_sin": whole.imag.clone()},
        **{"b.freqs_cis_real": whole.real.clone(), "b.freqs_cis_imag": whole.imag.clone()},
        **{
            "rotary_emb.cos_cached": whole.real.clone(),
            "rotary_emb.sin_cached": whole.imag.clone(),
        },
        **{"rope_cosine": whole.real.clone(), "rope_sine": whole.imag.clone()},
    }


@case("healthy", "all finite")
def halves_of_a_complex_weight_in_a_rotary_module(folder: Path) -> State:
    random = torch.Generator().manual_seed(3)
    names = ("rotary_emb.filter_real", "rotary_emb.filter_imag")
    return {name: torch.randn(8, 8, generator=random) for name in names}


@case("healthy", "all finite")
def rotary_tables_of_a_million_million_rows(folder: Path) -> State:
    """One row of each is stored; as many as are shown would fill any memory."""
    rows = {"rope_cos": rotary().real[1:2], "rope_sin": rotary().imag[1:2]}
    return {name: row.clone().expand(2, 10**12, 4) for name, row in rows.items()}


@case("sick", "rotary_emb.cos_cached: cos^2 + sin^2")
def rotary_module_with_another_sine(folder: Path) -> State:
    random = torch.Generator().manual_seed(3)
    sine = torch.rand(12, 4, generator=random)
    return {
        **model(),
        "rotary_emb.cos_cached": rotary().real.clone(),
        "rotary_emb.sin_cached": sine,
    }


@case("healthy", "all finite")
def rotary_scalars(folder: Path) -> State:
    return {**model(), "rope_cos": torch.tensor(1.0), "rope_sin": torch.tensor(0.0)}


@case("healthy", "all finite")
def hybrid_sparse_with_a_row_of_zeros(folder: Path) -> State:
    values = torch.zeros(2, 8)
    values[1] = torch.rand(8) + 1
    return {**model(), "e": torch.sparse_coo_tensor(torch.tensor([[1, 5]]), values, (9, 8))}


@case("healthy", "of the rows constant")
def negated_when_it_is_read(folder: Path) -> State:
    """The imaginary part of a conjugate is a view that says: minus what is stored."""
    whole = torch.complex(torch.rand(4, 8), torch.rand(4, 8))
    whole.imag[2] = 0.5
    return {"w": whole.conj().imag}


@case("healthy", "all finite")
def packed_where_a_number_is_looked_for(folder: Path) -> State:
    """Torch keeps these bits and computes nothing with them."""
    packed = torch.arange(8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    tables = {"rope_cos": packed.view(2, 4), "rope_sin": packed.view(2, 4).clone()}
    scaler = {"scale": packed[0], "growth_factor": 2.0}
    return {"model": {**model(), **tables, "logit_scale": packed[:1]}, "scaler": scaler}


@case("healthy", "all finite")
def sparse_logit_scale(folder: Path) -> State:
    return {**model(), "logit_scale": torch.tensor([4.0]).to_sparse()}


@case("sick", "no data")
def logit_scale_without_data(folder: Path) -> State:
    return {**model(), "logit_scale": torch.empty((), device="meta")}


@case("healthy", "above ln 100")
def logit_scale_of_a_sigmoid_loss(folder: Path) -> State:
    return {**model(), "logit_scale": torch.tensor(4.765), "logit_bias": torch.tensor(-12.9)}


@case("sick", "above ln 100", line="F8")
def logit_scale_too_high(folder: Path) -> State:
    return with_value("logit_scale", 89.0, state={"logit_scale": torch.zeros(1)})


@case("sick", "logit_scale: all Inf", line="F8")
def logit_scale_infinite(folder: Path) -> State:
    return {**model(), "logit_scale": torch.tensor(INF)}


@case("sick", "table: 50.00% NaN", line="F40")
def complex_nan_and_inf(folder: Path) -> State:
    parts = torch.tensor([[1.0, NAN], [INF, NAN]])
    return {"table": torch.view_as_complex(parts)}


@case("sick", "float8_e4m3fn: 25.00% NaN", line="F39")
def nan_in_float8(folder: Path) -> State:
    values = torch.tensor([0x7F, 1, 2, 3], dtype=torch.uint8)
    return {"float8_e4m3fn": values.view(torch.float8_e4m3fn)}


@case("sick", "scales: 25.00% NaN", line="F39")
def nan_in_a_float8_of_scales(folder: Path) -> State:
    values = torch.tensor([127, 128, 255, 120], dtype=torch.uint8)
    return {"scales": values.view(torch.float8_e8m0fnu)}


@case("sick", "w: 25.00% Inf")
def infinity_in_float8(folder: Path) -> State:
    values = torch.tensor([0xFC, 1, 2, 3], dtype=torch.uint8)
    return {"w": values.view(torch.float8_e5m2)}


@case("sick", "w: 25.00% NaN")
def nan_in_an_unsigned_zero_float8(folder: Path) -> State:
    values = torch.tensor([0x80, 1, 2, 3], dtype=torch.uint8)
    return {"w": values.view(torch.float8_e4m3fnuz)}


@case("sick", "w: 25.00% NaN")
def nan_in_half_precisions(folder: Path) -> State:
    values = torch.tensor([NAN, 1.0, 2.0, 3.0])
    return {"w": values.half(), "v": values.bfloat16(), "u": values.double()}


@case("sick", "its real part only", line="F35")
def cast_to_bf16(folder: Path) -> State:
    state = complex_model()
    return {**state, "freqs_cis": state["freqs_cis"].real.bfloat16()}


@case("sick", "mis-typed", like=True, line="F34")
def real_table_where_a_complex_one_was(folder: Path) -> State:
    state = complex_model()
    return {**state, "freqs_cis": state["freqs_cis"].real.clone()}


@case("sick", "its real part only", line="F35")
def cosine_under_another_name(folder: Path) -> State:
    return {"rope_table": rotary().real.bfloat16()}


@case("sick", "every imaginary part is 0", line="F34")
def complex_again_after_a_real_cast(folder: Path) -> State:
    state = complex_model()
    return {**state, "freqs_cis": state["freqs_cis"].real.to(torch.complex64)}


@case("sick", "not a rotation")
def two_tables_that_do_not_belong_together(folder: Path) -> State:
    state = model()
    return {**state, "freqs_sin": state["freqs_cos"].clone()}


@case("sick", "mis-shaped", like=True, line="F36")
def half_split_table(folder: Path) -> State:
    state = model()
    twice = {key: torch.cat((state[key], state[key]), 1) for key in ("freqs_cos", "freqs_sin")}
    return {**state, **twice}


@case("sick", "embed.weight: mis-typed: complex64", like=True, line="F34")
def complex_where_the_architecture_is_real(folder: Path) -> State:
    state = model()
    return {**state, "embed.weight": state["embed.weight"].to(torch.complex64)}


@case("sick", "layers.0.norm.weight: missing", like=True, line="F45")
def a_layer_is_missing(folder: Path) -> State:
    state = model()
    del state["layers.0.norm.weight"]
    return state


@case("sick", "layers.0.norm.weight: all NaN", like=True, line="F45")
def a_layer_was_never_loaded(folder: Path) -> State:
    return with_value("layers.0.norm.weight", NAN, 8)  # filled with NaN before a partial load


@case("sick", "layers.1.norm.weight: unexpected", like=True)
def a_layer_too_many(folder: Path) -> State:
    return {**model(), "layers.1.norm.weight": torch.rand(8)}


@case("sick", "float32 32 x 8, the architecture has float32 16 x 8", like=True)
def another_vocabulary(folder: Path) -> State:
    return {**model(), "embed.weight": torch.rand(32, 8)}


@case("sick", "mis-typed: float16", like=True, line="F9")
def weights_in_half_precision(folder: Path) -> State:
    state = model()
    return {**state, "embed.weight": state["embed.weight"].half()}


@case("sick", "no tensor has a name of the architecture", like=True, line="F33")
def another_model(folder: Path) -> State:
    return {"conv1.weight": torch.rand(4, 3, 3, 3), "fc.weight": torch.rand(2, 4)}


@case("sick", "named by the index, in no shard")
def index_names_more_than_there_is(folder: Path) -> Path:
    index = shards(folder)
    content = json.loads(index.read_text())
    content["weight_map"]["lost.weight"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(content))
    return index


@case("sick", "in a shard, not in the index")
def index_names_less_than_there_is(folder: Path) -> Path:
    index = shards(folder)
    content = json.loads(index.read_text())
    del content["weight_map"]["embed.weight"]
    index.write_text(json.dumps(content))
    return index


@case("sick", "layers.0.norm.weight: 12.50% NaN")
def nan_in_the_second_shard(folder: Path) -> Path:
    return shards(folder, state=with_value("layers.0.norm.weight", NAN))


@case("sick", "coo: 25.00% NaN")
def nan_in_a_sparse_tensor(folder: Path) -> State:
    dense = torch.eye(4)
    dense[2, 2] = NAN
    return {"coo": dense.to_sparse()}


@case("sick", "view: 16.67% NaN")
def nan_in_a_strided_view(folder: Path) -> State:
    whole = torch.rand(6, 4)
    whole[2, 1] = NAN
    return {"view": whole.T[1:2]}


@case("sick", "no data")
def saved_from_the_meta_device(folder: Path) -> State:
    return {**model(), "ghost": torch.empty(3, device="meta")}


# --- not readable -------------------------------------------------------------------------------


@case("unreadable", "empty (0 bytes)", line="F29")
def cut_at_0(folder: Path) -> Path:
    return cut(torch_file(folder, model()), lambda _: 0)


@case("unreadable", "cut short", line="F29")
def cut_at_10(folder: Path) -> Path:
    return cut(torch_file(folder, model()), lambda _: 10)


@case("unreadable", "cut short", line="F29")
def cut_at_half(folder: Path) -> Path:
    return cut(torch_file(folder, model()), lambda size: size // 2)


@case("unreadable", "cut short", line="F29")
def cut_by_one_byte(folder: Path) -> Path:
    return cut(torch_file(folder, model()), lambda size: size - 1)


@case("unreadable", "cut short", line="F29")
def legacy_cut_at_half(folder: Path) -> Path:
    path = torch_file(folder, model(), _use_new_zipfile_serialization=False)
    return cut(path, lambda size: size // 2)


@case("unreadable", "cut short", line="F29")
def safetensors_cut_by_one_byte(folder: Path) -> Path:
    return cut(safe_file(folder, model()), lambda size: size - 1)


@case("unreadable", "(it holds embed.weight) does not match its CRC-32", line="F28")
def flipped_bytes(folder: Path) -> Path:
    path = torch_file(folder, model())
    content = bytearray(path.read_bytes())
    at = content.index(model()["embed.weight"].numpy().tobytes())
    content[at + 40 : at + 44] = b"\xff\xff\xff\xff"
    path.write_bytes(content)
    return path


@case("unreadable", "SHA-256", line="F28")
def flipped_bytes_beside_a_sidecar(folder: Path) -> Path:
    path = safe_file(folder, model())
    Path(f"{path}.sha256").write_text(f"{'0' * 64}  {path.name}\n")
    return path


@case("unreadable", "holds posix.system", line="F32")
def runs_a_command(folder: Path) -> State:
    return {**model(), "evil": Runs(folder / "was_run")}


@case("unreadable", "Omega", line="F31")
def somebodys_class(folder: Path) -> State:
    return {**model(), "config": Omega()}


@case("unreadable", "NumPy dtype", line="F31")
def numpy_objects(folder: Path) -> State:
    return {**model(), "names": np.array([{}, None], dtype=object)}


@case("unreadable", "no tensor at all (a mapping with the keys epoch, lr)", line="F44")
def no_tensor(folder: Path) -> State:
    return {"epoch": 1, "lr": 0.5}


@case("unreadable", "no tensor at all", line="F44")
def empty_state_dict(folder: Path) -> State:
    return {"state_dict": {}, "optimizer_states": []}


@case("unreadable", "no tensor at all")
def a_list_that_holds_itself(folder: Path) -> Any:
    endless: list[Any] = []
    endless.append(endless)
    return endless


@case("unreadable", "more values than any checkpoint has")
def nested_without_end(folder: Path) -> Path:
    tree: Any = torch.ones(1)
    for _ in range(220):
        tree = [tree]
    return torch_file(folder, tree)


@case("unreadable", "more values than any checkpoint has")
def few_bytes_that_describe_a_million_million_values(folder: Path) -> Path:
    tree: Any = [torch.ones(1)]
    for _ in range(40):
        tree = [tree, tree]
    return torch_file(folder, tree)


@case("unreadable", "no tensor at all")
def empty_safetensors(folder: Path) -> Path:
    return safe_file(folder, {})


@case("unreadable", "1 of 2 shards missing")
def a_shard_is_missing(folder: Path) -> Path:
    index = shards(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    return index


@case("unreadable", "outside its own folder")
def index_points_elsewhere(folder: Path) -> Path:
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../../secret.safetensors"}}))
    return index


@case("unreadable", "no index")
def shards_without_an_index(folder: Path) -> Path:
    shards(folder).unlink()
    return folder


@case("unreadable", "Git LFS")
def lfs_pointer(folder: Path) -> Path:
    path = folder / "model.pt"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    return path


@case("unreadable", "web page")
def web_page(folder: Path) -> Path:
    path = folder / "model.pt"
    path.write_text("<!DOCTYPE html><html>404</html>")
    return path


@case("unreadable", "neither a torch file nor safetensors")
def random_bytes(folder: Path) -> Path:
    path = folder / "model.pt"
    path.write_bytes(np.random.default_rng(0).bytes(4096))
    return path


@case("unreadable", "bare pickle")
def bare_pickle(folder: Path) -> Path:
    path = folder / "model.pt"
    path.write_bytes(pickle.dumps({"a": [1.0, 2.0]}))
    return path


@case("unreadable", "NumPy archive")
def numpy_archive(folder: Path) -> Path:
    np.savez(folder / "model.npz", a=np.ones(3))
    return folder / "model.npz"


@case("unreadable", "TorchScript")
def torch_script(folder: Path) -> Path:
    path = torch_file(folder, model())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("model/constants.pkl", b"")
    return path


@case("unreadable", "two entries of the zip have one name")
def two_entries_of_one_name(folder: Path) -> Path:
    content = io.BytesIO(torch_file(folder, model()).read_bytes())
    with zipfile.ZipFile(content, "a") as archive:
        info = zipfile.ZipInfo("other/data/0")
        archive.writestr(info, b"1")
        info.filename = "model/data/0"
    path = folder / "twice.pt"
    path.write_bytes(content.getvalue())
    return path


@case("unreadable", "not a whole torch file")
def a_tensor_larger_than_its_storage(folder: Path) -> Path:
    path = torch_file(folder, {"a": torch.arange(8.0)})
    size = b"K\x08\x85"  # the pickle's shape (8,), made (32767,)
    return rewritten(
        path,
        lambda name, value: (
            value.replace(size, b"M\xff\x7f\x85") if name.endswith("data.pkl") else value
        ),
    )


@case("unreadable", "No such file")
def nothing_there(folder: Path) -> Path:
    return folder / "nothing.pt"
