"""A part that was found, as plain data: what ``--json`` prints and the page receives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brepfind.log import printable
from brepfind.retrieval.parts import size, step_file
from brepfind.retrieval.search import Hit


def hit_row(hit: Hit, folder: Path) -> dict[str, Any]:
    """The row of :func:`part_row`, with the part's ``score``.

    Args:
        folder: of the index.
    """
    row = part_row(hit.model_id, hit.facts, folder)
    return {"model_id": row.pop("model_id"), "score": round(hit.score, 6), **row}


def part_row(model_id: str, facts: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What an index knows of a part, for strict JSON.

    Keys: ``model_id``; ``name``, the same as it may be shown; ``size_mm``, the sides of the
    bounding box; ``faces, edges, solids``; ``volume_mm3, area_mm2``; ``unit`` of the file;
    ``path``, the STEP file's, and ``there``, whether it is. What the index does not know is None.
    """
    sides = size(facts)
    file = step_file(folder, facts)
    return {
        "model_id": model_id,
        "name": printable(model_id, 200),
        "size_mm": None if sides is None else [round(side, 6) for side in sides],
        "faces": _whole(facts.get("faces")),
        # The graph has each shared edge in both directions.
        "edges": None if (both := _whole(facts.get("edges"))) is None else both // 2,
        "solids": _whole(facts.get("solids")),
        "volume_mm3": _number(facts.get("volume")),
        "area_mm2": _number(facts.get("area")),
        "unit": None if facts.get("unit") is None else str(facts["unit"]),
        "path": None if file is None else printable(_shown(file)),
        "there": file is not None and file.is_file(),
    }


def _shown(file: Path) -> str:
    """A path as a person types it here: relative where it lies below the current folder."""
    whole = file.resolve()
    here = Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)


def _whole(value: Any) -> int | None:
    return None if value is None or value != value else int(value)


def _number(value: Any) -> float | None:
    return None if value is None or value != value else float(value)
