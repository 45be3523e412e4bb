import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from brepfind.cad.arrays import PartFacts
from brepfind.graphs.backend import dgl
from brepfind.graphs.bins import read_bin
from brepfind.graphs.collate import collate, size_features
from brepfind.graphs.dataset import PartReader
from brepfind.graphs.dgl_graph import to_dgl
from brepfind.graphs.pairwise import pairwise
from brepfind.graphs.store import GraphStoreWriter

FIXTURES = Path(__file__).parents[1] / "fixtures" / "graphs"


@pytest.fixture
def parts(make_part):
    return [
        make_part(3, ((0, 1), (1, 2)), seed=1),
        make_part(1, (), seed=2),
        make_part(2, ((0, 1), (0, 1)), seed=3),
    ]


def test_a_batch_holds_each_part_as_it_was(parts):
    batch = collate(parts, [pairwise(part) for part in parts])
    assert len(batch) == 3
    assert batch.face_counts.tolist() == [3, 1, 2] and batch.edge_counts.tolist() == [4, 0, 4]
    assert batch.edge_src.tolist() == [0, 1, 1, 2, 0, 1, 0, 1]
    assert batch.edge_dst.tolist() == [1, 0, 2, 1, 1, 0, 1, 0]
    grid = np.concatenate([part.face_grid for part in parts])
    assert np.array_equal(batch.face_grid.numpy(), grid.transpose(0, 3, 1, 2))
    grid = np.concatenate([part.edge_grid for part in parts])
    assert np.array_equal(batch.edge_grid.numpy(), grid.transpose(0, 2, 1))
    types = np.concatenate([part.face_type for part in parts])
    assert batch.face_type.shape == (6, 9)
    assert [row.nonzero().flatten().tolist() for row in batch.face_type] == [
        [code] if code < 9 else [] for code in types.tolist()
    ]
    convexity = np.concatenate([part.edge_convexity for part in parts])
    assert batch.edge_convexity.argmax(1).tolist() == convexity.tolist()
    assert batch.face_rational.tolist() == np.concatenate([p.face_rational for p in parts]).tolist()
    assert batch.hops.tolist() == [0, 1, 2, 1, 0, 1, 2, 1, 0, 0, 0, 1, 1, 0]
    assert batch.path.shape == (14, 2)
    assert batch.path[2].tolist() == [0, 2] and batch.path[11].tolist() == [0, -1]
    for name in batch.__slots__:
        value = getattr(batch, name)
        if isinstance(value, torch.Tensor):
            assert value.dtype in (torch.float32, torch.int64) and value.is_contiguous(), name


def test_a_batch_shares_no_memory_with_its_parts(parts):
    for chosen in (parts, parts[:1]):
        pairs = [pairwise(part) for part in chosen]
        batch = collate(chosen, pairs)
        for name in batch.__slots__:
            if isinstance(value := getattr(batch, name), torch.Tensor):
                value.zero_()
        assert chosen[0].face_area.all() and chosen[0].edge_length.all()
        assert chosen[0].face_grid[..., :6].all() and chosen[0].edge_grid.all()
        assert pairs[0].angle[0, 1] > 0 and pairs[0].path.max() > 0


def test_parts_without_a_single_edge(make_part):
    parts = [make_part(1, ()), make_part(2, ())]
    batch = collate(parts, [pairwise(part) for part in parts])
    assert batch.edge_grid.shape == (0, 12, 4) and batch.edge_type.shape == (0, 11)
    assert batch.path.shape == (5, 0) and batch.hops.tolist() == [0, 0, -1, -1, 0]


def test_frozen_features_replace_the_grids(parts):
    pairs = [pairwise(part) for part in parts]
    surface = [torch.full((part.n_faces, 8), float(i)) for i, part in enumerate(parts)]
    curve = [torch.full((part.n_edges, 4), float(i)) for i, part in enumerate(parts)]
    batch = collate(parts, pairs, surface, curve)
    assert batch.face_grid is None and batch.edge_grid is None
    assert batch.face_surface[:, 0].tolist() == [0, 0, 0, 1, 2, 2]
    assert batch.edge_curve[:, 0].tolist() == [0, 0, 0, 0, 2, 2, 2, 2]
    half = collate(parts, pairs, face_surface=surface)
    assert half.face_grid is None and half.edge_curve is None and half.edge_grid is not None


def test_the_authors_matrices_reach_the_batch():
    found = [read_bin(FIXTURES / f"full_graph_{i}.bin") for i in (2, 0)]
    batch = collate([bin.arrays for bin in found], [bin.pairs for bin in found])
    assert batch.face_grid.shape == (8, 7, 10, 10) and batch.path.shape == (4 + 36, 2)
    assert np.array_equal(batch.angle[4:].reshape(6, 6).numpy(), found[1].pairs.angle)


def test_sizes_are_logs_of_the_original_part():
    facts = PartFacts(
        unit="inch",
        box_min=(0.0, -1.0, 0.0),
        box_max=(math.e, 1.0, 0.0),
        volume=0.0,
        area=math.e**2,
        solids=1,
    )
    expected = [math.log(1e-6), math.log(2), 1.0, 2.0, math.log(1e-6)]
    assert size_features(facts).tolist() == pytest.approx(expected)


def test_wrong_calls(parts):
    pairs = [pairwise(part) for part in parts]
    with pytest.raises(ValueError, match="at least one part"):
        collate([], [])
    with pytest.raises(ValueError, match="pairs has 2 entries for 3 parts"):
        collate(parts, pairs[:2])


def test_a_graph_keeps_faces_without_edges_and_shared_edges(parts):
    assert to_dgl(parts[1]).num_nodes() == 1 and to_dgl(parts[1]).num_edges() == 0
    double = to_dgl(parts[2])
    assert double.is_multigraph and double.num_edges() == 4
    assert set(double.ndata) == {"x", "t", "a", "r", "c", "l"}
    assert set(double.edata) == {"x", "t", "l", "c"}
    assert dgl.batch([to_dgl(part) for part in parts]).num_nodes() == 6


def test_the_reader_gives_what_collate_takes(tmp_path, parts):
    with GraphStoreWriter(tmp_path / "graphs", 2) as writer:
        for number, part in enumerate(parts):
            writer.add(f"part {number}", f"{number}.step", "0" * 64, part)
    reader = PartReader(tmp_path / "graphs", tmp_path / "pairs", keep=1)
    ids = ["part 2", "part 0"]
    batch = collate(*reader.read(ids))
    again = collate(*pickle.loads(pickle.dumps(reader)).read(ids))
    assert batch.face_counts.tolist() == [2, 3]
    assert torch.equal(batch.face_grid, again.face_grid) and torch.equal(batch.path, again.path)
    assert reader["part 2"] is reader["part 2"] and reader["part 0"] is not reader["part 0"]
