import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, CLIPTextModel

from brepfind.errors import CheckpointError, InputError
from brepfind.models import text_source
from brepfind.models.text import TextTower, Tokens

CAPTIONS = ["a bolt", "a bracket with four holes, a rib", "washer"]


@pytest.fixture(params=["minilm", "deberta_folder", "clip_folder"])
def name(request: pytest.FixtureRequest) -> str:
    if request.param == "minilm":
        return "minilm"
    return str(request.getfixturevalue(request.param))


def test_both_halves_equal_the_whole_model_run_by_transformers(
    name: str, clip_folder: Path
) -> None:
    tower = TextTower.load(name, "last", 1).eval()
    tokens = tower.tokenize(CAPTIONS)
    folder = text_source.locate(name)
    if name == str(clip_folder):
        whole = CLIPTextModel.from_pretrained(folder, dtype=torch.float32).eval()
        expected = whole(input_ids=tokens.ids, attention_mask=tokens.mask).pooler_output
    else:
        whole = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        hidden = whole(input_ids=tokens.ids, attention_mask=tokens.mask).last_hidden_state
        expected = torch.stack(
            [row[: int(mask.sum())].mean(0) for row, mask in zip(hidden, tokens.mask, strict=True)]
        )
    torch.testing.assert_close(tower(tokens), expected, atol=2e-6, rtol=1e-5)
    for train in ("frozen", "full"):
        other = TextTower.load(name, train, 1).eval()
        torch.testing.assert_close(other(tokens), expected, atol=2e-6, rtol=1e-5)


def test_everything_is_float32_whatever_the_file_holds(deberta_folder: Path) -> None:
    weights = load_file(deberta_folder / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
    tower = TextTower.load(str(deberta_folder), "frozen", 1)
    assert {p.dtype for p in tower.parameters()} == {torch.float32}


def test_a_caption_does_not_depend_on_its_neighbours(name: str) -> None:
    tower = TextTower.load(name, "last", 2).eval()
    together = tower(tower.tokenize(CAPTIONS))
    alone = torch.cat([tower(tower.tokenize([caption])) for caption in CAPTIONS])
    torch.testing.assert_close(together, alone, atol=2e-6, rtol=1e-5)


def test_only_the_last_layers_learn_and_frozen_ones_have_no_dropout(name: str) -> None:
    tower = TextTower.load(name, "last", 1).train()
    tokens = tower.tokenize(CAPTIONS)
    assert torch.equal(tower.lower(tokens), tower.lower(tokens))
    tower.upper(tower.lower(tokens), tokens.mask).sum().backward()
    learning = {key for key, p in tower.named_parameters() if p.requires_grad}
    last = {key for key in learning if f".{tower.depth - 1}." in key or "final_layer_norm" in key}
    assert learning == last and learning
    assert all(p.grad is not None for p in tower.parameters() if p.requires_grad)


def test_full_trains_every_parameter_and_keeps_only_ids(name: str) -> None:
    tower = TextTower.load(name, "full", 1).train()
    tokens = tower.tokenize(CAPTIONS)
    hidden = tower.lower(tokens)
    assert torch.equal(hidden, tokens.ids)
    tower.upper(hidden, tokens.mask).square().sum().backward()
    assert [key for key, p in tower.named_parameters() if p.grad is None] == []


def test_frozen_keeps_one_vector_per_caption_and_learns_nothing(name: str) -> None:
    tower = TextTower.load(name, "frozen", 1).train()
    tokens = tower.tokenize(CAPTIONS)
    hidden = tower.lower(tokens)
    assert hidden.shape == (3, 1, tower.dim)
    assert not any(p.requires_grad for p in tower.parameters())
    assert not tower.model.training


def test_long_captions_are_cut_and_counted(name: str, clip_folder: Path) -> None:
    tower = TextTower.load(name, "frozen", 1)
    tokens = tower.tokenize(["a bolt", "a bracket " * 300])
    assert tokens.truncated == 1
    assert tokens.ids.shape[1] == tower.max_tokens == tokens.mask[1].sum()
    if name == str(clip_folder):
        assert tokens.ids[1, -1] == tower.tokenizer.eos_token_id


def test_limits_come_from_the_files(deberta_folder: Path, clip_folder: Path) -> None:
    assert TextTower.load("minilm", "frozen", 1).max_tokens == 256
    assert TextTower.load(str(deberta_folder), "frozen", 1).max_tokens == 16
    assert TextTower.load(str(clip_folder), "frozen", 1).max_tokens == 24


def test_an_unknown_family_trains_whole_or_not_at_all(mpnet_folder: Path) -> None:
    tower = TextTower.load(str(mpnet_folder), "frozen", 1).eval()
    assert tower(tower.tokenize(CAPTIONS)).shape == (3, 16)
    with pytest.raises(InputError, match=r"mpnet model cannot be trained in part"):
        TextTower.load(str(mpnet_folder), "last", 1)


def test_more_last_layers_than_there_are(deberta_folder: Path) -> None:
    with pytest.raises(InputError, match=r"last_layers is 4; it has 3 layers"):
        TextTower.load(str(deberta_folder), "last", 4)


def test_a_hub_name_that_is_not_here_says_how_to_get_it() -> None:
    with pytest.raises(InputError, match=r"acme/no-such-tower is not on this machine.*hf download"):
        TextTower.load("acme/no-such-tower", "frozen", 1)
    with pytest.raises(InputError, match="hf download acme/no-such-tower"):
        text_source.fetch("acme/no-such-tower")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        TextTower.load(str(tmp_path / "nothing"), "frozen", 1)
    with pytest.raises(InputError, match="is not a transformers model"):
        TextTower.load(str(tmp_path), "frozen", 1)


def _copy(source: Path, target: Path) -> Path:
    return Path(shutil.copytree(source, target))


def test_missing_tensors_are_an_error_not_random_numbers(
    deberta_folder: Path, tmp_path: Path
) -> None:
    folder = _copy(deberta_folder, tmp_path / "partial")
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.attention.self.key_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"1 tensors are missing.*key_proj"):
        TextTower.load(str(folder), "frozen", 1)


def test_a_tensor_that_is_not_finite_is_named(deberta_folder: Path, tmp_path: Path) -> None:
    folder = _copy(deberta_folder, tmp_path / "nan")
    weights = load_file(folder / "model.safetensors")
    weights["encoder.layer.1.attention.self.key_proj.weight"][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"key_proj.weight in .* is not finite"):
        TextTower.load(str(folder), "frozen", 1)


def test_cut_weights_name_the_folder(deberta_folder: Path, tmp_path: Path) -> None:
    folder = _copy(deberta_folder, tmp_path / "cut")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"cannot be loaded from .*cut"):
        TextTower.load(str(folder), "frozen", 1)


def test_the_shipped_weights_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_source, "_SHIPPED_SHA256", "0" * 64)
    with pytest.raises(CheckpointError, match="the package was changed"):
        TextTower.load("minilm", "frozen", 1)


def test_the_shipped_tower_knows_similar_from_different() -> None:
    tower = TextTower.load("minilm", "frozen", 1).eval()
    vectors = tower(tower.tokenize(["a hex bolt", "a hexagon head screw", "a slice of pizza"]))
    near, far = torch.nn.functional.cosine_similarity(vectors[:1], vectors[1:])
    assert near > 0.5 > far


def test_no_caption_is_an_empty_batch() -> None:
    tokens = TextTower.load("minilm", "frozen", 1).tokenize([])
    assert isinstance(tokens, Tokens) and tokens.ids.shape == (0, 0)


def test_tokenizers_do_not_use_threads_that_break_forked_workers() -> None:
    code = "import brepfind.models.text, os; print(os.environ['TOKENIZERS_PARALLELISM'])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "false"
