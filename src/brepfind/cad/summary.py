"""What is in a part, in words and numbers a person reads; millimetres throughout."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from brepfind.cad.arrays import CONVEXITIES, EDGE_TYPES, FACE_TYPES, PartArrays


def summary(part: PartArrays) -> dict[str, Any]:
    """Plain data: counts by type, box, area and volume in mm, and what was left out or mended."""
    facts = part.facts
    edges = part.edge_type[::2]  # one direction of each shared edge
    return {
        "unit_of_the_file": facts.unit,
        "solids": facts.solids,
        "faces": part.n_faces,
        "faces_by_type": _counted(FACE_TYPES[code] for code in part.face_type),
        "edges": part.n_edges // 2,
        "edges_by_type": {
            name: int(count)
            for name, count in zip(EDGE_TYPES, edges.sum(axis=0, dtype=np.int64), strict=True)
            if count
        },
        "edges_by_convexity": _counted(CONVEXITIES[code] for code in part.edge_convexity[::2]),
        "box_mm": [
            float(high - low) for low, high in zip(facts.box_min, facts.box_max, strict=True)
        ],
        "volume_mm3": facts.volume,
        "area_mm2": facts.area,
        "seam_edges_left_out": facts.seams,
        "degenerate_edges_left_out": facts.degenerate,
        "free_edges_left_out": facts.free_edges,
        "edges_with_more_than_two_faces": facts.nonmanifold,
        "faces_outside_every_solid_left_out": facts.free_faces,
        "loose_edges_left_out": facts.loose_edges,
        "healed": facts.healed,
        "warnings": warnings(part),
        "signature": " ".join(f"{number:.6g}" for number in facts.signature),
    }


def warnings(part: PartArrays) -> list[str]:
    """What a person should know of a part before trusting its graph; empty for most parts.

    Seams and degenerate edges are no warning: every closed surface has them.
    """
    facts = part.facts
    found = {
        "faces outside every solid are left out": facts.free_faces,
        "loose edges are left out": facts.loose_edges,
        "edges with only one face are left out: a solid is open": facts.free_edges,
        "edges have more than two faces: solids touch": facts.nonmanifold,
    }
    lines = [f"{count} {what}" for what, count in found.items() if count]
    if facts.healed:
        lines.append("it was invalid and has been healed")
    return lines


def face_rows(part: PartArrays) -> list[dict[str, Any]]:
    """A row per face in the file's order: type, area in mm^2, loops, neighbours, rational."""
    facts = part.facts
    # Box units: the longest side of the box is 2 long.
    longest = float(np.subtract(facts.box_max, facts.box_min).max())
    scale = longest / 2
    neighbours = np.bincount(part.edge_src, minlength=part.n_faces)
    return [
        {
            "type": FACE_TYPES[part.face_type[face]],
            "area_mm2": float(part.face_area[face]) * scale**2,
            "loops": int(part.face_loops[face]),
            "edges": int(neighbours[face]),
            "rational": bool(part.face_rational[face]),
        }
        for face in range(part.n_faces)
    ]


def _counted(names: Any) -> dict[str, int]:
    return dict(Counter(names).most_common())
