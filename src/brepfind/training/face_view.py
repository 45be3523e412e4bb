"""Each epoch's view of a part: its faces in another order.

RoPE runs over the order of the faces, which the file's writer chose; on shuffled orders the encoder
learns that it means nothing. The order of a part follows from the seed, the epoch and the part
alone, so that neither the number of ranks nor a resume changes it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from brepfind.graphs.batch import PartBatch
from brepfind.models.face_order import reorder_faces

_FACES = 2  # a stream of random numbers beside those of ``batches``


def shuffle_faces(parts: PartBatch, numbers: Sequence[int], *, seed: int, epoch: int) -> PartBatch:
    """The same parts, the faces of each in a random order.

    Args:
        parts: B parts, with grids or with kept features of their faces and edges.
        numbers: B numbers, each part's in the run.
        seed: of the run.
        epoch: the pass over the training parts.
    """
    counts = parts.face_counts.tolist()
    orders = [
        np.random.default_rng([seed, epoch, _FACES, number]).permutation(count)
        for number, count in zip(numbers, counts, strict=True)
    ]
    return reorder_faces(parts, torch.from_numpy(np.concatenate(orders)))
