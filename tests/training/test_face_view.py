"""Each epoch's view of a part: other places for its faces, the same part."""

from pathlib import Path

import numpy as np
import pytest
import torch

from brepfind.graphs.batch import PartBatch
from brepfind.graphs.collate import collate
from brepfind.graphs.pairwise import pairwise
from brepfind.models.encoder import BrepEncoder, EncoderConfig
from brepfind.models.face_order import reorder_faces
from brepfind.training.face_view import shuffle_faces
from tests.training.runs import codes, train, weights
from tests.training.tiny import part


def batch(*numbers: int) -> PartBatch:
    """Parts of three to six faces, and one of one face and no edge."""
    parts = [part(number % 4, 0, number) for number in numbers]
    return collate(parts, [pairwise(one) for one in parts])


def test_a_view_follows_from_seed_epoch_and_part_alone() -> None:
    """So a resumed run, or one with another number of ranks, meets the same views."""
    both = shuffle_faces(batch(0, 1), [0, 1], seed=1, epoch=2)
    alone = shuffle_faces(batch(1), [1], seed=1, epoch=2)
    assert torch.equal(both.face_area[3:], alone.face_area)
    assert torch.equal(both.path[9:, : alone.path.shape[1]], alone.path)
    seen = {
        tuple(shuffle_faces(batch(2), [2], seed=seed, epoch=epoch).face_area.tolist())
        for seed, epoch in ((1, 0), (1, 1), (1, 2), (2, 0), (2, 1))
    }
    assert len(seen) > 3
    assert len({tuple(sorted(areas)) for areas in seen}) == 1


def test_it_is_the_same_part_faces_edges_matrices_and_kept_features_alike() -> None:
    """Putting the faces back in the file's order gives every field as it was."""
    before = batch(1, 3, 2)
    counts = before.face_counts.tolist()
    numbers = [5, 6, 7]
    after = shuffle_faces(before, numbers, seed=4, epoch=1)
    orders = [
        np.random.default_rng([4, 1, 2, number]).permutation(count)
        for number, count in zip(numbers, counts, strict=True)
    ]
    assert not all(np.array_equal(order, np.sort(order)) for order in orders)
    back = torch.from_numpy(np.concatenate([np.argsort(order) for order in orders]))
    again = reorder_faces(after, back)
    for name in ("face_grid", "face_centroid", "edge_src", "edge_grid", "hops", "angle", "path"):
        assert torch.equal(getattr(again, name), getattr(before, name)), name
    encoder = BrepEncoder(EncoderConfig(dim=16, layers=1, heads=2, kv_heads=1, dropout=0)).eval()
    for layer in encoder.layers:  # without RoPE nothing may see the order
        layer.freqs_cos.fill_(1.0)
        layer.freqs_sin.zero_()
    with torch.no_grad():
        torch.testing.assert_close(encoder(after).graph, encoder(before).graph)


@pytest.mark.parametrize("world", [1, 2])
def test_a_run_on_shuffled_faces_resumes_with_the_same_bits(
    inputs: Path, tmp_path: Path, world: int
) -> None:
    """Kept features of frozen CNNs are shuffled along; an unbroken run is what the ended one is."""
    settings = {"face_order": "random", "save_every": 2}
    assert codes(train(inputs, tmp_path / "whole", world, **settings)) == [0] * world
    assert 0 not in codes(train(inputs, tmp_path / "ended", world, "sigkill@3", **settings))
    assert codes(train(inputs, tmp_path / "ended", world, **settings)) == [0] * world
    whole, ended = weights(tmp_path / "whole"), weights(tmp_path / "ended")
    assert all(torch.equal(whole[name], ended[name]) for name in whole)
    assert codes(train(inputs, tmp_path / "file", world, save_every=2)) == [0] * world
    assert any(not torch.equal(whole[n], value) for n, value in weights(tmp_path / "file").items())
