import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from brepfind.errors import InputError
from brepfind.graphs.batch import PartBatch
from brepfind.graphs.descriptors import SHAPE_FIELDS
from brepfind.graphs.lengths import LENGTH_PLACES, length_row
from brepfind.graphs.patterns import PATTERN_PLACES, numbers_row
from brepfind.models.dual import (
    MAX_LOGIT_SCALE,
    DualConfig,
    DualEncoder,
    calibrate_batch_norm,
)
from brepfind.models.encoder import BrepEncoder, EncoderConfig
from brepfind.models.norm import BatchNorm
from brepfind.models.numbers import NUMBER_PLACES, sentence_numbers
from brepfind.models.text import TextTower

TINY = EncoderConfig(dim=32, layers=2, heads=4, kv_heads=2, feed_forward=96, dropout=0.1)
CAPTIONS = ["a bolt", "a bracket with four holes"]
Join = Callable[[list[PartBatch]], PartBatch]
Part = Callable[..., PartBatch]


def _dual(folder: str, facts: bool = True, seed: int = 0, width: int = 16) -> DualEncoder:
    config = DualConfig(
        embed_dim=width, size_features=facts, shape_features=facts, number_features=facts
    )
    return DualEncoder(BrepEncoder(TINY, seed), TextTower.load(folder, "last", 1), config, seed)


@pytest.fixture
def dual(deberta_folder: object) -> DualEncoder:
    return _dual(str(deberta_folder))


def test_both_sides_reach_one_space_and_every_parameter_learns(
    dual: DualEncoder, part: Part, join: Join
) -> None:
    dual.train()
    batch = join([part(6, seed=1), part(1, seed=2)])
    tokens = dual.text.tokenize(CAPTIONS)
    out = dual(batch, dual.text.lower(tokens), tokens.mask, sentence_numbers(CAPTIONS))
    assert out.parts.graph.shape == (2, 32) and out.texts.pooled.shape == (2, 24)
    assert out.parts.projected.shape == out.texts.projected.shape == (2, 16)
    assert out.scale.item() == pytest.approx(1 / 0.07)
    (out.scale * out.parts.projected @ out.texts.projected.T).square().sum().backward()
    assert [n for n, p in dual.named_parameters() if p.requires_grad and p.grad is None] == []


def test_output_is_named_tuples_so_that_ddp_finds_its_tensors(
    dual: DualEncoder, part: Part
) -> None:
    tokens = dual.text.tokenize(CAPTIONS[:1])
    lengths = sentence_numbers(CAPTIONS[:1])
    out = dual(part(3, seed=1), dual.text.lower(tokens), tokens.mask, lengths)
    leaves = torch.utils._pytree.tree_leaves(out)
    assert len(leaves) == 5 and all(isinstance(leaf, torch.Tensor) for leaf in leaves)


def test_same_seed_same_projections(deberta_folder: object) -> None:
    one, two, other = (_dual(str(deberta_folder), seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one.part_projection.out.weight, two.part_projection.out.weight)
    assert not torch.equal(one.part_projection.out.weight, other.part_projection.out.weight)


def test_size_tells_apart_what_the_box_makes_equal(
    deberta_folder: object, part: Part, join: Join
) -> None:
    batch = join([part(6, seed=1), part(6, seed=1)])
    batch = replace(batch, size=torch.tensor([[1.0, 2, 3, 4, 5], [2.0, 3, 4, 6, 8]]))
    with torch.no_grad():
        small, large = _dual(str(deberta_folder)).eval().embed_parts(batch).projected
        assert not torch.allclose(small, large, atol=1e-3)
        same, again = _dual(str(deberta_folder), False).eval().embed_parts(batch).projected
        assert torch.allclose(same, again)


def test_lengths_alone_tell_parts_apart_before_any_training(
    deberta_folder: object, part: Part, join: Join
) -> None:
    dual = _dual(str(deberta_folder), width=LENGTH_PLACES).eval()
    rows = torch.from_numpy(np.stack([length_row([8.0, 40.0]), length_row([10.0, 60.0])]))
    batch = replace(join([part(6, seed=1), part(6, seed=1)]), lengths=rows)
    added = _added_by_numbers(dual, batch, ["M8 x 40", "M10, sixty long"])
    assert added[0] > 0.5 and added[1] < -0.5


def test_patterns_alone_tell_parts_apart_before_any_training(
    deberta_folder: object, part: Part, join: Join
) -> None:
    config = DualConfig(
        embed_dim=PATTERN_PLACES,
        size_features=False,
        shape_features=False,
        number_features=False,
        pattern_features=True,
    )
    text = TextTower.load(str(deberta_folder), "last", 1)
    dual = DualEncoder(BrepEncoder(TINY), text, config).eval()
    rows = np.stack([numbers_row([2.54, 22.86], [2, 10]), numbers_row([2.54, 7.62], [4])])
    batch = replace(join([part(6, seed=1)] * 2), patterns=torch.from_numpy(rows))
    added = _added_by_numbers(dual, batch, ["2x10, 2.54 mm pitch", "four pins, 2.54 mm pitch"])
    assert added[0] > 0.5 and added[1] < -0.5


def _added_by_numbers(dual: DualEncoder, batch: PartBatch, said: list[str]) -> torch.Tensor:
    """By how much the numbers of each sentence put the first part before the second."""
    tokens = dual.text.tokenize(said)
    with torch.no_grad():
        parts = dual.embed_parts(batch).projected
        hidden = dual.text.lower(tokens)
        texts = dual.embed_texts(hidden, tokens.mask, sentence_numbers(said)).projected
        silent = dual.embed_texts(hidden, tokens.mask, torch.zeros(2, NUMBER_PLACES)).projected
    return (texts - silent) @ (parts[0] - parts[1])


def test_fact_statistics(deberta_folder: object, part: Part) -> None:
    config = DualConfig(
        embed_dim=16, size_features=True, shape_features=False, number_features=False
    )
    dual = DualEncoder(BrepEncoder(TINY), TextTower.load(str(deberta_folder), "last", 1), config)
    size = torch.tensor([[1.0, 0, 0, 0, 7], [3.0, 0, 0, 0, 7]])
    dual.set_fact_statistics(size, torch.zeros(2, len(SHAPE_FIELDS)))
    assert dual.facts_mean.tolist() == [2, 0, 0, 0, 7]
    assert dual.facts_std.tolist() == [1, 1, 1, 1, 1]
    far = replace(part(3, seed=1), size=torch.full((1, 5), 1e30))
    assert dual.eval().embed_parts(far).projected.isfinite().all()


@pytest.mark.parametrize(
    ("before", "after"), [(9.0, MAX_LOGIT_SCALE), (-1.0, 0.0), (2.0, 2.0), (math.nan, math.nan)]
)
def test_logit_scale_is_clamped_and_nan_is_not_hidden(
    dual: DualEncoder, before: float, after: float
) -> None:
    dual.logit_scale.data.fill_(before)
    dual.clamp_logit_scale()
    assert dual.logit_scale.item() == pytest.approx(after, nan_ok=True)


def test_frozen_parts_do_not_learn_and_keep_their_statistics(
    dual: DualEncoder, part: Part, join: Join
) -> None:
    dual.freeze(["surface_cnn", "curve_cnn"])
    dual.train()
    cnn = dual.encoder.graph_node_feature.surf_encoder
    before = {name: b.clone() for name, b in cnn.named_buffers()}
    batch = join([part(6, seed=1), part(4, seed=2)])
    dual.embed_parts(batch).projected.sum().backward()
    assert all(p.grad is None for p in cnn.parameters())
    assert all(torch.equal(b, before[name]) for name, b in cnn.named_buffers())
    assert dual.encoder.graph_node_feature.face_area_encoder.linear1.weight.grad is not None


def test_freezing_what_does_not_exist(dual: DualEncoder) -> None:
    with pytest.raises(InputError, match="'cnn' is not one of surface_cnn, curve_cnn"):
        dual.freeze(["cnn"])


def test_calibrated_statistics_are_those_of_the_batches(part: Part, join: Join) -> None:
    encoder = BrepEncoder(TINY).train()
    batches = [join([part(6, seed=s), part(9, seed=s + 1)]) for s in (1, 3)]
    assert calibrate_batch_norm(encoder, batches) == 2
    assert encoder.training
    norm = encoder.graph_attn_bias.angle_encoder.bn1
    linear = encoder.graph_attn_bias.angle_encoder.linear1.weight
    means = [((batch.angle[:, None] + 1) @ linear.T).mean(0) for batch in batches]
    torch.testing.assert_close(norm.running_mean, sum(means) / 2, rtol=1e-4, atol=1e-4)
    assert norm.momentum == 0.1
    norms = [m for m in encoder.modules() if isinstance(m, BatchNorm)]
    assert all(n.num_batches_tracked == 2 for n in norms)


def test_calibrating_on_nothing() -> None:
    with pytest.raises(InputError, match="no batch"):
        calibrate_batch_norm(BrepEncoder(TINY), [])
