"""Validation during training: recall on the validation split, and whether a tower is dead."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from brepfind.distributed.group import Group
from brepfind.findings import Finding
from brepfind.metrics.contrast import held_out_loss
from brepfind.metrics.counting import count_both
from brepfind.metrics.guard import tower_findings
from brepfind.metrics.ranks import summarise
from brepfind.metrics.relevance import Relevance
from brepfind.metrics.rows import unit_rows
from brepfind.metrics.vitals import pair_vitals, vitals
from brepfind.models.dual import DualEncoder
from brepfind.training.data import Items, Pieces

# Parts and captions that pass together. Fixed, so that the result does not depend on the ranks.
_PARTS_AT_ONCE = 32
_CAPTIONS_AT_ONCE = 128
KS = (1, 5, 10)

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """The validation split in the common space, not normalised; the same on every rank.

    Attributes:
        parts: (P, D). texts: (C, D), one per distinct caption.
        graphs: (P, dim) and pooled: (C, h), the towers' own vectors before the projections.
        captions: numbers of the distinct captions.
    """

    parts: Rows
    texts: Rows
    graphs: Rows
    pooled: Rows
    captions: NDArray[np.int64]


@torch.no_grad()
def embed(
    dual: DualEncoder, pieces: Pieces, items: Items, group: Group, stop: Callable[[], bool]
) -> Embedded | None:
    """Embed parts and their captions in eval mode, the work dealt to the ranks.

    Args:
        stop: whether this rank was asked to stop; polled between chunks.

    Returns:
        None, on every rank, if any rank was asked to stop.
    """
    captions = np.unique(np.concatenate(items.captions))

    def parts(numbers: Sequence[int]) -> tuple[Rows, Rows]:
        texts = [int(items.captions[0][0])] * len(numbers)  # a batch holds pairs; parts are used
        batch = pieces.micro([int(items.numbers[n]) for n in numbers], texts).to(group.device)
        out = dual.embed_parts(batch.parts)
        return out.graph.float().cpu().numpy(), out.projected.float().cpu().numpy()

    def texts(numbers: Sequence[int]) -> tuple[Rows, Rows]:
        chosen = [int(captions[n]) for n in numbers]
        given = (*pieces.texts(chosen), pieces.numbers[chosen])
        out = dual.embed_texts(*(rows.to(group.device) for rows in given))
        return out.pooled.float().cpu().numpy(), out.projected.float().cpu().numpy()

    dual.eval()
    try:
        found = []
        for what, count, size, compute in (
            ("parts", len(items), _PARTS_AT_ONCE, parts),
            ("captions", len(captions), _CAPTIONS_AT_ONCE, texts),
        ):
            mine = {}
            for chunk in range(group.rank, math.ceil(count / size), group.world):
                if stop():
                    break
                group.watch.beat(f"validate {what}")
                mine[chunk] = compute(range(chunk * size, min(count, (chunk + 1) * size)))
            if group.any(stop(), "stop in validation"):
                return None
            pieces_of_ranks = group.gather(mine, f"validate {what}")
            whole = {chunk: rows for piece in pieces_of_ranks for chunk, rows in piece.items()}
            ordered = [whole[chunk] for chunk in sorted(whole)]
            found.append([np.concatenate(rows) for rows in zip(*ordered, strict=True)])
    finally:
        dual.train()
    (graphs, projected), (pooled, projected_texts) = found
    return Embedded(
        parts=projected, texts=projected_texts, graphs=graphs, pooled=pooled, captions=captions
    )


def judge(
    embedded: Embedded, items: Items, *, scale: float, min_std: float, min_distinct: float
) -> tuple[dict[str, float], list[Finding]]:
    """Recall and vital signs of a validation, and the findings that may stop the run.

    Args:
        scale: what multiplies the cosines in the loss.

    Returns:
        ``recall`` (mean of R@1, 5 and 10 over both directions) and the numbers behind it, by
        name; then the findings on both towers.
    """
    part_kinds, text_kinds = items.twins, embedded.captions
    numbers: dict[str, float] = {}
    findings: list[Finding] = []
    for tower, rows, before, kinds in (
        ("cad", embedded.parts, embedded.graphs, part_kinds),
        ("text", embedded.texts, embedded.pooled, text_kinds),
    ):
        signs, raw = vitals(rows, kinds), vitals(before, kinds)
        numbers |= {
            f"{tower}_std": signs.column_std,
            f"{tower}_distinct": signs.distinct,
            f"{tower}_mean_cosine": signs.mean_cosine,
            f"{tower}_effective_rank": signs.rank_centred,
            f"{tower}_uniformity": signs.uniformity,
            f"{tower}_mean_cosine_before": raw.mean_cosine,
            f"{tower}_effective_rank_before": raw.rank_centred,
        }
        findings += tower_findings(
            tower,
            std=signs.column_std,
            distinct=signs.distinct,
            min_std=min_std,
            min_distinct=min_distinct,
        )
    if any(finding.verdict == "failed" for finding in findings):
        return {"recall": math.nan, **numbers}, findings  # ranks of a dead tower mean nothing
    groups: dict[int, list[int]] = {int(number): [] for number in embedded.captions}
    for twin, mine in zip(items.twins.tolist(), items.captions, strict=True):
        for caption in mine.tolist():
            groups[caption].append(twin)
    relevance = Relevance.from_group_sets(
        [groups[int(number)] for number in embedded.captions], part_kinds
    )
    texts, parts = unit_rows("text", embedded.texts), unit_rows("cad", embedded.parts)
    numbers["held_out_loss"] = held_out_loss(texts, parts, relevance, scale)
    directions = zip(
        ("text_to_cad", "cad_to_text"), count_both(texts, parts, relevance), strict=True
    )
    for direction, counts in directions:
        table = summarise(counts, KS)
        for k in KS:
            numbers[f"{direction}_R_at_{k}"] = float(table[f"R_at_{k}"])
        numbers[f"{direction}_median_rank"] = float(table["median_rank"])
    recalls = [value for name, value in numbers.items() if "_R_at_" in name]
    column = {twin: number for number, twin in reversed(list(enumerate(items.twins.tolist())))}
    of_caption = np.array([column[groups[int(n)][0]] for n in embedded.captions], dtype=np.int64)
    pair = pair_vitals(texts, parts, of_caption)
    numbers |= {"alignment": pair.alignment, "modality_gap": pair.modality_gap}
    return {"recall": sum(recalls) / len(recalls), **numbers}, findings
