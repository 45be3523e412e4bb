"""Pictures of parts, drawn once per geometry and kept.

STEP files are read and drawn by workers with a limit of time and memory, several at a time: what
can harm the extraction of a part can harm its picture, too. A part that cannot be drawn gets a
placeholder that says why, and is counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from brepfind.cad.extract import ExtractConfig
from brepfind.cad.pool import CIRCUMSTANCES, work_on
from brepfind.errors import InputError
from brepfind.files import sha256, write_bytes
from brepfind.report.drawing import VERSION, draw_file, placeholder

_KEY = re.compile(r"[0-9A-Za-z_-]{1,100}")
_REASON = "Reason"


@dataclass(frozen=True, slots=True)
class Pictures:
    """What became of some pictures.

    Attributes:
        paths: the PNG of each key, a placeholder where the part could not be drawn.
        failed: why, by key, for the placeholders alone.
        drawn: how many were not known from before.
    """

    paths: dict[str, Path]
    failed: dict[str, str]
    drawn: int


def picture_key(step: Path) -> str:
    """The key of a STEP file whose digest is not known: the SHA-256 of its bytes."""
    return sha256(step)


def part_picture(step: Path, folder: Path, *, key: str) -> Path:
    """The picture of one part; see :func:`part_pictures`, which is quicker for many."""
    return part_pictures([(key, step)], folder).paths[key]


def part_pictures(
    items: Iterable[tuple[str, Path]],
    folder: Path,
    workers: int = 1,
    *,
    timeout_s: float = 60.0,
    memory_gb: float = 4.0,
) -> Pictures:
    """PNGs of parts, taken from ``folder`` where they were drawn before.

    Args:
        items: key and STEP file. A key stands for a geometry, such as the SHA-256 of the file:
            letters, digits, ``-`` and ``_``.
        folder: where the pictures are kept; made if it is not there.
        workers: processes at work at a time.
        timeout_s, memory_gb: what one part may take; a worker's first has its start on top.

    Raises:
        InputError: naming a key that cannot be part of a file's name.
    """
    wanted = dict(items)
    for key in wanted:
        if not _KEY.fullmatch(key):
            raise InputError(f"{key!r} cannot name a picture; use a digest")
    paths = {key: folder / f"{key}-{VERSION}.png" for key in wanted}
    failed: dict[str, str] = {}
    missing = []
    for key, step in wanted.items():
        if (reason := _reason(paths[key])) is None:
            missing.append((key, step))
        elif reason:
            failed[key] = reason
    # A worker that starts costs as much as twenty pictures.
    workers = min(workers, 1 + len(missing) // 20)
    for outcome in work_on(missing, draw_file, _limits(timeout_s, memory_gb), workers):
        if outcome.reject is None:
            write_bytes(paths[outcome.key], outcome.parts[0])
        else:
            failed[outcome.key] = outcome.reject.message
            # Another day the machine may have the time or the memory: such a one is kept apart.
            if outcome.reject.reason in CIRCUMSTANCES:
                paths[outcome.key] = folder / f"{outcome.key}-{VERSION}-not-yet.png"
            write_bytes(paths[outcome.key], placeholder(outcome.reject.message))
    return Pictures(paths, failed, len(missing))


def _reason(path: Path) -> str | None:
    """Why a kept picture is a placeholder; empty if it is none, None if no picture is kept."""
    try:
        with Image.open(path) as image:
            image.load()
            return str(image.info.get(_REASON, ""))
    except (OSError, SyntaxError):  # not there, or not whole
        return None


def _limits(timeout_s: float, memory_gb: float) -> ExtractConfig:
    # Of these only the limits are asked for: all solids are drawn, however many faces they have.
    return ExtractConfig(
        grid=10,
        max_faces=4095,
        multi_solid="merge",
        timeout_s=timeout_s,
        memory_gb=memory_gb,
        max_reject_rate=1.0,
        shards=1,
    )
