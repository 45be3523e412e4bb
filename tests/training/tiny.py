"""A run in miniature: parts whose captions tell of them, a text tower of two layers, a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from brepfind.cad.arrays import PartArrays, PartFacts
from brepfind.corpus.manifest import write_corpus
from brepfind.graphs.store import GraphStoreWriter
from brepfind.training.config import TrainConfig
from brepfind.training.job import Job

KINDS = ("plate", "shaft", "bracket", "gear")
SIZES = ("small", "large", "huge")
GRID = 3

SETTINGS: dict[str, Any] = {
    "processes": 1,
    "epochs": 2,
    "batch_size": 8,
    "micro_batch": None,
    "lr": 3e-3,
    "text_lr": 1e-3,
    "weight_decay": 0.01,
    "warmup_steps": 2,
    "schedule": "cosine",
    "precision": "fp32",
    "text_tower": "a folder",
    "text_train": "last",
    "last_layers": 1,
    "text_fp16": False,
    "encoder": {
        "dim": 16,
        "layers": 2,
        # As many as can be had: encoders of one number are as wide, and with two units both of
        # their ReLUs die by chance.
        "heads": 8,
        "kv_heads": 4,
        "feed_forward": 16,
        "dropout": 0.1,
        "max_faces": 64,
    },
    "embed_dim": 8,
    "size_features": True,
    "shape_features": True,
    "number_features": True,
    "freeze": ["surface_cnn", "curve_cnn"],
    "freeze_batch_norm": True,
    "gradient_checkpointing": False,
    "loss": {"local": True},
    "grad_clip": 1.0,
    "nonfinite": "halt",
    "max_skips_in_a_row": 3,
    "max_skip_rate": 0.2,
    "skip_window": 20,
    "initial_loss_scale": 65536.0,
    "min_loss_scale": 1.0,
    "max_overflows_in_a_row": 20,
    "scan_every": 4,
    "validation_every": 1,
    "patience": None,
    "min_embedding_std": 0.01,
    "min_distinct_rows": 0.3,
    "max_epochs_at_chance": None,
    "seed": 1,
    "timeout_s": 120.0,
}


def config(**changes: Any) -> TrainConfig:
    """The settings with some changed."""
    return TrainConfig.model_validate({**SETTINGS, **changes})


def part(kind: int, size: int, seed: int) -> PartArrays:
    """A ring of faces; the kind sets how many and their types, the size the facts."""
    rng = np.random.default_rng([kind, size, seed])
    faces = 1 if kind == 3 else 3 + kind  # gears have no edge at all
    pairs = [(a, (a + 1) % faces) for a in range(faces)] if faces > 2 else []
    src = [face for a, b in pairs for face in (a, b)]
    dst = [face for a, b in pairs for face in (b, a)]
    edges = len(src)
    length = 10.0 * (size + 1) + rng.random()

    def noise(*shape: int) -> np.ndarray:
        return (0.3 * rng.standard_normal(shape) + 0.2 * kind).astype(np.float32)

    grid = noise(faces, GRID, GRID, 7)
    grid[..., 6] = 1
    edge_type = np.zeros((edges, 11), np.uint8)
    edge_type[:, 3] = 1
    return PartArrays(
        face_grid=grid,
        face_type=np.full(faces, kind, np.uint8),
        face_area=np.abs(noise(faces)),
        face_rational=np.zeros(faces, np.uint8),
        face_centroid=noise(faces, 3),
        face_loops=np.ones(faces, np.uint8),
        edge_src=np.array(src, np.int32),
        edge_dst=np.array(dst, np.int32),
        edge_grid=noise(edges, GRID, 12),
        edge_type=edge_type,
        edge_length=np.abs(noise(edges)),
        edge_convexity=np.full(edges, kind % 3, np.uint8),
        edge_dihedral=noise(edges),
        facts=PartFacts(
            unit="mm",
            box_min=(0.0, 0.0, 0.0),
            box_max=(length, length / 2, 1.0),
            volume=length**3,
            area=length**2,
            solids=1,
        ),
    )


def make_tower(folder: Path) -> Path:
    """A BERT of two layers with a word for everything the captions say."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", *SIZES, *KINDS, *map(str, range(40)), "mm"]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=16
    )
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    BertModel(
        BertConfig(
            vocab_size=len(words),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=16,
        )
    ).save_pretrained(folder)
    return folder


def make_inputs(root: Path, per_kind: int = 4) -> None:
    """Graph store, corpus and split below ``root``: two thirds to train on, a third to validate."""
    rows, captions = [], []
    with GraphStoreWriter(root / "graphs", shards=2) as writer:
        for kind, name in enumerate(KINDS):
            for size, large in enumerate(SIZES):
                for seed in range(per_kind):
                    model_id = f"{name}-{large}-{seed}"
                    writer.add(model_id, f"{model_id}.step", "0" * 64, part(kind, size, seed))
                    rows.append((model_id, "validation" if seed % 3 == 2 else "train"))
                    for index, text in enumerate((f"a {large} {name}", f"{name} {seed} mm")):
                        captions.append((model_id, text, -1, index, ""))
    split = pd.DataFrame(rows, columns=["model_id", "split"])
    (root / "split").mkdir()
    split.to_parquet(root / "split" / "split.parquet")
    parts = pd.DataFrame({"model_id": split["model_id"], "family": "", "split": ""})
    parts["path"] = parts["model_id"] + ".step"
    table = pd.DataFrame(captions, columns=["model_id", "caption", "level", "index", "phrasing"])
    write_corpus(root / "corpus", parts, table, "step", "folder", {})


def make_job(root: Path, run: Path, **changes: Any) -> Job:
    """A job on the inputs below ``root`` that writes below ``run``."""
    job = {name: changes.pop(name) for name in ("save_every", "loader_workers") if name in changes}
    return Job(
        train=config(text_tower=str(root / "tower"), **changes),
        graphs=str(root / "graphs"),
        corpus=str(root / "corpus"),
        split=str(root / "split" / "split.parquet"),
        weights=None,
        out=str(run / "out"),
        state=str(run / "state"),
        events=str(run / "events.jsonl"),
        cost=str(run / "cost.json"),
        postmortem=str(run / "postmortem"),
        features=str(root / "features"),
        pairs=str(root / "pairs"),
        device="cpu",
        **job,
    )
