import argparse
import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from brepfind.errors import CheckpointError, InputError
from brepfind.graphs.backend import dgl
from brepfind.graphs.batch import MAX_PATH, PartBatch
from brepfind.graphs.descriptors import SHAPE_FIELDS
from brepfind.graphs.lengths import LENGTH_PLACES
from brepfind.graphs.patterns import PATTERN_PLACES
from brepfind.models.encoder import BrepEncoder, EncoderConfig, architecture
from brepfind.models.norm import BatchNorm, freeze_batch_norm

FIXTURES = Path(__file__).parents[1] / "fixtures" / "models"
TINY = EncoderConfig(dim=32, layers=2, heads=4, kv_heads=2, feed_forward=96, dropout=0.0)
Join = Callable[[list[PartBatch]], PartBatch]
Part = Callable[..., PartBatch]


def _authors_state(path: Path) -> dict[str, Tensor]:
    """The encoder's tensors out of the authors' layout, each complex table as two real ones."""
    with torch.serialization.safe_globals([argparse.Namespace]):
        state = torch.load(path, weights_only=True)["state_dict"]
    tensors = {}
    for key, value in state.items():
        name = key.removeprefix("brep_encoder.")
        if name.endswith("freqs_cis"):
            tensors[name.replace("_cis", "_cos")] = value.real.contiguous()
            tensors[name.replace("_cis", "_sin")] = value.imag.contiguous()
        elif name != key:
            tensors[name] = value
    return tensors


def _authors_graph(path: Path) -> PartBatch:
    (graph,), saved = dgl.load_graphs(str(path))
    hops = saved["shortest_distance_matrix"].flatten()
    src, dst = graph.edges()
    return PartBatch(
        face_counts=torch.tensor([graph.num_nodes()]),
        edge_counts=torch.tensor([graph.num_edges()]),
        face_grid=graph.ndata["x"].permute(0, 3, 1, 2).contiguous(),
        face_type=graph.ndata["t"],
        face_area=graph.ndata["a"],
        face_rational=graph.ndata["r"].long(),
        face_centroid=graph.ndata["c"],
        edge_src=src.long(),
        edge_dst=dst.long(),
        edge_grid=graph.edata["x"].permute(0, 2, 1).contiguous(),
        edge_type=graph.edata["t"],
        edge_length=graph.edata["l"],
        edge_convexity=graph.edata["c"],
        hops=torch.where(hops.isinf(), -1.0, hops).long(),
        angle=saved["angle_matrix"].flatten(),
        distance=saved["centroid_distance_matrix"].flatten(),
        path=saved["edge_path_matrix"].flatten(0, 1).long()[:, :MAX_PATH],
        size=torch.zeros(1, 5),
        shape=torch.zeros(1, len(SHAPE_FIELDS)),
        lengths=torch.zeros(1, LENGTH_PLACES),
        patterns=torch.zeros(1, PATTERN_PLACES),
    )


def _parity_encoder() -> BrepEncoder:
    state = _authors_state(FIXTURES / "brepformer_small.ckpt")
    config = EncoderConfig.from_shapes({name: tuple(t.shape) for name, t in state.items()})
    encoder = BrepEncoder(config)
    encoder.load_state_dict(state)
    return encoder.eval()


def test_numbers_are_the_authors(join: Join) -> None:
    encoder = _parity_encoder()
    graphs = [_authors_graph(FIXTURES / f"small_graph_{i}.bin") for i in range(4)]
    expected = load_file(FIXTURES / "expected_small.safetensors")
    with torch.no_grad():
        together = encoder(join(graphs))
        alone = [encoder(graph) for graph in graphs]
    faces = torch.cat([expected[f"face_tokens_{i}"] for i in range(4)])
    torch.testing.assert_close(together.graph, expected["graph_embedding"], atol=2e-5, rtol=0)
    torch.testing.assert_close(together.faces, faces, atol=2e-5, rtol=0)
    torch.testing.assert_close(
        torch.cat([one.graph for one in alone]),
        expected["graph_embedding_alone"],
        atol=2e-5,
        rtol=0,
    )
    torch.testing.assert_close(torch.cat([one.faces for one in alone]), faces, atol=2e-5, rtol=0)


def test_size_is_read_from_the_shapes() -> None:
    state = _authors_state(FIXTURES / "brepformer_small.ckpt")
    shapes = {f"brep_encoder.{name}": tuple(tensor.shape) for name, tensor in state.items()}
    config = EncoderConfig.from_shapes(shapes, dropout=0.1, max_faces=99)
    assert (config.layers, config.dim, config.heads, config.kv_heads) == (2, 64, 8, 8)
    assert (config.hidden, config.dropout, config.max_faces) == (256, 0.1, 99)


def test_shapes_that_are_not_an_encoder_are_refused_by_key() -> None:
    with pytest.raises(CheckpointError, match=r"emb_layer_norm.weight is missing"):
        EncoderConfig.from_shapes({"layers.0.w": (3,)})
    shapes = {name: shape for name, (_, shape) in architecture(TINY).items()}
    with pytest.raises(CheckpointError, match=r"wk.weight has shape \(3,\), not 2 axes"):
        EncoderConfig.from_shapes({**shapes, "layers.0.self_attn.wk.weight": (3,)})
    with pytest.raises(CheckpointError, match="do not belong together"):
        EncoderConfig.from_shapes({**shapes, "emb_layer_norm.weight": (33,)})


def test_default_size_is_the_papers() -> None:
    encoder = BrepEncoder(EncoderConfig())
    assert sum(p.numel() for p in encoder.parameters()) == 5_095_777
    # The authors have 272 tensors; each of the 8 complex tables is two here.
    assert len(encoder.state_dict()) == 272 + 8


def test_architecture_is_the_state_dict() -> None:
    table = architecture(TINY)
    state = BrepEncoder(TINY).state_dict()
    assert list(table) == list(state)
    assert all(table[k] == (t.dtype, tuple(t.shape)) for k, t in state.items())
    assert not any(dtype.is_complex for dtype, _ in table.values())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dim": 36}, "multiple of 8 and of heads"),
        ({"heads": 16, "kv_heads": 16, "dim": 16}, "RoPE needs an even number"),
        ({"kv_heads": 3}, "multiple of kv_heads"),
        ({"max_faces": 4096}, "less than or equal to 4095"),
    ],
)
def test_sizes_that_do_not_fit(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EncoderConfig(**{**TINY.model_dump(), **wrong})


def test_same_seed_same_weights_and_no_trace_in_the_global_state() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, two, three = BrepEncoder(TINY, 1), BrepEncoder(TINY, 1), BrepEncoder(TINY, 2)
    assert torch.equal(torch.rand(3), expected)
    same = [torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True)]
    assert all(same)
    assert not torch.equal(
        one.layers[0].feed_forward.w1.weight, three.layers[0].feed_forward.w1.weight
    )


def test_a_part_is_the_same_alone_and_in_company(part: Part, join: Join) -> None:
    encoder = BrepEncoder(TINY).eval()
    parts = [part(faces, seed=faces) for faces in (5, 31, 1, 12, 12, 2, 60)]
    with torch.no_grad():
        together = encoder(join(parts))
        alone = [encoder(one) for one in parts]
    torch.testing.assert_close(together.graph, torch.cat([one.graph for one in alone]))
    torch.testing.assert_close(together.faces, torch.cat([one.faces for one in alone]))


def test_cached_features_give_the_same(part: Part, join: Join) -> None:
    encoder = BrepEncoder(TINY).eval()
    batch = join([part(7, seed=1), part(4, seed=2)])
    cached = replace(
        batch,
        face_grid=None,
        edge_grid=None,
        face_surface=encoder.encode_surfaces(batch.face_grid).detach(),
        edge_curve=encoder.encode_curves(batch.edge_grid).detach(),
    )
    torch.testing.assert_close(encoder(cached).graph, encoder(batch).graph)


def _learned(encoder: BrepEncoder, batch: PartBatch) -> list[str]:
    encoder.zero_grad(set_to_none=True)
    out = encoder(batch)
    (out.graph.square().sum() + out.faces.sum()).backward()
    gradients = {name: p.grad for name, p in encoder.named_parameters()}
    assert all(g is None or bool(g.isfinite().all()) for g in gradients.values())
    return [name for name, gradient in gradients.items() if gradient is None]


@pytest.mark.parametrize("training", [True, False])
def test_every_parameter_joins_every_graph(part: Part, join: Join, training: bool) -> None:
    encoder = BrepEncoder(TINY).train(training)
    edgeless = part(1, seed=0)
    assert edgeless.edge_src.numel() == 0 and edgeless.path.shape[1] == 0
    assert _learned(encoder, edgeless) == []
    assert _learned(encoder, join([edgeless, part(1, seed=3)])) == []
    batch = join([part(6, seed=1), edgeless])
    assert _learned(encoder, batch) == []
    cached = replace(
        batch,
        face_grid=None,
        edge_grid=None,
        face_surface=torch.zeros(7, 16),
        edge_curve=torch.zeros(len(batch.edge_src), 4),
    )
    assert _learned(encoder, cached) == []
    encoder.graph_attn_bias.curv_encoder.requires_grad_(False)
    assert all("curv_encoder" in name for name in _learned(encoder, batch))


def test_one_face_in_training_mode_leaves_the_statistics_alone(part: Part) -> None:
    encoder = BrepEncoder(TINY).train()
    before = {name: b.clone() for name, b in encoder.named_buffers() if "type_encoder" in name}
    assert encoder(part(1, seed=0)).graph.isfinite().all()
    assert all(
        torch.equal(b, before[name]) for name, b in encoder.named_buffers() if name in before
    )


def test_faces_out_of_reach_and_far_away(part: Part, join: Join) -> None:
    """A chain of 80 faces has hops up to 79; past 31 a pair is blocked, like one without a path."""
    encoder = BrepEncoder(TINY).eval()
    chain = part(80, seed=0, extra=0, chain=True)
    assert chain.hops.max() == 79 and chain.path.shape[1] == MAX_PATH
    cut = replace(chain, hops=torch.where(chain.hops >= 32, -1, chain.hops))
    with torch.no_grad():
        far, unreachable = encoder(chain), encoder(cut)
    assert far.faces.isfinite().all()
    torch.testing.assert_close(far.faces, unreachable.faces)
    islands = replace(chain, hops=torch.where(chain.hops > 0, -1, chain.hops))
    assert encoder(join([islands, part(3, seed=1)])).faces.isfinite().all()
    assert _learned(encoder, islands) == []


def test_max_faces_is_an_error_that_names_the_part(part: Part, join: Join) -> None:
    encoder = BrepEncoder(TINY.model_copy(update={"max_faces": 9})).eval()
    with pytest.raises(
        InputError, match=r"part 1 of the batch has 10 faces, more than max_faces = 9"
    ):
        encoder(join([part(9, seed=0), part(10, seed=0)]))


@pytest.mark.slow
def test_the_most_faces_there_can_be(part: Part) -> None:
    """4,095 faces and the graph token fill the table of positions to its last row."""
    config = EncoderConfig(
        dim=16, layers=1, heads=1, kv_heads=1, feed_forward=16, dropout=0, max_faces=4095
    )
    one = part(1, seed=0, grid=2)
    many = {
        name: getattr(one, name).expand(4095, *getattr(one, name).shape[1:])
        for name in ("face_grid", "face_type", "face_area", "face_rational", "face_centroid")
    }
    pairs = 4095**2
    batch = replace(
        one,
        **many,
        face_counts=torch.tensor([4095]),
        hops=torch.where(torch.arange(pairs) % 4096 == 0, 0, -1),
        angle=torch.zeros(1).expand(pairs),
        distance=torch.zeros(1).expand(pairs),
        path=torch.empty(pairs, 0, dtype=torch.int64),
    )
    with torch.no_grad():
        out = BrepEncoder(config).eval()(batch)
    assert out.faces.shape == (4095, 16) and out.faces.isfinite().all()
    assert not torch.allclose(out.faces[0], out.faces[-1])


def test_face_order_matters(part: Part) -> None:
    """RoPE turns by the place in the file; the graph alone would not tell the order."""
    encoder = BrepEncoder(TINY).eval()
    for layer in encoder.layers:
        torch.nn.init.normal_(layer.self_attn.wq.weight)
    batch = part(6, seed=1)
    far = replace(
        batch, face_centroid=batch.face_centroid.flip(0), face_grid=batch.face_grid.flip(0)
    )
    with torch.no_grad():
        assert not torch.allclose(encoder(batch).graph, encoder(far).graph, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_cast_keeps_the_rope_tables(dtype: torch.dtype) -> None:
    encoder = BrepEncoder(TINY)
    before = encoder.layers[1].freqs_sin.clone()
    encoder.to(dtype)
    for layer in encoder.layers:
        assert layer.freqs_cos.dtype == layer.freqs_sin.dtype == torch.float32
    assert torch.equal(encoder.layers[1].freqs_sin, before)
    assert encoder.layers[0].self_attn.wq.weight.dtype == dtype
    assert torch.equal(encoder.float().layers[1].freqs_sin, before)


def test_bfloat16_autocast_stays_near(part: Part, join: Join) -> None:
    encoder = BrepEncoder(TINY).eval()
    batch = join([part(20, seed=1), part(9, seed=2)])
    with torch.no_grad():
        exact = encoder(batch).graph
        with torch.autocast("cpu", torch.bfloat16):
            near = encoder(batch).graph
    assert near.isfinite().all()
    assert (near - exact).abs().max() < 0.05 * exact.abs().max()
    with torch.autocast("cpu", torch.bfloat16):
        assert _learned(encoder, batch) == []


def test_checkpointed_layers_give_the_same_gradients(part: Part, join: Join) -> None:
    encoder = BrepEncoder(TINY).train()
    freeze_batch_norm(encoder)
    batch = join([part(8, seed=1), part(3, seed=2)])
    encoder(batch).graph.square().sum().backward()
    plain = {name: p.grad.clone() for name, p in encoder.named_parameters()}
    encoder.zero_grad()
    encoder.checkpoint_layers = True
    encoder(batch).graph.square().sum().backward()
    for name, p in encoder.named_parameters():
        torch.testing.assert_close(p.grad, plain[name])


def test_gradients_are_those_of_finite_differences(part: Part, join: Join) -> None:
    """The path sum and the padding have gradients of their own; float64 tells if they are right."""
    config = EncoderConfig(dim=16, layers=1, heads=2, kv_heads=1, feed_forward=16, dropout=0)
    encoder = BrepEncoder(config).double().eval()
    for p in encoder.parameters():
        p.data += 0.3 * torch.randn_like(p)
    batch = join([part(5, seed=1), part(7, seed=2), part(1, seed=3)])
    batch = replace(
        batch,
        **{
            f.name: value.double()
            for f in fields(batch)
            if (value := getattr(batch, f.name)) is not None and value.is_floating_point()
        },
    )

    def loss() -> Tensor:
        out = encoder(batch)
        return out.graph.sin().sum() + out.faces.cos().sum()

    loss().backward()
    bias = encoder.graph_attn_bias
    for p in (
        bias.edge_dis_encoder.weight,
        bias.node_cat.proj.linear.weight,
        bias.angle_encoder.linear1.weight,
        bias.centroid_distance_encoder.bn1.weight,
        bias.angle_encoder.linear2.weight,
        bias.angle_encoder.bn2.bias,
        bias.shortest_distance_encoder.weight,
        bias.graph_token_virtual_distance.weight,
        bias.edge_type_encoder.linear2.weight,
        encoder.layers[0].self_attn.wq.weight,
        encoder.layers[0].self_attn.wk.weight,
        encoder.layers[0].self_attn.wv.bias,
        encoder.graph_node_feature.surf_encoder.conv2[0].weight,
        encoder.graph_node_feature.surf_encoder.conv1[1].weight,
        bias.curv_encoder.conv3[0].weight,
        encoder.graph_node_feature.face_area_encoder.linear1.weight,
    ):
        place = int(p.grad.abs().flatten().argmax())
        with torch.no_grad():
            flat = p.view(-1)
            kept = flat[place].item()
            flat[place] = kept + 1e-6
            above = loss().item()
            flat[place] = kept - 1e-6
            below = loss().item()
            flat[place] = kept
        measured = (above - below) / 2e-6
        assert math.isclose(p.grad.flatten()[place].item(), measured, rel_tol=1e-4, abs_tol=1e-6)


def test_frozen_statistics_survive_train(part: Part, join: Join) -> None:
    encoder = BrepEncoder(TINY)
    count = freeze_batch_norm(encoder)
    assert count == sum(isinstance(module, BatchNorm) for module in encoder.modules())
    encoder.train()
    before = {name: b.clone() for name, b in encoder.named_buffers()}
    encoder(join([part(6, seed=1), part(9, seed=2)]))
    assert all(torch.equal(b, before[name]) for name, b in encoder.named_buffers())
    freeze_batch_norm(encoder, frozen=False)
    encoder(join([part(6, seed=1), part(9, seed=2)]))
    assert not torch.equal(
        encoder.graph_attn_bias.angle_encoder.bn1.running_mean,
        before["graph_attn_bias.angle_encoder.bn1.running_mean"],
    )
