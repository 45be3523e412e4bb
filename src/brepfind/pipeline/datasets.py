"""The data sets of a run as MLflow lists them: what went in, by name, digest and size."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from brepfind.files import digest
from brepfind.pipeline import paths

# What a stage reads of the split.
SIDES: Mapping[str, Sequence[str]] = {
    "train": ("train", "validation"),
    "health": ("validation",),
    "evaluate": ("test",),
    "publish": ("train", "validation", "test"),
}
_DIGEST = 12  # characters of it: MLflow keeps at most 36, and a person compares a few


def raw_data(params: Mapping[str, Any], files: Mapping[str, str]) -> list[dict[str, Any]]:
    """The raw data that the state stands for.

    Args:
        params: all sections, as read.
        files: digests of the state's files by path, as the fingerprint takes them.
    """
    prepare, sanitize = params.get("prepare") or {}, params.get("sanitize") or {}
    checkpoint = str(sanitize.get("checkpoint") or "")
    weights = {path: one for path, one in files.items() if path == checkpoint}
    parts = {path: one for path, one in files.items() if path not in weights}
    found = []
    if prepare.get("source") == "folder":
        step = str(prepare.get("step_dir"))
        found.append(_dataset(step, digest(parts), step, "raw", {"files": len(parts)}))
    else:
        name = f"sample of {prepare.get('parts')} parts"
        facts = {key: str(value) for key, value in prepare.items()}
        found.append(
            _dataset(name, digest(facts), "params.yaml", "raw", {"parts": prepare.get("parts")})
        )
    if weights:
        found.append(_dataset(Path(checkpoint).name, digest(weights), checkpoint, "pretrained", {}))
    return found


def split_data(project: Path, stage: str) -> list[dict[str, Any]]:
    """The sides of the split that a stage reads; none where they are not there yet."""
    sides = SIDES.get(stage, ())
    files = [project / paths.SPLIT, project / paths.GRAPHS / "manifest.parquet"]
    files.append(project / paths.CORPUS / "captions.parquet")
    if not sides or not all(file.is_file() for file in files):
        return []  # the stage itself says what is missing
    try:
        split, manifest, captions = map(pd.read_parquet, files)
    except (OSError, ValueError):  # damaged, which the stage says in its own words
        return []
    rows = split.merge(manifest[["model_id", "sha256"]], on="model_id")
    found = []
    for side in sides:
        mine = rows[rows["split"] == side].sort_values("model_id")
        told = captions[captions["model_id"].isin(mine["model_id"])]
        told = told.sort_values(["model_id", "index"])[["model_id", "caption"]]
        sizes = {"parts": len(mine), "captions": len(told)}
        content = _rows_digest(mine[["model_id", "sha256"]], told)
        found.append(_dataset(side, content, str(paths.SPLIT), side, sizes))
    return found


def _rows_digest(*tables: pd.DataFrame) -> str:
    """The digest of tables given as lists of rows; of millions of rows one is there at a time."""
    total = hashlib.sha256()
    for place, table in enumerate(tables):
        total.update(b",[" if place else b"[[")
        for number, row in enumerate(table.itertuples(index=False, name=None)):
            text = json.dumps(row, separators=(",", ":"))
            total.update((f",{text}" if number else text).encode())
        total.update(b"]")
    total.update(b"]")
    return total.hexdigest()


def _dataset(
    name: str, content: str, source: str, context: str, profile: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "digest": content[:_DIGEST],
        "source": source,
        "context": context,
        "profile": dict(profile),
    }
