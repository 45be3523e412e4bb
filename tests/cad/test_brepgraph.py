"""Against brepgraph 0.3.0, another extractor: what it gave is in fixtures/cad/brepgraph."""

from pathlib import Path

import numpy as np
import pytest
from OCP.gp import gp_Pnt2d
from OCP.IntTools import IntTools_FClass2d
from OCP.TopAbs import TopAbs_FACE, TopAbs_IN
from OCP.TopExp import TopExp_Explorer
from OCP.TopoDS import TopoDS

from brepfind.cad import boundary, brep
from brepfind.cad.arrays import EDGE_TYPES, FACE_TYPES, PartArrays
from brepfind.cad.extract import extract_file
from brepfind.cad.reading import read
from brepfind.cad.topology import topology
from tests.cad.shapes import CONFIG, in_mm, scale_of

FOLDER = Path(__file__).parents[1] / "fixtures" / "cad" / "brepgraph"
# Faces whose outline holds a B-spline or Bezier curve, see the test of points.
WIDE = {"rounded": [1, 4], "turned": [2, 3], "loft": [1, 2]}
PARTS = ("mixed", "slanted", "rounded", "turned", "loft", "arch")

# Open CASCADE's numbers for surfaces and curves, which brepgraph keeps.
SURFACES = ("plane", "cylinder", "cone", "sphere", "torus", "bezier", "bspline", "revolution",
            "extrusion", "offset", "other")  # fmt: skip
CURVES = ("straight", "circular", "elliptical", "hyperbolic", "parabolic", "bezier", "bspline",
          "offset", "other")  # fmt: skip


@pytest.fixture(scope="module", params=PARTS)
def both(request) -> tuple[str, PartArrays, dict[str, np.ndarray]]:
    with np.load(FOLDER / "expected.npz", allow_pickle=False) as file:
        theirs = {
            key.removeprefix(f"{request.param}/"): file[key]
            for key in file
            if key.startswith(f"{request.param}/")
        }
    grid = theirs["uv_grid"].shape[-1]
    config = CONFIG.model_copy(update={"grid": grid})
    (part,) = extract_file(FOLDER / f"{request.param}.step", config)
    return request.param, part, theirs


def test_the_same_graph(both):
    _, part, theirs = both
    pairs = np.sort(np.stack([part.edge_src[::2], part.edge_dst[::2]]), axis=0)
    np.testing.assert_array_equal(pairs, theirs["edge_index"])
    assert (part.facts.seams, part.facts.degenerate) == tuple(theirs["dropped"])
    assert [FACE_TYPES[k] for k in part.face_type] == [SURFACES[k] for k in theirs["surface_type"]]
    for flags, kind in zip(part.edge_type[::2], theirs["curve_type"], strict=True):
        names = {name for name, flag in zip(EDGE_TYPES, flags, strict=True) if flag} - {"closed"}
        assert {name.removeprefix("rational_") for name in names} == {CURVES[kind]}
    np.testing.assert_array_equal(part.face_loops, theirs["num_loops"])


def test_areas_centroids_lengths(both):
    """Their lengths of other curves than lines and circles err by up to 2e-4; see the next test."""
    _, part, theirs = both
    scale = scale_of(part)
    np.testing.assert_allclose(part.face_area * scale**2, theirs["area"], rtol=1e-5)
    np.testing.assert_allclose(in_mm(part, part.face_centroid), theirs["centroid"], atol=1e-4)
    plain = theirs["curve_type"] <= 1
    ours = part.edge_length[::2] * scale
    np.testing.assert_allclose(ours[plain], theirs["length"][plain], rtol=1e-6)
    np.testing.assert_allclose(ours, theirs["length"], rtol=2e-4)


def test_a_length_that_they_have_not_quite():
    """The Bezier curve of the rounded bar, shortened by the rounding, summed over chords.

    Its x is 30 t, so that its ends tell the share that is left.
    """
    (part,) = extract_file(FOLDER / "rounded.step", CONFIG)
    edge = int(np.flatnonzero(part.edge_type[:, EDGE_TYPES.index("bspline")])[0])
    ends = in_mm(part, part.edge_grid[edge, [0, -1], 0:3].astype(float))[:, 0] / 30
    t = np.linspace(*ends, 1_000_001)[:, None]
    a, b, c, d = np.array([(0, 0), (10, 14), (20, -10), (30, 4)], float)
    curve = (1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * b + 3 * (1 - t) * t**2 * c + t**3 * d
    chords = np.linalg.norm(np.diff(curve, axis=0), axis=1).sum()
    assert part.edge_length[edge] * scale_of(part) == pytest.approx(chords, rel=2e-5)


def test_angles_and_convexity(both):
    """Their angle has no sign; ours is negative where concave."""
    _, part, theirs = both
    np.testing.assert_allclose(np.abs(part.edge_dihedral[::2]), theirs["dihedral_angle"], atol=1e-6)
    np.testing.assert_array_equal(part.edge_convexity[::2], theirs["convexity"])
    assert ((part.edge_dihedral[::2] < 0) <= (theirs["convexity"] != 1)).all()


def test_points_and_tangents_along_edges(both):
    """In one direction or the other: ours has both."""
    _, part, theirs = both
    grid = np.moveaxis(theirs["u_grid"], 1, -1)
    ours = part.edge_grid[..., :6].reshape(-1, 2, *grid.shape[1:]).astype(float)
    ours[..., :3] = in_mm(part, ours[..., :3])
    gap = np.abs(ours - grid[:, None]).max(axis=(2, 3))
    assert gap.min(axis=1).max() < 2e-5
    chosen = gap.argmin(axis=1)
    # Only lines tell their directions apart by the points; both agree on the tangent as well.
    np.testing.assert_allclose(ours[np.arange(len(chosen)), chosen], grid, atol=2e-5)


def test_points_normals_and_masks_of_faces(both):
    """Open CASCADE bounds B-spline outlines by their poles, so that its grid reaches too far.

    There the grids differ; everywhere else all points and normals agree. Their mask holds the
    outline, ours does not, as BRepFormer has it.
    """
    name, part, theirs = both
    grid = np.moveaxis(theirs["uv_grid"], 1, -1)
    points = in_mm(part, part.face_grid[..., :3].astype(float))
    wide = np.abs(points - grid[..., :3]).max(axis=(1, 2, 3)) > 1e-3
    assert np.flatnonzero(wide).tolist() == WIDE.get(name, [])
    np.testing.assert_allclose(points[~wide], grid[~wide][..., :3], atol=2e-5)
    # The knob's pole has no normal: both take one nearby, ours a thousandth of the face away.
    near = 1e-3 if name == "turned" else 2e-5
    np.testing.assert_allclose(part.face_grid[~wide][..., 3:6], grid[~wide][..., 3:6], atol=near)
    assert (part.face_grid[~wide][..., 6] <= grid[~wide][..., 6]).all()


@pytest.mark.parametrize("name", PARTS)
def test_masks_against_open_cascades_own_classifier(name):
    """Asked for each sample, with a tolerance of 1e-7: on the outline counts as outside."""
    shape, _ = read(FOLDER / f"{name}.step")
    (part,) = extract_file(FOLDER / f"{name}.step", CONFIG)
    bounds = boundary.build(topology(brep.load(shape))).box
    walk = TopExp_Explorer(shape, TopAbs_FACE)
    for face, (u0, u1, v0, v1) in enumerate(bounds):
        judge = IntTools_FClass2d(TopoDS.Face(walk.Current()), 1e-7)
        states = [
            [judge.Perform(gp_Pnt2d(u, v)) for v in np.linspace(v0, v1, 10).tolist()]
            for u in np.linspace(u0, u1, 10).tolist()
        ]
        expected = [[state == TopAbs_IN for state in row] for row in states]
        np.testing.assert_array_equal(part.face_grid[face, ..., 6] == 1, expected)
        walk.Next()
    assert not walk.More()
