"""Tiny text models on disk in the layout of the real ones, and random parts as batches."""

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch
from transformers import (
    CLIPConfig,
    CLIPModel,
    CLIPTokenizer,
    DebertaV2Config,
    DebertaV2Model,
    MPNetConfig,
    MPNetModel,
)

from brepfind.graphs.batch import MAX_PATH, PartBatch
from brepfind.graphs.descriptors import SHAPE_FIELDS
from brepfind.graphs.lengths import LENGTH_PLACES
from brepfind.graphs.patterns import PATTERN_PLACES

SENTENCES = [
    "a hex bolt M8 x 30 with a washer face",
    "flat washer, 16 mm across, steel",
    "bracket with four holes and a rib",
    "pillow block for a 20 mm shaft",
    "spur gear with 24 teeth, module 2",
]


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def _spm(folder: Path) -> None:
    """A sentencepiece model as DeBERTa-v3 ships it: spm.model beside a small tokenizer config."""
    (folder / "corpus.txt").write_text("\n".join(SENTENCES * 4), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "corpus.txt"),
        model_prefix=str(folder / "spm"),
        vocab_size=55,
        model_type="unigram",
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
        pad_piece="[PAD]",
        bos_piece="[CLS]",
        eos_piece="[SEP]",
        unk_piece="[UNK]",
        minloglevel=2,
    )
    config = {
        "tokenizer_class": "DebertaV2Tokenizer",
        "do_lower_case": False,
        "vocab_type": "spm",
        "model_max_length": 16,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


@pytest.fixture(scope="session")
def deberta_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DeBERTa-v3's settings at a hundredth of its size, saved in float16 as some are."""
    folder = tmp_path_factory.mktemp("deberta")
    _spm(folder)
    torch.manual_seed(0)
    config = DebertaV2Config(
        vocab_size=64,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        relative_attention=True,
        position_buckets=8,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        type_vocab_size=0,
        layer_norm_eps=1e-7,
    )
    DebertaV2Model(config).half().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both towers of a tiny CLIP, as the hub ships it; the tokenizer pads with its end token."""
    folder = tmp_path_factory.mktemp("clip")
    letters = sorted(set("".join(SENTENCES).lower()) - {" "})
    words = [*letters, *(letter + "</w>" for letter in letters)]
    vocab = {word: place for place, word in enumerate(words)}
    for special in ("<|startoftext|>", "<|endoftext|>"):
        vocab[special] = len(vocab)
    tokenizer = CLIPTokenizer(vocab=vocab, merges=[], model_max_length=24)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = CLIPConfig(
        text_config={
            "vocab_size": len(vocab),
            "hidden_size": 24,
            "intermediate_size": 32,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "max_position_embeddings": 24,
            "bos_token_id": vocab["<|startoftext|>"],
            "eos_token_id": vocab["<|endoftext|>"],
            "pad_token_id": vocab["<|endoftext|>"],
        },
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 8,
            "patch_size": 4,
        },
        projection_dim=8,
    )
    CLIPModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def mpnet_folder(tmp_path_factory: pytest.TempPathFactory, deberta_folder: Path) -> Path:
    """A family whose layers are not known here, with a tokenizer that works."""
    folder = tmp_path_factory.mktemp("mpnet")
    for name in ("spm.model", "tokenizer_config.json"):
        (folder / name).write_bytes((deberta_folder / name).read_bytes())
    torch.manual_seed(0)
    config = MPNetConfig(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=40,
    )
    MPNetModel(config).save_pretrained(folder)
    return folder


def random_part(
    faces: int, seed: int, extra: int | None = None, chain: bool = False, grid: int = 4
) -> PartBatch:
    """One part with a random connected graph: a spanning tree and ``extra`` more edges."""
    rng = np.random.default_rng(seed)
    pairs = [(i, i - 1 if chain else int(rng.integers(i))) for i in range(1, faces)]
    more = (faces if extra is None else extra) if faces > 1 else 0
    pairs += [tuple(int(x) for x in rng.choice(faces, 2, replace=False)) for _ in range(more)]
    src = [end for a, b in pairs for end in (a, b)]
    dst = [end for a, b in pairs for end in (b, a)]
    hops, paths = _shortest(faces, src, dst)
    longest = min(max(map(len, paths), default=0), MAX_PATH)
    path = torch.full((faces * faces, longest), -1)
    for row, edges in enumerate(paths):
        path[row, : len(edges[:longest])] = torch.tensor(edges[:longest], dtype=torch.int64)
    torch.manual_seed(seed)
    angle = torch.rand(faces, faces) * 180
    distance = torch.rand(faces, faces)
    return PartBatch(
        face_counts=torch.tensor([faces]),
        edge_counts=torch.tensor([len(src)]),
        face_grid=torch.randn(faces, 7, grid, grid),
        face_type=torch.nn.functional.one_hot(torch.randint(9, (faces,)), 9).float(),
        face_area=torch.rand(faces),
        face_rational=torch.randint(2, (faces,)),
        face_centroid=torch.randn(faces, 3),
        edge_src=torch.tensor(src, dtype=torch.int64),
        edge_dst=torch.tensor(dst, dtype=torch.int64),
        edge_grid=torch.randn(len(src), 12, grid),
        edge_type=torch.randint(2, (len(src), 11)).float(),
        edge_length=torch.rand(len(src)),
        edge_convexity=torch.nn.functional.one_hot(torch.randint(3, (len(src),)), 3).float(),
        hops=torch.tensor(hops),
        angle=((angle + angle.T) / 2).flatten(),
        distance=((distance + distance.T) / 2).flatten(),
        path=path,
        size=torch.randn(1, 5),
        shape=torch.randn(1, len(SHAPE_FIELDS)),
        lengths=torch.rand(1, LENGTH_PLACES),
        patterns=torch.rand(1, PATTERN_PLACES),
    )


def _shortest(faces: int, src: list[int], dst: list[int]) -> tuple[list[int], list[list[int]]]:
    """Hops and the edges of one shortest path for every pair, by breadth-first search."""
    hops, paths = [], []
    for start in range(faces):
        found: dict[int, list[int]] = {start: []}
        queue = [start]
        for face in queue:
            for edge, (a, b) in enumerate(zip(src, dst, strict=True)):
                if a == face and b not in found:
                    found[b] = [*found[face], edge]
                    queue.append(b)
        hops += [len(found[face]) for face in range(faces)]
        paths += [found[face] for face in range(faces)]
    return hops, paths


def join_parts(parts: list[PartBatch]) -> PartBatch:
    """Batches end to end."""
    longest = max(part.path.shape[1] for part in parts)
    joined = {}
    for item in fields(PartBatch):
        values = [getattr(part, item.name) for part in parts]
        if item.name == "path":
            values = [
                torch.nn.functional.pad(v, (0, longest - v.shape[1]), value=-1) for v in values
            ]
        joined[item.name] = None if values[0] is None else torch.cat(values)
    return PartBatch(**joined)


@pytest.fixture
def part() -> Callable[..., PartBatch]:
    return random_part


@pytest.fixture
def join() -> Callable[[list[PartBatch]], PartBatch]:
    return join_parts
