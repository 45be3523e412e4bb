"""The number the report gives for the order of faces: zero without RoPE, told with it."""

import copy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from brepfind.graphs.dataset import PartReader
from brepfind.graphs.store import GraphStore
from brepfind.models.dual import DualEncoder
from brepfind.retrieval.face_order import order_moves


@pytest.fixture
def reader(world: SimpleNamespace, tmp_path: Path) -> PartReader:
    return PartReader(GraphStore(world.root / "graphs"), tmp_path)


def test_a_model_that_sees_the_order_moves_and_one_that_does_not_stays(
    dual: DualEncoder, reader: PartReader
) -> None:
    model = copy.deepcopy(dual).eval()
    torch.manual_seed(0)
    for parameter in model.encoder.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    ids = reader.store.ids
    seen = order_moves(model, reader, ids, orders=3)
    assert (seen.parts, seen.orders) == (len(ids), 3)
    assert seen.worst < 0.9999 and seen.worst <= seen.median
    assert seen == order_moves(model, reader, ids, orders=3)
    assert seen != order_moves(model, reader, ids, orders=3, seed=1)
    for layer in model.encoder.layers:
        layer.freqs_cos.fill_(1.0)
        layer.freqs_sin.zero_()
    blind = order_moves(model, reader, ids, orders=3)
    assert blind.worst == pytest.approx(1.0, abs=1e-6)
    assert blind.finds_itself == 1.0
