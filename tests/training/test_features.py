"""What frozen parts give is kept under a name that follows from all that decides it."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from brepfind.distributed.group import Group, open_group
from brepfind.graphs.dataset import PartReader
from brepfind.graphs.store import GraphStore, GraphStoreWriter
from brepfind.models.dual import DualEncoder
from brepfind.models.text import TextTower
from brepfind.training import features
from brepfind.training.build import build_dual
from brepfind.training.faults import Faults
from brepfind.training.prepare import prepare
from tests.training.tiny import config, make_job, part

CAPTIONS = ["a small plate", "shaft 3 mm", "a huge gear"]
IDS = ["one", "two"]


@pytest.fixture
def group() -> Iterator[Group]:
    with open_group(30.0, device="cpu") as group:
        yield group


@pytest.fixture(autouse=True)
def _heard(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("logging.Logger.propagate", True, raising=False)
    caplog.set_level("INFO", logger="brepfind")


def store(folder: Path, second: int = 2) -> PartReader:
    """Two parts; ``second`` seeds the second's arrays."""
    with GraphStoreWriter(folder / "graphs", shards=1) as writer:
        for model_id, seed in zip(IDS, (1, second), strict=True):
            writer.add(model_id, f"{model_id}.step", "0" * 64, part(1, 0, seed))
    return PartReader(GraphStore(folder / "graphs"), folder / "pairs", keep=4)


def dual(inputs: Path, **changes: object) -> DualEncoder:
    tower = str(changes.pop("tower", inputs / "tower"))
    return build_dual(config(text_tower=tower, **changes), None).eval()


def sets(folder: Path, kind: str) -> set[str]:
    return {path.name for path in folder.glob(f"{kind}-*")}


@pytest.fixture
def part_sets(inputs: Path, tmp_path: Path, group: Group) -> Callable[..., set[str]]:
    """The sets of surface features there are after a run."""
    reader = store(tmp_path)

    def run(model: DualEncoder, reader: PartReader = reader, ids: list[str] = IDS) -> set[str]:
        features.part_features(model, reader, ids, group, tmp_path / "kept")
        return sets(tmp_path / "kept", "surface")

    return run


def test_part_features_follow_from_weights_arrays_order_and_versions(
    inputs: Path,
    tmp_path: Path,
    part_sets: Callable[..., set[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever changes the numbers makes a set of its own; what does not change them, none."""
    first = part_sets(dual(inputs))
    assert len(first) == 1
    learning = dual(inputs)
    learning.encoder.layers[0].feed_forward.w1.weight.data.zero_()
    assert part_sets(learning) == first
    frozen = dual(inputs)
    frozen.encoder.cnns()[0].conv1[0].weight.data += 1e-3
    assert len(part_sets(frozen)) == 2
    statistics = dual(inputs)
    statistics.encoder.cnns()[0].conv1[1].running_mean += 1e-3
    assert len(part_sets(statistics)) == 3
    assert len(part_sets(dual(inputs), store(tmp_path / "other", second=3))) == 4
    assert len(part_sets(dual(inputs), ids=IDS[::-1])) == 5
    for place, name in enumerate(("FEATURE_VERSION", "_KEPT_VERSION"), start=6):
        with monkeypatch.context() as patch:
            patch.setattr(features, name, 99)
            assert len(part_sets(dual(inputs))) == place
    model = dual(inputs)
    monkeypatch.setattr(torch, "__version__", "99.0")
    assert len(part_sets(model)) == 8


def test_a_cnn_that_learns_has_nothing_kept(inputs: Path, tmp_path: Path, group: Group) -> None:
    model = dual(inputs, freeze=["curve_cnn"])
    surface, curve = features.part_features(model, store(tmp_path), IDS, group, tmp_path / "kept")
    assert surface is None and curve is not None
    assert not sets(tmp_path / "kept", "surface")


@pytest.fixture
def caption_sets(tmp_path: Path, group: Group) -> Callable[..., set[str]]:
    def run(tower: TextTower, captions: list[str] = CAPTIONS) -> set[str]:
        features.caption_features(tower, captions, group, tmp_path / "kept")
        return sets(tmp_path / "kept", "text")

    return run


def changed_tower(inputs: Path, folder: Path, file: str, change: Callable[[dict], object]) -> Path:
    """A copy of the text tower with one of its JSON files changed."""
    shutil.copytree(inputs / "tower", folder)
    content = json.loads((folder / file).read_text())
    change(content)
    (folder / file).write_text(json.dumps(content))
    return folder


def test_caption_features_follow_from_tower_tokenizer_and_captions(
    inputs: Path, tmp_path: Path, group: Group, caption_sets: Callable[..., set[str]]
) -> None:
    first = caption_sets(dual(inputs).text)
    assert len(first) == 1
    moved = shutil.copytree(inputs / "tower", tmp_path / "moved")
    assert caption_sets(dual(inputs, tower=moved).text) == first
    learning = dual(inputs).text
    learning.model.encoder.layer[1].output.dense.weight.data += 1e-3
    assert caption_sets(learning) == first
    frozen = dual(inputs).text
    frozen.model.encoder.layer[0].output.dense.weight.data += 1e-3
    assert len(caption_sets(frozen)) == 2

    def swap(content: dict) -> None:
        words = content["model"]["vocab"]
        words["small"], words["huge"] = words["huge"], words["small"]

    other = changed_tower(inputs, tmp_path / "other", "tokenizer.json", swap)
    assert len(caption_sets(dual(inputs, tower=other).text)) == 3
    eager = changed_tower(
        inputs, tmp_path / "eager", "config.json", lambda content: content.update(hidden_act="relu")
    )
    assert len(caption_sets(dual(inputs, tower=eager).text)) == 4
    assert len(caption_sets(dual(inputs).text, [*CAPTIONS[:2], "a huge plate"])) == 5
    assert len(caption_sets(dual(inputs, text_train="frozen").text)) == 6
    assert len(caption_sets(dual(inputs, last_layers=2).text)) == 7
    short = dual(inputs).text
    short.max_tokens = 2  # captions lose their end
    assert features.caption_features(short, CAPTIONS, group, tmp_path)[1] == len(CAPTIONS)
    assert len(caption_sets(short)) == 8
    first_token = dual(inputs, text_train="frozen").text
    first_token.pooling = "first"
    assert len(caption_sets(first_token)) == 9


def test_kept_captions_are_what_the_tower_gives(inputs: Path, tmp_path: Path, group: Group) -> None:
    tower = dual(inputs).text
    kept, _ = features.caption_features(tower, CAPTIONS, group, tmp_path)
    for number, caption in enumerate(CAPTIONS):
        alone = tower.lower(tower.tokenize([caption]))[0]
        torch.testing.assert_close(kept.entry("hidden", number), alone)


def test_the_first_run_computes_says_so_and_the_next_one_reads(
    inputs: Path, tmp_path: Path, group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    reader = store(tmp_path)
    for said in ("computed once and kept", "kept by an earlier run"):
        caplog.clear()
        features.part_features(dual(inputs), reader, IDS, group, tmp_path / "kept")
        told = [message for message in caplog.messages if "do not learn" in message]
        assert [message.split()[0] for message in told] == ["surface", "curve"]
        assert all(f"features of 2 entries do not learn: {said}" in one for one in told)


@pytest.mark.parametrize("harm", ["flip", "cut", "no sum"])
def test_kept_bytes_that_changed_are_computed_again(
    inputs: Path, tmp_path: Path, group: Group, caplog: pytest.LogCaptureFixture, harm: str
) -> None:
    reader, kept = store(tmp_path), tmp_path / "kept"
    before, _ = features.part_features(dual(inputs), reader, IDS, group, kept)
    assert before is not None
    expected = before.entry("surface", 1).clone()  # the file is mapped
    (piece,) = kept.glob("surface-*/*.safetensors")
    content = bytearray(piece.read_bytes())
    if harm == "flip":
        content[-2] ^= 0x40
    piece.write_bytes(content[:-5] if harm == "cut" else content)
    if harm == "no sum":
        piece.with_name(f"{piece.name}.sha256").unlink()
    after, _ = features.part_features(dual(inputs), reader, IDS, group, kept)
    assert after is not None
    assert torch.equal(after.entry("surface", 1), expected)
    assert f"{piece.name}" in caplog.text and "to be computed again" in caplog.text


def test_random_weights_that_are_frozen_are_said(
    inputs: Path, tmp_path: Path, group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    said = "train.freeze keeps surface_cnn at random weights"
    prepare(make_job(inputs, tmp_path, processes=1, freeze=[]), group, Faults((), 0))
    assert said not in caplog.text
    prepare(make_job(inputs, tmp_path, processes=1, freeze=["surface_cnn"]), group, Faults((), 0))
    assert said in caplog.text
