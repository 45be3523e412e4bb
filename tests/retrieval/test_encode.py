"""The encoder alone, from files to a file: the authors' numbers, and what is wrong by its name."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from brepfind.checkpoints.checksums import verify_sidecar
from brepfind.checkpoints.commands import run_sanitize
from brepfind.checkpoints.weights import load_weights
from brepfind.errors import CheckFailed, CheckpointError, InputError
from brepfind.models.encoder import EncoderConfig, architecture
from brepfind.retrieval.encode import encode_file, encode_files, load_encoder

FIXTURES = Path(__file__).parents[1] / "fixtures" / "models"
AUTHORS = FIXTURES / "brepformer_small.ckpt"
GRAPHS = [FIXTURES / f"small_graph_{number}.bin" for number in range(4)]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clean") / "w.safetensors"
    run_sanitize(AUTHORS, path, like=lambda shapes: architecture(EncoderConfig.from_shapes(shapes)))
    return path


def test_the_command_gives_the_authors_numbers(tmp_path: Path) -> None:
    """In a process of its own, from their checkpoint and their graphs, in the order given."""
    out = tmp_path / "out.safetensors"
    done = subprocess.run(
        [sys.executable, "-m", "brepfind.cli", "encode", AUTHORS, *GRAPHS, "-o", out],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"4 graphs, 64 numbers each, in {out}\n"
    found, expected = load_file(out), load_file(FIXTURES / "expected_small.safetensors")
    assert set(found) == {"graph_embedding", *(f"face_tokens_{i}" for i in range(4))}
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], atol=2e-5, rtol=0)
    alone = expected["graph_embedding_alone"]
    torch.testing.assert_close(found["graph_embedding"], alone, atol=2e-5, rtol=0)
    assert verify_sidecar(out)
    with safe_open(out, framework="pt") as file:
        assert "weights_sha256" in file.metadata()["brepfind"]


def test_every_layout_gives_the_same_bytes_in_the_order_asked(clean: Path, tmp_path: Path) -> None:
    """The authors' file, clean weights, and an encoder inside a larger model."""
    tensors, _ = load_weights(clean)
    larger = {f"encoder.{name}": value for name, value in tensors.items()}
    save_file({**larger, "head.weight": torch.rand(2, 3)}, tmp_path / "larger.safetensors")
    expected = load_file(FIXTURES / "expected_small.safetensors")["graph_embedding"]
    first = None
    for weights in (AUTHORS, clean, tmp_path / "larger.safetensors"):
        out = tmp_path / "out.safetensors"
        assert encode_files(weights, [GRAPHS[2], GRAPHS[0]], out) == (2, 64)
        found = load_file(out)
        torch.testing.assert_close(found["graph_embedding"], expected[[2, 0]], atol=2e-5, rtol=0)
        assert len(found["face_tokens_0"]) == 2  # graph 2 has two faces
        first = first or found
        assert all(torch.equal(found[name], first[name]) for name in first)


def test_company_moves_no_bit(clean: Path) -> None:
    encoder = load_encoder(clean)
    one = encode_file(encoder, GRAPHS[1]).graph
    for other in (GRAPHS[0], GRAPHS[3]):
        encode_file(encoder, other)
    assert torch.equal(encode_file(encoder, GRAPHS[1]).graph, one)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers.1.self_attn.wq.weight": None}, r"layers\.1\.self_attn\.wq\.weight is missing"),
        ({"layers.0.more": torch.ones(2)}, r"layers\.0\.more is unexpected"),
        (
            {"layers.0.self_attn.wo.bias": torch.ones(3)},
            r"layers\.0\.self_attn\.wo\.bias is float32 3, asked is float32 64",
        ),
        ({"emb_layer_norm.bias": torch.full((64,), torch.nan)}, r"emb_layer_norm\.bias is all NaN"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_key(
    clean: Path, tmp_path: Path, change: dict[str, torch.Tensor | None], message: str
) -> None:
    tensors = {**load_weights(clean)[0], **change}
    weights, out = tmp_path / "w.safetensors", tmp_path / "out.safetensors"
    save_file({name: value for name, value in tensors.items() if value is not None}, weights)
    with pytest.raises(CheckFailed, match=r"w\.safetensors: .*" + message):
        encode_files(weights, GRAPHS[:1], out)
    assert not out.exists()


def test_files_that_cannot_be_used_are_named_and_nothing_is_written(tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    cut = tmp_path / "cut.bin"
    cut.write_bytes(GRAPHS[1].read_bytes()[:5000])
    with pytest.raises(InputError, match=r"cut\.bin: "):
        encode_files(AUTHORS, [GRAPHS[0], cut], out)
    with pytest.raises(InputError, match=r"small_graph_3\.bin: has 40 faces, more than 39"):
        encode_files(AUTHORS, GRAPHS, out, max_faces=39)
    with pytest.raises(CheckpointError, match="no tensor has a name of the architecture"):
        encode_files(FIXTURES / "expected_small.safetensors", GRAPHS, out)
    with pytest.raises(InputError, match="name the file so"):
        encode_files(AUTHORS, GRAPHS, tmp_path / "out.npz")
    mine = shutil.copy(FIXTURES / "expected_small.safetensors", tmp_path / "mine.safetensors")
    with pytest.raises(InputError, match="is one of the files to read"):
        encode_files(mine, GRAPHS, mine)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.bin", "mine.safetensors"]


def test_matrices_computed_anew_follow_the_rule_asked_for(clean: Path) -> None:
    """The authors take the mean of normals outside the face: another angle, another embedding."""
    encoder = load_encoder(clean)
    own = encode_file(encoder, GRAPHS[1], recompute=True).graph
    theirs = encode_file(encoder, GRAPHS[1], recompute=True, angle_rule="authors").graph
    assert own.isfinite().all() and theirs.isfinite().all()
    assert not torch.allclose(own, theirs, atol=1e-3)


def test_weights_that_overflow_are_told_by_the_graph(clean: Path, tmp_path: Path) -> None:
    tensors, _ = load_weights(clean)
    name = "graph_node_feature.face_centroid_encoder.linear1.weight"
    save_file({**tensors, name: tensors[name] * 1e37}, tmp_path / "w.safetensors")
    with pytest.raises(CheckFailed, match=r"small_graph_0\.bin: its embedding is not finite"):
        encode_file(load_encoder(tmp_path / "w.safetensors"), GRAPHS[0])
