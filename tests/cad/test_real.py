"""Real files of several CAD systems: every solid, face and edge of them is accounted for."""

from pathlib import Path

import numpy as np
import pytest

from brepfind.cad.extract import extract_file
from tests.cad.shapes import CONFIG

REAL = Path(__file__).parents[3] / "shared" / "step-real"
if not (REAL / "FACTS.tsv").exists():
    pytest.skip(f"{REAL} is not there: real files and their FACTS.tsv", allow_module_level=True)

# Counted by Open CASCADE's own maps, over all that a file holds.
FACTS = sorted(
    {
        tuple(line.split("\t"))
        for line in (REAL / "FACTS.tsv").read_text(encoding="utf-8").splitlines()[1:]
    }
)


@pytest.mark.parametrize(
    ("name", "solids", "faces", "edges", "valid"), FACTS, ids=[row[0] for row in FACTS]
)
def test_every_solid_face_and_edge_is_kept_or_counted(name, solids, faces, edges, valid):
    (part,) = extract_file(REAL / name, CONFIG)
    facts = part.facts
    assert facts.solids == int(solids)
    assert part.n_faces + facts.free_faces == int(faces)
    assert facts.nonmanifold == 0  # so that each edge of two faces is one edge of the graph
    left_out = facts.seams + facts.degenerate + facts.free_edges + facts.loose_edges
    assert part.n_edges // 2 + left_out == int(edges)
    assert facts.healed is (valid != "True")
    for grid in (part.face_grid[..., 3:6], part.edge_grid[..., 6:9], part.edge_grid[..., 9:]):
        np.testing.assert_allclose(np.linalg.norm(grid, axis=-1), 1, atol=1e-6)
    # The faces' areas are those of the whole; box units are half the longest side.
    scale = np.subtract(facts.box_max, facts.box_min).max() / 2
    assert part.face_area.sum(dtype=float) * scale**2 == pytest.approx(facts.area, rel=1e-6)
    assert np.abs(part.face_grid[part.face_grid[..., 6] == 1][:, :3]).max() < 1 + 1e-4
