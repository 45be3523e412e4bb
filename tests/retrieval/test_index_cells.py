"""The approximate search against the exact one, at a size that a lowered threshold makes small."""

import numpy as np
import pandas as pd
import pytest

from brepfind.retrieval import cells
from brepfind.retrieval.index import add_parts, make_index, read_index, remove_parts, write_index

MODEL, N, DIM, BELOW = "a" * 64, 8000, 24, 4000


def table(n, first=0):
    return pd.DataFrame({"model_id": [f"p{i}" for i in range(first, first + n)]})


def random_rows(rng, n):
    return rng.standard_normal((n, DIM)).astype(np.float32)


def clustered_rows(rng, n):
    centres = np.random.default_rng(9).standard_normal((60, DIM))
    return (centres[rng.integers(0, 60, n)] + 0.4 * random_rows(rng, n)).astype(np.float32)


@pytest.fixture(scope="module", params=[random_rows, clustered_rows])
def both(request):
    """Vectors, unseen queries of the same kind, the approximate index and the exact one."""
    rng = np.random.default_rng(0)
    rows, queries = request.param(rng, N), request.param(rng, 300)
    return (
        rows,
        queries,
        make_index(rows, table(N), MODEL, exact_below=BELOW),
        make_index(rows, table(N), MODEL),
    )


def test_the_search_finds_nearly_all_of_the_exact_ones(both):
    _, queries, quick, exact = both
    assert exact.exact
    assert not quick.exact
    true, found = (index.nearest(queries, 10)[1] for index in (exact, quick))
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(true, found, strict=True)])
    assert recall >= 0.97
    assert quick.recall >= cells.MIN_RECALL
    assert abs(quick.recall - recall) < 0.03  # what it says of itself is what it does


def test_a_single_cell_would_not_do(both):
    """The measurement bites: with fewer cells looked into, it is seen."""
    _, queries, quick, exact = both
    true = exact.nearest(queries, 10)[0]
    probes = quick.vectors.nprobe
    quick.vectors.nprobe = 1
    try:
        unit = queries / np.linalg.norm(queries, axis=1, keepdims=True)
        assert cells.recall_at(quick.vectors.search(unit, 10)[0], true) < 0.9
    finally:
        quick.vectors.nprobe = probes


def test_filtered_it_is_exact(both):
    rows, _, quick, exact = both
    allowed = np.random.default_rng(1).random(N) < 0.002
    for k in (3, 100):
        found, true = (index.nearest(rows[:50], k, allowed) for index in (quick, exact))
        assert (found[1] == true[1]).all()
    assert found[1].shape == (50, allowed.sum())


def test_as_many_are_found_as_there_are(both):
    rows, _, quick, _ = both
    assert sorted(quick.nearest(rows[:1], N)[1][0].tolist()) == list(range(N))


def test_a_round_trip_keeps_vectors_and_recall(both, tmp_path):
    rows, queries, quick, _ = both
    write_index(tmp_path, quick)
    back = read_index(tmp_path, MODEL)
    assert not back.exact
    assert back.recall == quick.recall
    assert (back.nearest(queries, 10)[1] == quick.nearest(queries, 10)[1]).all()
    unit = rows[7] / np.linalg.norm(rows[7])
    assert back.vector("p7") == pytest.approx(unit, abs=1e-6)


def test_parts_come_and_go_and_the_centres_stay(both):
    rows, _, quick, _ = both
    new = np.random.default_rng(5).standard_normal((10, DIM)).astype(np.float32)
    more = add_parts(quick, new, table(10, first=N), MODEL, exact_below=BELOW)
    assert (centres(more) == centres(quick)).all()
    found = more.nearest(new, 1)[1][:, 0]
    assert found.tolist() == list(range(N, N + 10))
    less = remove_parts(more, [f"p{i}" for i in range(100)], exact_below=BELOW)
    assert not less.exact
    assert less.parts["model_id"].iloc[0] == "p100"
    best = less.nearest(rows[100:110], 1)[1][:, 0]
    assert less.parts["model_id"].iloc[best].tolist() == [f"p{i}" for i in range(100, 110)]
    few = remove_parts(less, [f"p{i}" for i in range(N - 50)], exact_below=BELOW)
    assert few.exact
    assert few.recall == 1.0


def centres(index):
    return index.vectors.quantizer.reconstruct_n(0, index.vectors.nlist)


def test_the_number_of_cells_grows_with_the_root():
    assert [cells.cells_for(n) for n in (1, 4000, 1_000_000, 16_000_000)] == [4, 256, 4096, 16384]
