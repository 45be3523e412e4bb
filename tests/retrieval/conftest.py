"""A corpus in miniature: parts whose captions tell of them, and a real dual encoder."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from brepfind.cad.arrays import FEATURE_VERSION, PartArrays, PartFacts
from brepfind.cad.signature import SIGNATURE_SIZE
from brepfind.checkpoints.weights import save_weights
from brepfind.corpus.manifest import read_corpus, write_corpus
from brepfind.graphs.dataset import PartReader
from brepfind.graphs.store import GraphStoreWriter
from brepfind.models.dual import DualConfig, DualEncoder
from brepfind.models.encoder import BrepEncoder, EncoderConfig
from brepfind.models.text import TextTower
from brepfind.retrieval.embeddings import Embeddings

KINDS = ("plate", "shaft", "bracket")
SPLITS = ("train", "train", "train", "validation", "test", "test")


def _make_part(kind: int, seed: int) -> PartArrays:
    """A ring of 3 + kind faces of one type; the seed sets its size."""
    rng = np.random.default_rng([kind, seed])
    faces = 3 + kind
    ends = [end for a in range(faces) for b in [(a + 1) % faces] for end in ((a, b), (b, a))]
    src, dst = np.array(ends, np.int32).T
    edges, length = len(src), 10.0 * (seed + 1)
    face_grid = rng.standard_normal((faces, 3, 3, 7)).astype(np.float32)
    edge_type = np.zeros((edges, 11), np.uint8)
    edge_type[:, 3] = 1
    return PartArrays(
        face_grid=face_grid,
        face_type=np.full(faces, kind, np.uint8),
        face_area=np.full(faces, 0.5, np.float32),
        face_rational=np.zeros(faces, np.uint8),
        face_centroid=rng.standard_normal((faces, 3)).astype(np.float32),
        face_loops=np.full(faces, 2, np.uint8),
        edge_src=src.copy(),
        edge_dst=dst.copy(),
        edge_grid=rng.standard_normal((edges, 3, 12)).astype(np.float32),
        edge_type=edge_type,
        edge_length=np.ones(edges, np.float32),
        edge_convexity=np.ones(edges, np.uint8),
        edge_dihedral=np.ones(edges, np.float32),
        facts=PartFacts(
            unit="mm",
            box_min=(0.0, 0.0, 0.0),
            box_max=(length, length / 2, 1.0),
            volume=length**2 / 4,
            area=length**2,
            solids=1,
            signature=np.full(SIGNATURE_SIZE, 1.0 + 10 * kind + seed),
        ),
    )


@pytest.fixture(scope="session")
def tower_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two layers with a limit of 8 tokens."""
    folder = tmp_path_factory.mktemp("tower")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", *KINDS, *map(str, range(10)), "mm"]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=8
    ).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=8,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def dual(tower_folder: Path) -> DualEncoder:
    encoder = BrepEncoder(
        EncoderConfig(dim=16, layers=1, heads=2, kv_heads=1, feed_forward=16, dropout=0.1)
    )
    config = DualConfig(embed_dim=8, size_features=True, shape_features=True, number_features=True)
    return DualEncoder(encoder, TextTower.load(str(tower_folder), "last", 1), config)


@pytest.fixture(scope="session")
def weights(
    tmp_path_factory: pytest.TempPathFactory, dual: DualEncoder, tower_folder: Path
) -> Path:
    """The dual encoder as the train stage writes it."""
    path = tmp_path_factory.mktemp("weights") / "best.safetensors"
    metadata = {
        "kind": "dual",
        "encoder": dual.encoder.config.model_dump_json(),
        "dual": dual.config.model_dump_json(),
        "text_tower": str(tower_folder),
        "text_train": "last",
        "last_layers": "1",
        "feature_version": str(FEATURE_VERSION),
    }
    save_weights(path, dual.state_dict(), metadata)
    return path


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Eighteen parts in a real store, with captions, a split and twin groups."""
    root = tmp_path_factory.mktemp("world")
    parts, captions, split = [], [], []
    with GraphStoreWriter(root / "graphs", shards=2) as writer:
        for kind, name in enumerate(KINDS):
            for seed, part_split in enumerate(SPLITS):
                model_id = f"{name}-{seed}"
                writer.add(model_id, f"{model_id}.step", "0" * 64, _make_part(kind, seed))
                parts.append((model_id, f"{model_id}.step", name, ""))
                split.append((model_id, part_split))
                for level, text in enumerate((f"a {name}", f"{name} {seed} mm")):
                    captions.append((model_id, text, level, level, ""))
    captions += [
        ("plate-4", "   ", -1, 2, ""),
        ("plate-5", "a plate 5 mm 5 mm 5 mm 5 mm", 3, 2, ""),
    ]
    write_corpus(
        root / "corpus",
        pd.DataFrame(parts, columns=["model_id", "path", "family", "split"]),
        pd.DataFrame(captions, columns=["model_id", "caption", "level", "index", "phrasing"]),
        "step",
        "folder",
        {},
    )
    ids = [model_id for model_id, *_ in parts]
    return SimpleNamespace(
        root=root,
        reader=PartReader(root / "graphs", root / "pairs"),
        corpus=read_corpus(root / "corpus"),
        split=pd.DataFrame(split, columns=["model_id", "split"]),
        twins={model_id: i for i, model_id in enumerate(ids)},
        ids=ids,
    )


def make_embeddings(
    cad: np.ndarray, rows: list[tuple[str, str, int]], text: np.ndarray, **changes: object
) -> Embeddings:
    """Parts p0, p1, ... and captions (part, caption, level), with families and twins to change."""
    ids = [f"p{i}" for i in range(len(cad))]
    parts = pd.DataFrame(
        {
            "model_id": ids,
            "family": changes.pop("family", [""] * len(ids)),
            "twin": np.array(changes.pop("twin", range(len(ids))), np.int64),
        }
    )
    captions = pd.DataFrame(rows, columns=["model_id", "caption", "level"])
    captions["index"] = captions.groupby("model_id").cumcount().astype(np.int32)
    captions["level"] = captions["level"].astype(np.int8)
    captions["truncated"] = changes.pop("truncated", [False] * len(rows))
    cad, text = np.asarray(cad, np.float32), np.asarray(text, np.float32)
    found = Embeddings(
        parts=parts,
        captions=captions[["model_id", "caption", "index", "level", "truncated"]],
        cad=cad,
        text=text,
        cad_before=cad[:, :0],
        text_before=text[:, :0],
    )
    return replace(found, **changes)


@pytest.fixture
def make_part():
    """The function ``make_part(kind, seed)``."""
    return _make_part


@pytest.fixture
def embeddings_of():
    """The function ``make_embeddings(cad, [(part, caption, level)], text, **changes)``."""
    return make_embeddings
