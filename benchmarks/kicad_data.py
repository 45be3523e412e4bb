"""The parts of `make bench-kicad` as the pipeline's stages would leave them, in a folder of the
bench's own, so that a project's own data stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.kicad_choose import LIST, MAX_FACES
from brepfind.cad.extract import ExtractConfig
from brepfind.checkpoints import sanitize
from brepfind.checkpoints.read import read_checkpoint
from brepfind.checkpoints.weights import save_weights
from brepfind.corpus.manifest import Corpus, read_corpus, write_corpus
from brepfind.corpus.splits import leaking_parts
from brepfind.errors import InputError
from brepfind.files import atomic_path, sha256
from brepfind.graphs.dataset import PartReader
from brepfind.graphs.extraction import extract_store
from brepfind.graphs.extraction_cache import ExtractionCache
from brepfind.graphs.store import GraphStore
from brepfind.graphs.twins import twin_groups
from brepfind.log import progress
from brepfind.models.encoder import EncoderConfig, architecture
from brepfind.params import check_section, read_params
from brepfind.pipeline import paths
from brepfind.processes import cores
from brepfind.retrieval.leaks import leaked, read_signatures
from brepfind.retrieval.relevant import plain_caption

MANIFEST = Path("data/kicad/corpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """The bench's parts.

    Attributes:
        split: columns ``model_id, split, twin``; ``split_file`` holds it.
        weights: the pretrained encoder's, clean.
        known_to_pretraining: how many parts have a shape that the pretrained encoder has seen; None
            if it does not say what it has seen.
    """

    corpus: Corpus
    corpus_folder: Path
    store: GraphStore
    graphs: Path
    reader: PartReader
    split: pd.DataFrame
    split_file: Path
    twins: Mapping[str, int]
    weights: Path
    known_to_pretraining: int | None

    def ids(self, side: str) -> list[str]:
        """Parts of a split, sorted."""
        return sorted(self.split["model_id"][self.split["split"] == side])

    def captions(self, side: str) -> pd.DataFrame:
        """Captions of a split that say something, sorted by part and index."""
        found = self.corpus.captions[self.corpus.captions["model_id"].isin(self.ids(side))]
        told = [bool(plain_caption(text)) for text in found["caption"]]
        return found[told].sort_values(["model_id", "index"], ignore_index=True)


def prepare_data(root: Path, work: Path, parts: int | None = None) -> Data:
    """Write what is not there yet: corpus, graphs, split and weights.

    Args:
        root: the project. work: the bench's folder.
        parts: take only so many, spread over the list; None for all.

    Raises:
        InputError: if KiCad's parts are not there, or not those that were chosen.
    """
    chosen = pd.read_csv(LIST, dtype=str)
    if parts is not None:
        chosen = chosen.iloc[np.linspace(0, len(chosen) - 1, parts).round().astype(int)]
    corpus = _corpus(root / MANIFEST, work / "corpus", chosen)
    store = _graphs(corpus, work, chosen)
    split = pd.DataFrame({"model_id": list(store.ids), "twin": twin_groups(store.signatures)})
    split = split.merge(chosen[["model_id", "split"]])
    leaks = leaking_parts(split["twin"].to_numpy(), split["split"].tolist())
    if leaks or len(split) < len(chosen):
        raise InputError(
            f"{LIST}: {len(leaks)} parts have a twin on another side, {len(chosen) - len(split)} "
            "were not accepted by extraction; the list was made with other code"
        )
    split_file = work / "split.parquet"
    with atomic_path(split_file) as aside:
        split.to_parquet(aside, index=False)
    checkpoint = root / str(read_params(root / paths.PARAMS)["sanitize"]["checkpoint"])
    seen = read_signatures(checkpoint)
    return Data(
        corpus=corpus,
        corpus_folder=work / "corpus",
        store=store,
        graphs=store.folder,
        reader=PartReader(store.folder, work / "pairs"),
        split=split,
        split_file=split_file,
        twins=dict(zip(split["model_id"], split["twin"], strict=True)),
        weights=_weights(checkpoint, work),
        known_to_pretraining=None
        if seen is None
        else len(leaked(list(store.ids), store.signatures, seen)),
    )


def _corpus(manifest: Path, folder: Path, chosen: pd.DataFrame) -> Corpus:
    if not (manifest / "corpus.json").is_file():
        raise InputError(f"{manifest}: is not there; run `make data-kicad`")
    whole = read_corpus(manifest)
    missing = set(chosen["model_id"]) - set(whole.parts["model_id"])
    if missing:
        raise InputError(
            f"{manifest}: lacks {len(missing)} of the parts of {LIST.name}, such as "
            f"{min(missing)!r}; the bench needs the versions that `make data-kicad` fetches"
        )
    with progress("comparing files", len(chosen)) as bar:
        for model_id, wanted in zip(chosen["model_id"], chosen["sha256"], strict=True):
            if sha256(whole.step_path(model_id)) != wanted:
                raise InputError(
                    f"{whole.step_path(model_id)}: is not the file that was chosen; the bench "
                    "needs the versions that `make data-kicad` fetches"
                )
            bar.advance()
    parts = chosen[["model_id", "family", "split"]].assign(path=chosen["model_id"])
    captions = whole.captions[whole.captions["model_id"].isin(parts["model_id"])]
    root = os.path.relpath(whole.root.resolve(), folder)
    write_corpus(folder, parts, captions, root, whole.source, whole.notes)
    return read_corpus(folder)


def _graphs(corpus: Corpus, work: Path, chosen: pd.DataFrame) -> GraphStore:
    folder = work / "graphs"
    if (folder / "manifest.parquet").is_file():
        store = GraphStore(folder)
        if set(store.manifest["sha256"]) == set(chosen["sha256"]):
            return store
    settings = {"grid": 10, "max_faces": MAX_FACES, "multi_solid": "merge", "timeout_s": 120}
    settings |= {"memory_gb": 4, "max_reject_rate": 0.0, "shards": 16, "cluster": "local"}
    config = check_section(settings, "extract", ExtractConfig)
    files = [(path, path, corpus.step_path(path)) for path in corpus.parts["path"]]
    extract_store(files, folder, config, cores(), ExtractionCache(work / "extracted", config))
    return GraphStore(folder)


def _weights(checkpoint: Path, work: Path) -> Path:
    out = work / f"encoder-{sha256(checkpoint)[:12]}.safetensors"
    if not out.is_file():
        clean = sanitize.sanitize(
            read_checkpoint(checkpoint),
            lambda shapes: architecture(EncoderConfig.from_shapes(shapes)),
            min_coverage=1.0,
        )
        save_weights(out, clean.tensors, {"kind": "encoder", "source": str(checkpoint.name)})
    return out
