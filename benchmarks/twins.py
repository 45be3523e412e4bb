"""Twins found and missed: moved, mirrored, resized and rewritten copies of real shapes.

    PYTHONPATH=src python -m benchmarks.twins STEP_FOLDER... [--parts 80] [--seed 0]

Each STEP file is read, and copies of it are written and read again: turned and moved, in inches,
mirrored, and 0.1 % larger. Then ``twin_groups`` is asked about all of them at once. A copy that is
moved or in another unit and lands in another group is a miss. A resized copy in the same group is a
false match, and so is a mirrored one of a part that differs from its mirror image; whether it does
is told by trying to lay the mirrored faces onto the part's. Two different files in one group are a
false match unless their sorted face areas and edge lengths agree to 1e-4.

Writes benchmarks/results/twins.json.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from OCP.BRepBuilderAPI import BRepBuilderAPI_Transform
from OCP.gp import gp_Ax1, gp_Dir, gp_Pnt, gp_Trsf, gp_Vec
from OCP.IFSelect import IFSelect_RetDone
from OCP.Interface import Interface_Static
from OCP.STEPControl import STEPControl_AsIs, STEPControl_Writer
from OCP.TopoDS import TopoDS_Shape

from brepfind.cad.arrays import PartArrays
from brepfind.cad.extract import ExtractConfig, extract_file
from brepfind.cad.reading import quiet, read
from brepfind.errors import BrepfindError
from brepfind.files import write_json
from brepfind.graphs.twins import twin_groups
from tests.cad.shapes import mirror, resize

CONFIG = ExtractConfig(
    grid=10,
    max_faces=1000,
    multi_solid="merge",
    timeout_s=60.0,
    memory_gb=4.0,
    max_reject_rate=1.0,
    shards=1,
)
RESULTS = Path(__file__).parent / "results" / "twins.json"


def turned(rng: np.random.Generator) -> gp_Trsf:
    """A random rotation, then a random move of up to 500 mm."""
    axis = gp_Ax1(gp_Pnt(0, 0, 0), gp_Dir(*(float(x) for x in rng.normal(size=3))))
    rotation, move = gp_Trsf(), gp_Trsf()
    rotation.SetRotation(axis, float(rng.uniform(0.1, 3.0)))
    move.SetTranslation(gp_Vec(*(float(x) for x in rng.uniform(-500, 500, size=3))))
    return move * rotation


def copy_of(shape: TopoDS_Shape, transform: gp_Trsf, unit: str, folder: Path) -> PartArrays:
    """The shape transformed, written to a STEP file in ``unit`` and extracted from it."""
    path = folder / "copy.step"
    moved = BRepBuilderAPI_Transform(shape, transform, True).Shape()
    Interface_Static.SetCVal_s("write.step.unit", unit)
    writer = STEPControl_Writer()
    if writer.Transfer(moved, STEPControl_AsIs) != IFSelect_RetDone:
        raise ValueError("the copy cannot be written")
    writer.Write(str(path))
    (part,) = extract_file(path, CONFIG)
    return part


def same_sizes(a: PartArrays, b: PartArrays) -> bool:
    """Whether sorted face areas and edge lengths agree, in mm: a second opinion on twins."""
    if (a.n_faces, a.n_edges) != (b.n_faces, b.n_edges):
        return False
    scales = [np.subtract(p.facts.box_max, p.facts.box_min).max() / 2 for p in (a, b)]
    pairs = [
        (
            np.sort(getattr(a, name)) * scales[0] ** power,
            np.sort(getattr(b, name)) * scales[1] ** power,
        )
        for name, power in (("face_area", 2), ("edge_length", 1))
    ]
    return all(np.allclose(x, y, rtol=1e-4, atol=1e-6) for x, y in pairs)


def handed(part: PartArrays) -> bool:
    """Whether the part is seen to differ from its mirror image.

    Tries every mirroring map of the principal frame of the faces' centroids, weighted by area. A
    part whose frame has two equal moments is not judged, and counts as one that does not differ.
    """
    weight = part.face_area.astype(float)
    points = part.face_centroid.astype(float)
    points = points - weight @ points / weight.sum()
    moments, axes = np.linalg.eigh((points * weight[:, None]).T @ points / weight.sum())
    if np.min(np.diff(moments)) < 1e-3 * moments[-1]:
        return False
    local = points @ axes
    for signs in np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1).T:
        if np.prod(signs) > 0:
            continue
        image = local * signs
        gap = np.linalg.norm(local[:, None] - image[None], axis=2)
        alike = np.abs(weight[:, None] - weight[None]) < 1e-4 * weight.max()
        if np.where(alike, gap, np.inf).min(axis=1).max() < 1e-4:
            return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--parts", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    quiet()
    rng = np.random.default_rng(options.seed)
    files = sorted(
        file for folder in options.folders for file in folder.rglob("*.st*p") if file.is_file()
    )
    chosen = [files[i] for i in sorted(rng.permutation(len(files))[: options.parts])]
    parts: list[PartArrays] = []
    of: list[tuple[str, str]] = []
    left_out = []
    with tempfile.TemporaryDirectory() as folder:
        for file in chosen:
            try:
                shape, _ = read(file)
                versions = {
                    "original": extract_file(file, CONFIG)[0],
                    "moved": copy_of(shape, turned(rng), "MM", Path(folder)),
                    "inches": copy_of(shape, gp_Trsf(), "INCH", Path(folder)),
                    "mirrored": copy_of(shape, mirror(), "MM", Path(folder)),
                    "resized": copy_of(shape, resize(1.001), "MM", Path(folder)),
                }
            except (BrepfindError, ValueError) as error:
                left_out.append(f"{file.name}: {error}")
                continue
            parts += versions.values()
            of += [(str(file), kind) for kind in versions]
    groups = twin_groups(np.stack([part.facts.signature for part in parts]))
    group = dict(zip(of, groups.tolist(), strict=True))
    part_of = dict(zip(of, parts, strict=True))
    originals = [file for file, kind in of if kind == "original"]

    def together(kind: str) -> list[str]:
        return [f for f in originals if group[f, kind] == group[f, "original"]]

    false = [
        (a, b)
        for i, a in enumerate(originals)
        for b in originals[:i]
        if group[a, "original"] == group[b, "original"]
        and not same_sizes(part_of[a, "original"], part_of[b, "original"])
    ]
    missed = [
        (a, b)
        for i, a in enumerate(originals)
        for b in originals[:i]
        if group[a, "original"] != group[b, "original"]
        and same_sizes(part_of[a, "original"], part_of[b, "original"])
    ]
    handed_parts = [f for f in originals if handed(part_of[f, "original"])]
    mirrored_together = together("mirrored")
    result = {
        "parts": len(originals),
        "left_out": len(left_out),
        "moved_missed": len(originals) - len(together("moved")),
        "inches_missed": len(originals) - len(together("inches")),
        "resized_0.1_percent_matched": len(together("resized")),
        "handed_parts": len(handed_parts),
        "handed_parts_matched_with_their_mirror_image": len(
            set(handed_parts) & set(mirrored_together)
        ),
        "other_parts_missing_their_mirror_image": len(
            set(originals) - set(handed_parts) - set(mirrored_together)
        ),
        "pairs_of_files_matched_falsely": len(false),
        "pairs_of_files_of_equal_sizes_not_matched": len(missed),
    }
    for name, value in result.items():
        print(f"{name:48} {value}")
    for line in left_out:
        print("left out:", line)
    for name, pairs in (("matched falsely", false), ("not matched", missed)):
        for a, b in pairs[:10]:
            print(f"{name}: {a} {b}")
    for file in sorted(set(handed_parts) & set(mirrored_together))[:10]:
        print("matched with its mirror image:", file)
    for kind in ("moved", "inches"):
        for file in sorted(set(originals) - set(together(kind)))[:10]:
            gap = part_of[file, kind].facts.signature - part_of[file, "original"].facts.signature
            print(f"{kind} missed: {file} off by {gap / part_of[file, kind].facts.signature[1]}")
    write_json(RESULTS, result)


if __name__ == "__main__":
    main()
