"""What makes two runs the same: effective params, raw data, the pretrained checkpoint."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from brepfind.errors import InputError
from brepfind.files import digest, read_json, sha256, write_json

# Settings outside ``runtime`` that say where the work is done, not what.
_NO_RESULT = (("extract", "cluster"),)


def effective(params: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that can change a result, numbers by value: ``1`` and ``1.0`` are the same."""
    kept = {name: _by_value(section) for name, section in params.items() if name != "runtime"}
    for name, key in _NO_RESULT:
        if isinstance(kept.get(name), dict):
            kept[name].pop(key, None)
    return kept


def state_fingerprint(params: Mapping[str, Any], files: Mapping[str, str]) -> str:
    """Digest of the state a pipeline run stands for.

    Args:
        params: all sections, as read.
        files: digests of the files that belong to it, from :func:`state_files`.
    """
    return digest({"params": effective(params), "files": files})


def state_files(params: Mapping[str, Any], project: Path, home: Path) -> dict[str, str]:
    """SHA-256, by path, of the raw data and the weights that belong to the state.

    Args:
        params: all sections, as read.
        project: where relative paths start.
        home: where digests of files are remembered.
    """
    return file_digests(_raw_files(params, project), project, home)


def file_digests(files: Iterable[Path], project: Path, home: Path) -> dict[str, str]:
    """SHA-256 by path. Each file is read once: digests are kept by path, size and time."""
    cache_file = home / "digests.json"
    try:
        cache = read_json(cache_file)
    except InputError:  # not there yet, or cut by a crash
        cache = {}
    digests, fresh = {}, False
    for file in sorted(files):
        status = file.stat()
        key, stamp = str(file.resolve()), [status.st_size, status.st_mtime_ns]
        entry = cache.get(key)
        if entry is None or entry[:2] != stamp:
            entry, fresh = [*stamp, sha256(file)], True
            cache[key] = entry
        digests[Path(os.path.relpath(file, project)).as_posix()] = entry[2]
    if fresh:
        write_json(cache_file, cache)
    return digests


def git_tags(project: Path) -> dict[str, str]:
    """The commit the code came from, as tags for MLflow; none outside a git checkout."""
    commit = _git(project, "rev-parse", "HEAD")
    if commit is None:
        return {}
    tags = {"mlflow.source.git.commit": commit}
    changes = _git(project, "status", "--porcelain", "--untracked-files=no")
    tags["brepfind.git_dirty"] = "false" if changes == "" else "true"
    if "DVC_EXP_NAME" in os.environ:
        tags["brepfind.experiment_name"] = os.environ["DVC_EXP_NAME"]
    return tags


def _raw_files(params: Mapping[str, Any], project: Path) -> list[Path]:
    """Files whose content is part of the state; what is missing is left to the stage to say."""
    prepare = params.get("prepare") or {}
    wanted: list[Path] = []
    if prepare.get("source") == "folder":
        wanted += [Path(str(prepare[key])) for key in ("step_dir", "captions") if prepare.get(key)]
    checkpoint = (params.get("sanitize") or {}).get("checkpoint")
    tower = (params.get("train") or {}).get("text_tower")  # a name is no path that exists
    wanted += [Path(str(path)) for path in (checkpoint, tower) if path]
    files: list[Path] = []
    for path in (project / path for path in wanted):
        if path.is_dir():
            files += [file for file in path.rglob("*") if file.is_file()]
        elif path.is_file():
            files.append(path)
    return files


def _by_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _by_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_by_value(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # the section's own check refuses it by name
    return value


def _git(project: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments],  # noqa: S607 (the user's own git)
            cwd=project,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
