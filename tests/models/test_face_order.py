from collections.abc import Callable
from dataclasses import fields

import torch

from brepfind.graphs.batch import PartBatch
from brepfind.models.encoder import BrepEncoder, EncoderConfig
from brepfind.models.face_order import random_order, reorder_faces

TINY = EncoderConfig(dim=32, layers=2, heads=4, kv_heads=2, feed_forward=96, dropout=0.0)
Join = Callable[[list[PartBatch]], PartBatch]
Part = Callable[..., PartBatch]


def test_orders_are_permutations_within_each_part_and_seeded() -> None:
    counts = torch.tensor([4, 1, 30])
    order = random_order(counts, torch.Generator().manual_seed(1))
    assert [sorted(part.tolist()) for part in order.split([4, 1, 30])] == [
        list(range(n)) for n in (4, 1, 30)
    ]
    assert torch.equal(order, random_order(counts, torch.Generator().manual_seed(1)))
    assert not torch.equal(order, random_order(counts, torch.Generator().manual_seed(2)))


def test_reordering_worked_by_hand(part: Part, join: Join) -> None:
    """Two faces swapped in the second part: its pairs (0, 0) and (1, 1), (0, 1) and (1, 0) swap."""
    batch = join([part(1, seed=1), part(2, seed=2, extra=0)])
    turned = reorder_faces(batch, torch.tensor([0, 1, 0]))
    assert turned.face_area.tolist() == batch.face_area[[0, 2, 1]].tolist()
    assert (turned.edge_src.tolist(), turned.edge_dst.tolist()) == ([0, 1], [1, 0])
    assert (batch.edge_src.tolist(), batch.edge_dst.tolist()) == ([1, 0], [0, 1])
    assert torch.equal(turned.angle, batch.angle[[0, 4, 3, 2, 1]])
    assert torch.equal(turned.path, batch.path[[0, 4, 3, 2, 1]])


def test_there_and_back_is_the_same_batch(part: Part, join: Join) -> None:
    batch = join([part(7, seed=1), part(1, seed=2), part(12, seed=3)])
    order = random_order(batch.face_counts)
    back = torch.cat([torch.argsort(part_order) for part_order in order.split([7, 1, 12])])
    again = reorder_faces(reorder_faces(batch, order), back)
    for item in fields(batch):
        value = getattr(batch, item.name)
        assert value is None or torch.equal(getattr(again, item.name), value), item.name


def test_without_rope_the_order_changes_nothing(part: Part, join: Join) -> None:
    """So nothing but RoPE sees the order, and a reordered part is the same part."""
    encoder = BrepEncoder(TINY).eval()
    torch.manual_seed(0)
    for p in encoder.parameters():
        p.data += 0.15 * torch.randn_like(p)
    batch = join([part(9, seed=1), part(14, seed=2), part(1, seed=3)])
    order = random_order(batch.face_counts)
    shift = torch.repeat_interleave(torch.tensor([0, 9, 23]), batch.face_counts)
    with torch.no_grad():
        seen = encoder(batch).graph - encoder(reorder_faces(batch, order)).graph
        assert seen[:2].abs().max() > 1e-3
        for layer in encoder.layers:
            layer.freqs_cos.fill_(1.0)
            layer.freqs_sin.zero_()
        before, after = encoder(batch), encoder(reorder_faces(batch, order))
    torch.testing.assert_close(after.graph, before.graph, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(after.faces, before.faces[order + shift], atol=2e-5, rtol=1e-5)
