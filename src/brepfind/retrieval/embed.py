"""Embedding parts and captions with a dual encoder: in batches, in a fixed order, without noise.

Rows come sorted by part id and caption index, whatever the order asked for, and batches are cut
by that order alone: the same model gives the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from brepfind.corpus.manifest import Corpus
from brepfind.graphs.collate import collate
from brepfind.graphs.dataset import PartReader
from brepfind.log import progress
from brepfind.models.dual import DualEncoder
from brepfind.models.numbers import sentence_numbers
from brepfind.models.text import TextTower
from brepfind.retrieval.embeddings import Embeddings
from brepfind.retrieval.relevant import plain_caption

# A batch of parts is closed at so many parts, faces or face pairs, whichever comes first: faces
# drive the memory of the surface CNN, pairs that of attention.
_PARTS, _FACES, _PAIRS = 64, 2048, 1_000_000
_CAPTIONS = 128


@torch.inference_mode()
def embed(
    model: DualEncoder,
    reader: PartReader,
    corpus: Corpus,
    ids: Iterable[str],
    *,
    twins: Mapping[str, int],
    digest: str = "",
) -> Embeddings:
    """The embeddings of some parts of a corpus and of all their captions that say something.

    The model is used in eval mode, on the device where it is, and left in the mode it had.

    Args:
        ids: of parts that are in the graph store; each must be in the corpus too.
        twins: the twin group of each part.
        digest: of the model's weights; it is kept with the embeddings.
    """
    chosen = sorted(set(ids))
    parts = corpus.parts.set_index("model_id").loc[chosen].reset_index()[["model_id", "family"]]
    parts["twin"] = [twins[model_id] for model_id in chosen]
    captions = corpus.captions[corpus.captions["model_id"].isin(chosen)]
    captions = captions.sort_values(["model_id", "index"], ignore_index=True)
    told = np.array([bool(plain_caption(text)) for text in captions["caption"]], bool)
    captions = captions[told].reset_index(drop=True)
    training = model.training
    model.eval()
    try:
        cad_before, cad = embed_parts(model, reader, chosen)
        text_before, text, truncated = embed_texts(model, captions["caption"].tolist())
    finally:
        model.train(training)
    captions = captions[["model_id", "caption", "index", "level"]].assign(truncated=truncated)
    return Embeddings(
        parts=parts,
        captions=captions,
        cad=cad,
        text=text,
        cad_before=cad_before,
        text_before=text_before,
        model=digest,
        notes={"captions_empty": int((~told).sum())},
    )


@torch.inference_mode()
def embed_parts(
    model: DualEncoder, reader: PartReader, ids: Sequence[str]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """float32 (P, D) before projection and (P, E) after it, in the order of ``ids``."""
    device = model.logit_scale.device
    before = np.empty((len(ids), model.encoder.config.dim), np.float32)
    after = np.empty((len(ids), _width(model)), np.float32)
    done = 0
    with progress("embedding parts", len(ids)) as bar:
        for group in _groups(reader, ids):
            patterns = model.patterns is not None
            batch = collate(*reader.read(group), patterns=patterns).to(device)
            graph, projected = model.embed_parts(batch)
            rows = slice(done, done + len(group))
            before[rows], after[rows] = _plain(graph), _plain(projected)
            done = rows.stop
            bar.advance(len(group))
    assert done == len(ids)
    return before, after


@torch.inference_mode()
def embed_texts(
    model: DualEncoder, texts: Sequence[str]
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_]]:
    """float32 (C, T) before projection and (C, E) after it, and bool (C,): cut at the limit."""
    device = model.logit_scale.device
    before = np.empty((len(texts), model.text.dim), np.float32)
    after = np.empty((len(texts), _width(model)), np.float32)
    truncated = np.zeros(len(texts), bool)
    for a in range(0, len(texts), _CAPTIONS):
        batch = texts[a : a + _CAPTIONS]
        tokens = model.text.tokenize(batch)
        if tokens.truncated:
            truncated[a : a + len(batch)] = [
                model.text.tokenize([text]).truncated > 0 for text in batch
            ]
        tokens = tokens._replace(ids=tokens.ids.to(device), mask=tokens.mask.to(device))
        pooled, projected = model.embed_texts(
            model.text.lower(tokens), tokens.mask, sentence_numbers(batch).to(device)
        )
        rows = slice(a, a + len(batch))
        before[rows], after[rows] = _plain(pooled), _plain(projected)
    return before, after, truncated


@torch.inference_mode()
def sentence_vectors(tower: TextTower, texts: Sequence[str]) -> NDArray[np.float32]:
    """float32 (C, T), what a text tower alone gives; for the baseline."""
    device = next(tower.parameters()).device
    training = tower.training
    tower.eval()
    rows = np.empty((len(texts), tower.dim), np.float32)
    for a in range(0, len(texts), _CAPTIONS):
        tokens = tower.tokenize(texts[a : a + _CAPTIONS])
        tokens = tokens._replace(ids=tokens.ids.to(device), mask=tokens.mask.to(device))
        rows[a : a + _CAPTIONS] = _plain(tower(tokens))
    tower.train(training)
    return rows


def _groups(reader: PartReader, ids: Sequence[str]) -> Iterator[list[str]]:
    """Consecutive ids, each group within the limits (or a single part)."""
    faces = dict(zip(reader.store.ids, reader.store.manifest["faces"].tolist(), strict=True))
    group: list[str] = []
    n_faces = n_pairs = 0
    for model_id in ids:
        mine = int(faces[model_id])
        full = len(group) == _PARTS or n_faces + mine > _FACES or n_pairs + mine * mine > _PAIRS
        if group and full:
            yield group
            group, n_faces, n_pairs = [], 0, 0
        group.append(model_id)
        n_faces, n_pairs = n_faces + mine, n_pairs + mine * mine
    if group:
        yield group


def _width(model: DualEncoder) -> int:
    return model.part_projection.out.out_features


def _plain(rows: Tensor) -> NDArray[np.float32]:
    return rows.float().cpu().numpy()
