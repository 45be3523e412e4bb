"""Self-supervised pretraining of the encoder on graphs alone; no caption is read.

Two stages, in one process, because BatchNorm lives here. First the surface and the curve CNN
learn from single faces and edges, turned at random. Then they stay as they are, what they give is
computed once, and the rest of the encoder learns from parts with hidden faces. The result is
written in the layout of BRepFormer's authors, complex rotary tables and all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from brepfind.cad.arrays import FEATURE_VERSION, PartArrays
from brepfind.checkpoints.authors import write_authors
from brepfind.errors import CheckFailed, InputError
from brepfind.files import digest, write_json
from brepfind.graphs.batch import PartBatch
from brepfind.graphs.collate import collate
from brepfind.graphs.dataset import PartReader
from brepfind.graphs.pairwise import Pairwise
from brepfind.graphs.store import GraphStore
from brepfind.graphs.twins import twin_groups
from brepfind.log import get_logger, progress
from brepfind.metrics.vitals import vitals
from brepfind.models.encoder import BrepEncoder, EncoderConfig
from brepfind.params import Section
from brepfind.training.pretext import (
    EdgeQuestions,
    FaceQuestions,
    Grids,
    PartQuestions,
    cube_rotations,
    edge_grids,
    face_grids,
    face_numbers,
    hidden_faces,
    hide_faces,
    turned,
)
from brepfind.training.resume import require_finite
from brepfind.training.schedule import lr_share

log = get_logger(__name__)

# Of the final embeddings, below which they are all but equal. Graph tokens share a large common
# part that the norm of a projection takes away, so their spread is small even when it says much.
_MIN_STD = 1e-3
_MIN_DISTINCT = 0.5


class PretrainConfig(Section):
    """How the encoder is pretrained."""

    encoder: EncoderConfig = Field(description="its size; it is written into the checkpoint")
    grid_steps: int = Field(ge=1, description="steps of the CNNs on single faces and edges")
    grids_per_step: int = Field(ge=2, description="faces, and as many edges, per such step")
    part_steps: int = Field(ge=1, description="steps of the rest on whole parts")
    parts_per_step: int = Field(ge=2, description="parts per such step")
    hidden: float = Field(gt=0, lt=1, description="share of a part's faces that a view hides")
    heat: float = Field(gt=0, le=1, description="temperature of the contrast between views")
    lr: float = Field(gt=0, le=1, description="peak learning rate")
    weight_decay: float = Field(ge=0, le=1, description="AdamW's")
    grad_clip: float = Field(gt=0, description="largest norm of the gradient")
    seed: int = Field(ge=0, lt=2**31, description="of weights, batches and what is hidden")


# A size that two CPU cores train in a few minutes.
SMALL = PretrainConfig(
    encoder=EncoderConfig(
        dim=128, layers=4, heads=8, kv_heads=4, feed_forward=256, dropout=0.1, max_faces=512
    ),
    grid_steps=150,
    grids_per_step=96,
    part_steps=400,
    parts_per_step=24,
    hidden=0.3,
    heat=0.1,
    lr=1e-3,
    weight_decay=0.05,
    grad_clip=1.0,
    seed=0,
)

# The authors' 5,095,777 parameters: hours of one core, for thousands of parts.
FULL = PretrainConfig(
    encoder=EncoderConfig(
        dim=256, layers=8, heads=32, kv_heads=8, feed_forward=512, dropout=0.1, max_faces=512
    ),
    grid_steps=400,
    grids_per_step=192,
    part_steps=4_000,
    parts_per_step=24,
    hidden=0.3,
    heat=0.1,
    lr=5e-4,
    weight_decay=0.05,
    grad_clip=1.0,
    seed=0,
)
SIZES = {"small": SMALL, "full": FULL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What is pretrained on: N parts.

    Attributes:
        ids: of the parts in the store. arrays, pairs: of each part.
        twins: int64 (N,), equal for twins, which are not told apart.
        digest: of the parts' contents.
    """

    ids: list[str]
    arrays: list[PartArrays]
    pairs: list[Pairwise]
    twins: NDArray[np.int64]
    digest: str


def read_parts(graphs: Path, pairs: Path, max_faces: int, leave_out: Collection[str]) -> Parts:
    """Read the parts of a store.

    Args:
        pairs: the folder where pairwise matrices are kept.
        max_faces: parts with more are left out.
        leave_out: ids that must not be used, such as twins of parts that are tested on.

    Raises:
        InputError: if fewer than two are left.
    """
    store = GraphStore(graphs)
    groups = dict(zip(store.ids, twin_groups(store.signatures).tolist(), strict=True))
    faces = dict(zip(store.ids, store.manifest["faces"].tolist(), strict=True))
    ids = [i for i in store.ids if faces[i] <= max_faces and i not in leave_out]
    if len(ids) < 2:
        raise InputError(f"{graphs}: {len(ids)} parts of at most {max_faces} faces; needs two")
    if len(ids) < len(store.ids):
        log.info("%d of %d parts are used", len(ids), len(store.ids))
    arrays, matrices = PartReader(store, pairs).read(ids)
    return Parts(
        ids=ids,
        arrays=arrays,
        pairs=matrices,
        twins=np.array([groups[i] for i in ids], dtype=np.int64),
        digest=digest([store.content(i) for i in ids]),
    )


def pretrain(config: PretrainConfig, parts: Parts) -> tuple[BrepEncoder, dict[str, float]]:
    """Pretrain an encoder; the global random state is set from the seed.

    Returns:
        The encoder in eval mode, and what it had learned: mean losses over the last tenth of each
        stage, shares of right answers, vital signs of the embeddings.

    Raises:
        CheckFailed: if a loss, a weight or an embedding is not finite, or embeddings collapsed.
    """
    torch.manual_seed(config.seed)
    encoder = BrepEncoder(config.encoder, seed=config.seed).train()
    numbers = _train_grids(config, encoder, parts)
    features = _features(encoder, parts)
    numbers |= _train_parts(config, encoder, parts, features)
    encoder.eval()
    require_finite("pretrained encoder", dict(encoder.state_dict()))
    return encoder, numbers | _judge(config, encoder, parts, features)


# Stage one: single faces and edges --------------------------------------------------------------


def _train_grids(config: PretrainConfig, encoder: BrepEncoder, parts: Parts) -> dict[str, float]:
    surface_cnn, curve_cnn = encoder.cnns()
    faces = face_grids(parts.arrays)
    with_edges = [part for part in parts.arrays if part.n_edges]
    ask_face = FaceQuestions(config.encoder.dim // 2)
    ask_edge = EdgeQuestions(config.encoder.heads)
    modules = [surface_cnn, ask_face]
    edges = edge_grids(with_edges) if with_edges else None
    if edges is not None:
        modules += [curve_cnn, ask_edge]
    turns = cube_rotations()
    rarity = _rarity(faces.kind)
    areas = torch.from_numpy(np.concatenate([part.face_area for part in parts.arrays]))

    def step() -> dict[str, Tensor]:
        rows = torch.multinomial(rarity, config.grids_per_step, replacement=True)
        grid = turned(faces.grid[rows], turns[torch.randint(24, (len(rows),))], 2)
        loss, right = ask_face(
            encoder.encode_surfaces(grid), faces.kind[rows], face_numbers(grid, areas[rows])
        )
        found = {"loss": loss, "face_kind": right}
        if edges is not None:
            some, convexity = edges
            rows = torch.randint(len(some.grid), (config.grids_per_step,))
            grid = turned(some.grid[rows], turns[torch.randint(24, (len(rows),))], 4)
            loss, right = ask_edge(
                encoder.encode_curves(grid), some.kind[rows], convexity[rows], some.numbers[rows]
            )
            found |= {"loss": found["loss"] + loss, "edge_convexity": right}
        return found

    found = _descend(config, nn.ModuleList(modules), config.grid_steps, step, "faces and edges")
    return {f"grids_{name}": value for name, value in found.items()}


def _rarity(kinds: Tensor) -> Tensor:
    """(N,), how often each face is drawn: most are planes, and all kinds are to be learned."""
    counts = torch.bincount(kinds).float()
    return counts.clamp_min(1).rsqrt()[kinds]


# Stage two: parts -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Features:
    """Per part: what the CNNs give, face kinds, and face numbers."""

    surface: list[Tensor]
    curve: list[Tensor]
    kinds: list[Tensor]
    numbers: list[Tensor]

    def batch(self, parts: Parts, rows: Sequence[int]) -> PartBatch:
        return collate(
            [parts.arrays[i] for i in rows],
            [parts.pairs[i] for i in rows],
            face_surface=[self.surface[i] for i in rows],
            edge_curve=[self.curve[i] for i in rows],
        )


@torch.no_grad()
def _features(encoder: BrepEncoder, parts: Parts) -> _Features:
    found = _Features([], [], [], [])
    encoder.eval()
    for part in parts.arrays:
        faces: Grids = face_grids([part])
        found.surface.append(encoder.encode_surfaces(faces.grid))
        found.kinds.append(faces.kind)
        found.numbers.append(faces.numbers)
        if part.n_edges:
            found.curve.append(encoder.encode_curves(edge_grids([part])[0].grid))
        else:
            found.curve.append(torch.zeros(0, encoder.config.heads))
    encoder.train()
    return found


def _train_parts(
    config: PretrainConfig, encoder: BrepEncoder, parts: Parts, features: _Features
) -> dict[str, float]:
    for cnn in encoder.cnns():
        cnn.requires_grad_(False)
    ask = PartQuestions(config.encoder.dim)
    size = min(config.parts_per_step, len(parts.arrays))
    twins = torch.from_numpy(parts.twins)

    def step() -> dict[str, Tensor]:
        rows = torch.randperm(len(parts.arrays))[:size].tolist()
        batch = features.batch(parts, rows)
        kinds = torch.cat([features.kinds[i] for i in rows])
        numbers = torch.cat([features.numbers[i] for i in rows])
        graphs, found = [], {"loss": torch.zeros(())}
        for _ in range(2):
            hidden = hidden_faces(batch.face_counts, config.hidden)
            view = encoder(hide_faces(batch, hidden))
            graphs.append(view.graph)
            found["loss"] = found["loss"] + ask.whole(view.graph, batch, kinds)
            if hidden.any():
                loss, right = ask.faces(view.faces[hidden], kinds[hidden], numbers[hidden])
                found["loss"], found["hidden_face_kind"] = found["loss"] + loss, right
        same = twins[rows][:, None] == twins[rows][None, :]
        contrast = ask.contrast(graphs[0], graphs[1], same, config.heat)
        return found | {"loss": found["loss"] + contrast, "contrast": contrast}

    found = _descend(config, nn.ModuleList([encoder, ask]), config.part_steps, step, "parts")
    return {f"parts_{name}": value for name, value in found.items()}


# Both -------------------------------------------------------------------------------------------


def _descend(
    config: PretrainConfig,
    modules: nn.Module,
    steps: int,
    step: Callable[[], dict[str, Tensor]],
    what: str,
) -> dict[str, float]:
    """Take ``steps`` steps down ``loss``; means of what was found over the last tenth of them."""
    params = [p for p in modules.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in params if p.dim() >= 2], "weight_decay": config.weight_decay},
            {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
        ],
        lr=config.lr,
    )
    tail = max(1, steps // 10)
    sums: dict[str, list[float]] = {}
    with progress(f"pretrain {what}", steps) as bar:
        for number in range(steps):
            share = lr_share(number, warmup=max(1, steps // 20), total=steps, schedule="cosine")
            for group in optimizer.param_groups:
                group["lr"] = config.lr * share
            found = step()
            norm = torch.zeros(())
            if torch.isfinite(found["loss"]):
                found["loss"].backward()
                norm = torch.nn.utils.clip_grad_norm_(params, config.grad_clip)
            if not (torch.isfinite(found["loss"]) and torch.isfinite(norm)):
                raise CheckFailed(
                    f"pretraining on {what}: the loss or its gradient is not finite at step "
                    f"{number}; lower the learning rate"
                )
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            values = {name: float(value.detach()) for name, value in found.items()}
            if number >= steps - tail:
                for name, value in values.items():
                    sums.setdefault(name, []).append(value)
            if number % max(1, steps // 10) == 0:
                said = ", ".join(f"{name} {value:.3f}" for name, value in values.items())
                log.info("%s, step %d of %d: %s", what, number, steps, said)
            bar.advance()
    return {name: sum(values) / len(values) for name, values in sums.items()}


@torch.no_grad()
def _judge(
    config: PretrainConfig, encoder: BrepEncoder, parts: Parts, features: _Features
) -> dict[str, float]:
    size = config.parts_per_step
    rows = [
        encoder(features.batch(parts, range(start, min(start + size, len(parts.arrays))))).graph
        for start in range(0, len(parts.arrays), size)
    ]
    signs = vitals(torch.cat(rows).numpy(), parts.twins)
    if not (signs.column_std >= _MIN_STD and signs.distinct >= _MIN_DISTINCT):
        raise CheckFailed(
            f"the pretrained encoder collapsed: embedding std {signs.column_std:.3g} (asked: >= "
            f"{_MIN_STD}), distinct rows {signs.distinct:.3g} (asked: >= {_MIN_DISTINCT})"
        )
    return {
        "embedding_std": signs.column_std,
        "mean_cosine": signs.mean_cosine,
        "effective_rank": signs.rank_centred,
        "distinct": signs.distinct,
    }


def write_pretrained(config: PretrainConfig, parts: Parts, out: Path) -> None:
    """Pretrain, and write the checkpoint with its account beside it (``.json``)."""
    encoder, numbers = pretrain(config, parts)
    write_authors(
        out,
        encoder.state_dict(),
        hyper_parameters=config.encoder.model_dump(),
        global_step=config.grid_steps + config.part_steps,
    )
    write_json(
        out.with_suffix(".json"),
        {
            "config": config.model_dump(mode="json"),
            "feature_version": FEATURE_VERSION,
            "parts": len(parts.arrays),
            "parts_digest": parts.digest,
            "numbers": numbers,
        },
    )
    log.info("wrote %s: %s", out, ", ".join(f"{k} {v:.4g}" for k, v in numbers.items()))
