from collections import deque

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brepfind.graphs.pairwise import angle_matrix, pairwise
from brepfind.graphs.pairwise_cache import PairwiseCache


def by_search(part, source):
    """Hops and paths from one face, breadth first, edges by number."""
    paths = {source: []}
    queue = deque([source])
    while queue:
        here = queue.popleft()
        for edge in np.flatnonzero(part.edge_src == here):
            there = int(part.edge_dst[edge])
            if there not in paths:
                paths[there] = [*paths[here], int(edge)]
                queue.append(there)
    return paths


def walk(part, source, edges):
    at = source
    for edge in edges:
        assert part.edge_src[edge] == at
        at = part.edge_dst[edge]
    return at


def test_a_chain_of_three_by_hand(make_part):
    found = pairwise(make_part(4, ((0, 1), (1, 2))))
    # edges: 0 is 0->1, 1 is 1->0, 2 is 1->2, 3 is 2->1; face 3 stands alone
    assert found.hops.tolist() == [[0, 1, 2, -1], [1, 0, 1, -1], [2, 1, 0, -1], [-1, -1, -1, 0]]
    assert found.path[0].tolist() == [[-1, -1], [0, -1], [0, 2], [-1, -1]]
    assert found.path[2].tolist() == [[3, 1], [3, -1], [-1, -1], [-1, -1]]
    assert (found.path[3] == -1).all()


def test_of_two_shared_edges_the_first_is_taken(make_part):
    found = pairwise(make_part(2, ((1, 0), (0, 1), (0, 1))))
    assert found.path.tolist() == [[[-1], [1]], [[0], [-1]]]


def test_one_face_has_no_path(make_part):
    found = pairwise(make_part(1, ()))
    assert found.hops.tolist() == [[0]] and found.path.shape == (1, 1, 0)
    assert found.angle.tolist() == [[0.0]] and found.distance.tolist() == [[0.0]]


def test_a_self_loop_leads_nowhere(make_part):
    assert pairwise(make_part(2, ((0, 0),))).hops.tolist() == [[0, -1], [-1, 0]]


def test_paths_are_cut_at_sixteen_but_hops_are_not(make_part):
    found = pairwise(make_part(81, [(i, i + 1) for i in range(80)]))
    assert found.hops.max() == 80 and found.path.shape == (81, 81, 16)
    assert found.path[0, 80].tolist() == list(range(0, 32, 2))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), n_faces=st.integers(1, 30))
def test_hops_and_paths_against_a_plain_search(make_part, data, n_faces):
    end = st.integers(0, n_faces - 1)
    part = make_part(n_faces, data.draw(st.lists(st.tuples(end, end), max_size=60)))
    found = pairwise(part)
    for source in range(n_faces):
        expected = by_search(part, source)
        for target in range(n_faces):
            hops = len(expected[target]) if target in expected else -1
            assert found.hops[source, target] == hops
            edges = [edge for edge in found.path[source, target].tolist() if edge >= 0]
            assert len(edges) == min(max(hops, 0), 16)
            if 0 < hops <= 16:
                assert walk(part, source, edges) == target


def test_angles_of_three_planes(make_part):
    part = make_part(3, ())
    part.face_grid[..., 6] = 1
    for face, normal in enumerate(((0, 0, 1), (0, 0, -1), (1, 0, 1))):
        part.face_grid[face, ..., 3:6] = normal / np.linalg.norm(normal)
    expected = [[0, 180, 45], [180, 0, 135], [45, 135, 0]]
    assert np.allclose(angle_matrix(part, "inside"), expected, atol=1e-4)


def test_the_two_rules_read_the_two_sides_of_the_trim(make_part):
    part = make_part(2, (), grid=2)
    part.face_grid[..., 3:6] = (0, 0, 1)
    part.face_grid[0, 0, :, 3:6] = (1, 0, 0)
    part.face_grid[0, 0, :, 6] = 1
    part.face_grid[0, 1, :, 6] = 0
    part.face_grid[1, ..., 6] = (1, 0)
    assert np.allclose(angle_matrix(part, "inside")[0, 1], 90)
    assert np.allclose(angle_matrix(part, "authors")[0, 1], 0)


@pytest.mark.parametrize("rule", ["inside", "authors"])
def test_a_face_without_direction_is_at_90_degrees_and_never_nan(make_part, rule):
    part = make_part(3, ())
    part.face_grid[0, ..., 6] = 1  # no sample outside
    part.face_grid[1, ..., 6] = 0  # none inside
    part.face_grid[2, :2, :, 3:6], part.face_grid[2, 2:, :, 3:6] = (0, 0, 1), (0, 0, -1)
    part.face_grid[2, ..., 6] = np.array([[1, 0, 1, 0]] * 4)  # cancels out on both sides
    angle = angle_matrix(part, rule)
    assert np.isfinite(angle).all() and (angle[2, :2] == 90).all()
    assert (angle[0, 1] == 90) and (np.diag(angle) == 0).all()


def test_distance_is_between_centroids(make_part):
    part = make_part(2, ())
    part.face_centroid[:] = ((0, 0, 0), (3, 4, 0))
    assert pairwise(part).distance.tolist() == [[0, 5], [5, 0]]


def assert_same(a, b):
    for name in ("hops", "angle", "distance", "path"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name


def test_the_cache_gives_what_is_computed(tmp_path, make_part):
    part = make_part(9, [(i, (i * 3 + 1) % 9) for i in range(9)])
    cache = PairwiseCache(tmp_path)
    assert_same(cache.get(part), pairwise(part))
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    before = file.stat().st_mtime_ns
    assert_same(cache.get(part), pairwise(part))
    assert file.stat().st_mtime_ns == before
    authors = PairwiseCache(tmp_path, "authors")
    assert_same(authors.get(part), pairwise(part, "authors"))


def test_other_content_is_another_file(tmp_path, make_part):
    cache = PairwiseCache(tmp_path)
    for seed in range(3):
        cache.get(make_part(seed=seed))
    assert sum(path.is_file() for path in tmp_path.rglob("*")) == 3


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]\nxx", b"\xff\xfe\n", "flip", "cut"])
def test_a_damaged_file_is_found_anew_and_said(tmp_path, make_part, caplog, damage):
    cache, part = PairwiseCache(tmp_path), make_part()
    expected = cache.get(part)
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    content = bytearray(file.read_bytes())
    good = bytes(content)
    content[-1] ^= 1
    file.write_bytes({"flip": content, "cut": content[:-1]}.get(damage, damage))
    with caplog.at_level("WARNING"):
        assert_same(cache.get(part), expected)
    assert "is damaged" in caplog.text and file.name in caplog.text
    assert file.read_bytes() == good
