"""A corpus in miniature: parts whose captions tell of them, and a real dual encoder."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from brepfind.cad.arrays import PartArrays, PartFacts
from brepfind.cad.signature import SIGNATURE_SIZE
from brepfind.corpus.manifest import read_corpus, write_corpus
from brepfind.graphs.dataset import PartReader
from brepfind.graphs.store import GraphStoreWriter
from brepfind.models.dual import DualEncoder
from brepfind.retrieval.embeddings import Embeddings
from tests.retrieval.tiny import make_dual, make_tower, write_dual

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
    return make_tower(tmp_path_factory.mktemp("tower"), ["a", *KINDS, *map(str, range(10)), "mm"])


@pytest.fixture(scope="session")
def dual(tower_folder: Path) -> DualEncoder:
    return make_dual(tower_folder)


@pytest.fixture(scope="session")
def weights(
    tmp_path_factory: pytest.TempPathFactory, dual: DualEncoder, tower_folder: Path
) -> Path:
    """The dual encoder as the train stage writes it."""
    return write_dual(tmp_path_factory.mktemp("weights") / "best.safetensors", dual, tower_folder)


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
