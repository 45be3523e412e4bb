"""The pairs of a run: which parts and captions there are, and how a step's share is made."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from brepfind.corpus.manifest import read_corpus
from brepfind.errors import InputError
from brepfind.graphs.collate import collate, size_features
from brepfind.graphs.dataset import PartReader
from brepfind.graphs.descriptors import shape_features
from brepfind.graphs.store import GraphStore
from brepfind.graphs.twins import twin_groups
from brepfind.training.batches import Micro, Order, StepBatch, share_of
from brepfind.training.face_view import shuffle_faces
from brepfind.training.faults import Faults
from brepfind.training.loss import guessing, same_pairs
from brepfind.training.ragged import Ragged

_KEPT_PARTS = 2000  # parts that a loader keeps in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Parts that have captions, and their captions.

    Attributes:
        ids: part ids, sorted; N of them.
        numbers: int64 (N,), where each part stands among all parts of the run.
        twins: int64 (N,), equal for twins.
        captions: for each part, numbers of its captions among the run's distinct captions.
    """

    ids: tuple[str, ...]
    numbers: NDArray[np.int64]
    twins: NDArray[np.int64]
    captions: tuple[NDArray[np.int64], ...]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def counts(self) -> NDArray[np.int64]:
        """int64 (N,), captions of each part."""
        return np.array([len(mine) for mine in self.captions], dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """All that a run trains and validates on.

    Attributes:
        ids: all parts of the run.
        texts: its distinct captions.
        train, validation: the two splits.
        sizes: float32 (training parts, 5), see ``SIZE_FIELDS``.
        shapes: float32 (training parts, 26), see ``SHAPE_FIELDS``.
        left_out: why parts of the splits are not in the run, and how many.
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    train: Items
    validation: Items
    sizes: Tensor
    shapes: Tensor
    left_out: dict[str, int]


def read_pool(
    store: GraphStore,
    corpus: Path,
    split: Path,
    max_faces: int,
    alive: Callable[[], None] = lambda: None,
) -> Pool:
    """Read the splits and captions of a run.

    Args:
        alive: called between parts, of which each takes a millisecond or two.

    Raises:
        InputError: if a split holds no part with a caption, a part of a split is not in the store,
            or a part has more than ``max_faces`` faces.
    """
    sides = _read_split(split)
    captions = read_corpus(corpus).captions
    unknown = [model_id for model_id in sides["model_id"] if model_id not in store]
    if unknown:
        raise InputError(f"{split}: part {unknown[0]!r} is not in {store.folder}; split again")
    faces = dict(zip(store.ids, store.manifest["faces"].tolist(), strict=True))
    big = [model_id for model_id in sides["model_id"] if faces[model_id] > max_faces]
    if big:
        raise InputError(
            f"{len(big)} parts have more faces than train.encoder.max_faces = {max_faces}, such as "
            f"{big[0]!r} with {faces[big[0]]}; raise it or lower extract.max_faces"
        )
    groups = dict(zip(store.ids, twin_groups(store.signatures).tolist(), strict=True))
    wanted = sides[sides["split"].isin(["train", "validation"])]
    captions = captions[captions["model_id"].isin(wanted["model_id"])]
    texts = tuple(sorted(set(captions["caption"])))
    number_of = {text: number for number, text in enumerate(texts)}
    by_part: dict[str, list[int]] = {}
    for model_id, caption in zip(captions["model_id"], captions["caption"], strict=True):
        by_part.setdefault(model_id, []).append(number_of[caption])
    ids = tuple(sorted(by_part))
    place = {model_id: number for number, model_id in enumerate(ids)}

    def items(side: str) -> Items:
        mine = [i for i in sorted(wanted[wanted["split"] == side]["model_id"]) if i in by_part]
        if not mine:
            raise InputError(f"{split}: no part of the {side} split has a caption")
        return Items(
            ids=tuple(mine),
            numbers=np.array([place[i] for i in mine], dtype=np.int64),
            twins=np.array([groups[i] for i in mine], dtype=np.int64),
            captions=tuple(np.array(by_part[i], dtype=np.int64) for i in mine),
        )

    train, validation = items("train"), items("validation")
    sizes, shapes = [], []
    for model_id in train.ids:
        alive()
        part = store.load(model_id)
        sizes.append(size_features(part.facts))
        shapes.append(shape_features(part))
    return Pool(
        ids=ids,
        texts=texts,
        train=train,
        validation=validation,
        sizes=torch.from_numpy(np.stack(sizes)),
        shapes=torch.from_numpy(np.stack(shapes)),
        left_out={"without_caption": len(wanted) - len(ids)},
    )


def _read_split(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error}); run the split stage") from error
    if not {"model_id", "split"} <= set(table.columns):
        raise InputError(f"{path}: needs the columns model_id and split; run the split stage")
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Where a batch's numbers come from; cheap to pickle.

    Attributes:
        surface, curve: what frozen CNNs gave, or None where they learn.
        hidden: what the frozen layers of the text tower gave.
        pad: what a caption shorter than the batch's longest is filled with.
        numbers: float32 (captions, NUMBER_PLACES), what each names; a row is taken by number.
        patterns: whether the model reads what repeats in a part.
    """

    reader: PartReader
    ids: tuple[str, ...]
    surface: Ragged | None
    curve: Ragged | None
    hidden: Ragged
    pad: int
    numbers: Tensor
    patterns: bool

    def micro(self, parts: Sequence[int], texts: Sequence[int]) -> Micro:
        """Pairs of part numbers and caption numbers."""
        arrays, pairs = self.reader.read([self.ids[number] for number in parts])
        surface, curve = self.surface, self.curve
        hidden, mask = self.texts(texts)
        return Micro(
            parts=collate(
                arrays,
                pairs,
                face_surface=[surface.entry("surface", n) for n in parts] if surface else None,
                edge_curve=[curve.entry("curve", n) for n in parts] if curve else None,
                patterns=self.patterns,
            ),
            hidden=hidden,
            mask=mask,
            numbers=self.numbers[list(texts)],
        )

    def texts(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Hidden states (b, T, h) or token ids (b, T), and the mask (b, T), of captions."""
        rows = [self.hidden.entry("hidden", int(number)) for number in numbers]
        mask = pad_sequence([torch.ones(len(row), dtype=torch.int64) for row in rows], True)
        # Only token ids are filled with the tokenizer's own padding; some towers count by it.
        fill = 0 if rows[0].is_floating_point() else self.pad
        return pad_sequence(rows, batch_first=True, padding_value=fill), mask


class StepData(torch.utils.data.Dataset[StepBatch]):
    """A rank's share of any step, by (epoch, step in it)."""

    def __init__(
        self,
        pieces: Pieces,
        items: Items,
        texts: tuple[str, ...],
        order: Order,
        *,
        rank: int,
        world: int,
        micro_batch: int,
        face_order: Literal["file", "random"],
        faults: Faults,
    ) -> None:
        self.pieces, self.items, self.order, self.texts = pieces, items, order, texts
        self.rank, self.world, self.micro_batch = rank, world, micro_batch
        self.face_order, self.faults = face_order, faults
        self._epoch: tuple[int, NDArray[np.int64], NDArray[np.int64]] | None = None

    def __getitem__(self, at: tuple[int, int]) -> StepBatch:
        epoch, step = at
        self.faults.loading(epoch * self.order.steps + step)
        if self._epoch is None or self._epoch[0] != epoch:
            drawn = self.order.captions(epoch, self.items.counts)
            self._epoch = (epoch, self.order.epoch(epoch), drawn)
        everyone, drawn = self._epoch[1][step], self._epoch[2]
        captions = np.array([self.items.captions[i][drawn[i]] for i in everyone], dtype=np.int64)
        mine = share_of(np.arange(len(everyone)), self.rank, self.world)
        micros = [
            self._micro(self.items.numbers[everyone[rows]].tolist(), captions[rows], epoch)
            for rows in np.split(mine, range(self.micro_batch, len(mine), self.micro_batch))
        ]
        same = same_pairs(torch.from_numpy(self.items.twins[everyone]), torch.from_numpy(captions))
        chance, alone = guessing(same)
        return StepBatch(
            micros=tuple(micros),
            same=same,
            ids=tuple(self.items.ids[i] for i in everyone),
            captions=tuple(self.texts[n] for n in captions[mine]),
            digest=zlib.crc32(np.stack([everyone, captions]).tobytes()),
            chance=chance,
            alone=alone,
        )

    def _micro(self, parts: list[int], captions: NDArray[np.int64], epoch: int) -> Micro:
        micro = self.pieces.micro(parts, captions.tolist())
        if self.face_order == "file":
            return micro
        seen = shuffle_faces(micro.parts, parts, seed=self.order.seed, epoch=epoch)
        return replace(micro, parts=seen)
