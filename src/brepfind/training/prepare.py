"""Everything a run needs before its first step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from brepfind.cad.arrays import FEATURE_VERSION
from brepfind.distributed.group import Group
from brepfind.errors import InputError
from brepfind.files import digest, sha256
from brepfind.graphs.batch import PartBatch
from brepfind.graphs.collate import collate
from brepfind.graphs.dataset import PartReader
from brepfind.graphs.store import GraphStore
from brepfind.graphs.store_layout import MANIFEST
from brepfind.log import get_logger
from brepfind.models.dual import DualEncoder, calibrate_batch_norm
from brepfind.models.numbers import NUMBER_PLACES, sentence_numbers
from brepfind.models.text_source import fetch
from brepfind.training.batches import Order
from brepfind.training.build import Pairs, build_dual, build_optimizer
from brepfind.training.data import Pieces, Pool, StepData, read_pool
from brepfind.training.faults import Faults
from brepfind.training.features import caption_features, part_features, tensors_digest
from brepfind.training.job import Job
from brepfind.training.resume import code_digest
from brepfind.training.step import GuardedStep

log = get_logger(__name__)

_KEPT_PARTS = 4096  # parts a rank keeps in memory: some 100 kB each without their grids
# Faces that a new encoder's BatchNorm statistics are taken from.
_CALIBRATION_FACES = 1200
_CALIBRATION_PARTS = 16
_READ_AT_ONCE = 4096  # captions
# Settings that cannot change what is learned.
_NO_RESULT = {"timeout_s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A run ready to start; see :func:`prepare`."""

    dual: DualEncoder
    pool: Pool
    pieces: Pieces
    order: Order
    data: StepData
    guarded: GuardedStep
    fingerprint: str
    truncated: int


def prepare(job: Job, group: Group, faults: Faults) -> Prepared:
    """Read data and weights, compute or find frozen features, build the guarded step.

    Raises:
        InputError, CheckpointError, ParamsError: if something given does not fit.
        CheckFailed: if ranks do not see the same inputs, or frozen features are not finite.
    """
    config = job.train
    if group.world != config.processes:
        raise InputError(
            f"torchrun started {group.world} processes, {group.local_world} of them on this "
            f"machine; train.processes is {config.processes}: make the two equal"
        )
    group.same("the code of training, or its torch,", code_digest())
    group.same("the job: what node 0 asks for, and what is read here,", digest(job.model_dump()))
    torch.manual_seed(config.seed)
    store = GraphStore(Path(job.graphs))
    with group.local_rank_zero_first("weights"):
        if group.local_rank == 0:
            fetch(config.text_tower)
        dual = build_dual(config, Path(job.weights) if job.weights else None)
    pool = read_pool(
        store,
        Path(job.corpus),
        Path(job.split),
        max_faces=dual.encoder.config.max_faces,
        alive=lambda: group.watch.beat("read parts and captions"),
    )
    group.watch.beat("prepare")
    reader = PartReader(store, Path(job.pairs), keep=_KEPT_PARTS)
    dual.to(group.device)
    if job.weights is None and config.freeze and group.first:
        log.warning(
            "no pretrained encoder was given, and train.freeze keeps %s at random weights; take "
            "out what should learn",
            " and ".join(config.freeze),
        )
    if job.weights is None and config.freeze_batch_norm:
        _calibrate(dual, reader, pool, group, config.seed)
    dual.set_fact_statistics(pool.sizes.to(group.device), pool.shapes.to(group.device))
    fingerprint = digest(
        [
            config.model_dump(mode="json", exclude=_NO_RESULT),
            group.world,
            FEATURE_VERSION,
            tensors_digest(dual.state_dict()),
            sha256(Path(job.graphs) / MANIFEST),
            sha256(Path(job.corpus) / "captions.parquet"),
            sha256(Path(job.split)),
        ]
    )
    group.same("the fingerprint of parameters, data and weights", fingerprint)
    pieces, truncated = _pieces(job, dual, reader, pool, group)
    order = Order(items=len(pool.train), batch_size=config.batch_size, seed=config.seed)
    share = config.batch_size // group.world
    data = StepData(
        pieces,
        pool.train,
        pool.texts,
        order,
        rank=group.rank,
        world=group.world,
        micro_batch=config.micro_batch or share,
        face_order=config.face_order,
        faults=faults,
    )
    guarded = GuardedStep(
        Pairs(dual),
        build_optimizer(config, dual),
        group,
        config,
        total_steps=config.epochs * order.steps,
        faults=faults,
    )
    return Prepared(
        dual=dual,
        pool=pool,
        pieces=pieces,
        order=order,
        data=data,
        guarded=guarded,
        fingerprint=fingerprint,
        truncated=truncated,
    )


def _pieces(
    job: Job, dual: DualEncoder, reader: PartReader, pool: Pool, group: Group
) -> tuple[Pieces, int]:
    folder = Path(job.features)
    dual.eval()
    surface, curve = part_features(dual, reader, pool.ids, group, folder)
    hidden, truncated = caption_features(dual.text, pool.texts, group, folder)
    dual.train()
    numbers = torch.empty(len(pool.texts), NUMBER_PLACES)
    for start in range(0, len(pool.texts), _READ_AT_ONCE):
        group.watch.beat("read captions")
        texts = pool.texts[start : start + _READ_AT_ONCE]
        numbers[start : start + len(texts)] = sentence_numbers(texts)
    if truncated:
        log.warning(
            "%d of %d captions are longer than the %d tokens of %s and lose their end",
            truncated,
            len(pool.texts),
            dual.text.max_tokens,
            dual.text.name,
        )
    pad = dual.text.tokenizer.pad_token_id
    pieces = Pieces(
        reader=reader,
        ids=pool.ids,
        surface=surface,
        curve=curve,
        hidden=hidden,
        numbers=numbers,
        patterns=dual.patterns is not None,
        pad=0 if pad is None else int(pad),
    )
    return pieces, truncated


def _calibrate(dual: DualEncoder, reader: PartReader, pool: Pool, group: Group, seed: int) -> None:
    """Give a new encoder BatchNorm statistics from training parts; rank 0's are everyone's."""
    order = np.random.default_rng([seed, 2]).permutation(len(pool.train))
    chosen: list[str] = []
    faces = 0
    for number in order:
        model_id = pool.train.ids[number]
        count = reader.store.load(model_id).n_faces
        if chosen and faces + count > _CALIBRATION_FACES:
            break
        chosen.append(model_id)
        faces += count

    def batches() -> Iterator[PartBatch]:
        for start in range(0, len(chosen), _CALIBRATION_PARTS):
            group.watch.beat("calibrate BatchNorm")
            ids = chosen[start : start + _CALIBRATION_PARTS]
            yield collate(*reader.read(ids)).to(group.device)

    if group.first:
        calibrate_batch_norm(dual.encoder, batches())
    group.barrier("calibrate BatchNorm")
    buffers = {name: value.cpu() for name, value in dual.encoder.named_buffers()}
    buffers = group.from_first(buffers, "send BatchNorm statistics")
    with torch.no_grad():
        for name, value in dual.encoder.named_buffers():
            value.copy_(buffers[name])
