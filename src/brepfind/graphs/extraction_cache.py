"""What became of STEP files, kept by content, so that only new content costs anything."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from brepfind.cad.arrays import PartArrays, PartFacts
from brepfind.cad.extract import ExtractConfig
from brepfind.cad.pool import CIRCUMSTANCES
from brepfind.cad.version import extractor_version
from brepfind.errors import RejectedPart
from brepfind.files import digest
from brepfind.graphs.schema import FIELDS, grid_of
from brepfind.log import get_logger

log = get_logger(__name__)

# Settings that decide where, how long and how often, but not what a file becomes. All others,
# those to come included, are part of the key.
_NO_RESULT = frozenset({"timeout_s", "memory_gb", "max_reject_rate", "shards", "cluster"})

# Bumped when the files are laid out anew.
_LAYOUT = 1

# Beyond this what was not used for longest goes; what the last run used always stays.
LIMIT_GB = 20.0

Result = tuple[list[PartArrays], RejectedPart | None]


class ExtractionCache:
    """A folder of one file per STEP content; safe for any number of processes at once.

    The key is the SHA-256 of the STEP bytes, the settings that change a result and the extractor's
    version, so that nothing stale can be met. A name is not part of it: a renamed file costs
    nothing. Nor is the kind of file: what ``.bin`` files give does not belong here. A checksum
    covers each file; a damaged one is counted, said, and found anew. What a time limit, a memory
    limit or a crash decided is never kept.

    Args:
        folder: where the files are; created when the first is written.
        config: the ``extract`` section.
        limit_gb: size that :meth:`trim` cuts the folder to, GB.

    Attributes:
        damaged: how many files were found damaged.
    """

    def __init__(self, folder: Path, config: ExtractConfig, limit_gb: float = LIMIT_GB) -> None:
        self.folder = folder
        self.damaged = 0
        self._limit = limit_gb * 1e9
        self._writable = True
        self._began = time.time() - 1.0  # the clocks of file systems are coarse
        settings = {k: v for k, v in config.model_dump().items() if k not in _NO_RESULT}
        self._suffix = digest([settings, extractor_version(), _LAYOUT])[:16]

    def path(self, sha256: str) -> Path:
        """The file for STEP bytes of that SHA-256."""
        return self.folder / sha256[:2] / f"{sha256}-{self._suffix}.result"

    def get(self, sha256: str) -> Result | None:
        """What became of these bytes, if it is known."""
        path = self.path(sha256)
        try:
            content = path.read_bytes()
            os.utime(path)  # used now, for trim
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("%s: cannot be read (%s); its file is extracted again", path, error)
            return None
        try:
            return _unpack(content, path.name)
        except ValueError as error:
            self.damaged += 1
            log.warning("%s: is damaged (%s); its file is extracted again", path, error)
            return None

    def put(self, sha256: str, parts: list[PartArrays], reject: RejectedPart | None) -> None:
        """Keep what became of these bytes, if it follows from them."""
        if not self._writable or (reject is not None and reject.reason in CIRCUMSTANCES):
            return
        path = self.path(sha256)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, aside = tempfile.mkstemp(suffix=".tmp", dir=path.parent)
            # Not synced to the disk: the checksum tells what a power cut leaves.
            with os.fdopen(handle, "wb") as file:
                file.write(_pack(parts, reject, path.name))
            Path(aside).replace(path)
        except OSError as error:  # a full disk, for one, takes nothing from the result
            self._writable = False
            log.warning("%s: cannot be written (%s); results are not kept", self.folder, error)

    def trim(self) -> None:
        """Remove what was not used for longest until the folder is below its limit."""
        found = []
        for path in self.folder.glob("*/*"):
            try:
                stat = path.stat()
            except OSError:  # another process was faster
                continue
            found.append((stat.st_mtime, stat.st_size, path))
        total = sum(size for _, size, _ in found)
        for used, size, path in sorted(found):
            if total <= self._limit or used >= self._began:
                break
            path.unlink(missing_ok=True)
            total -= size


def user_cache() -> Path:
    """Where results of ``brepfind extract`` are kept between calls."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "brepfind" / "extracted"


# The file: its checksum, a line of JSON, the arrays end to end ------------------------------------


def _pack(parts: list[PartArrays], reject: RejectedPart | None, name: str) -> bytes:
    head = {
        "name": name,
        "reject": None if reject is None else [reject.reason, reject.message],
        "parts": [
            {
                "face": part.n_faces,
                "edge": part.n_edges,
                "grid": grid_of(part),
                "facts": dataclasses.asdict(part.facts),
            }
            for part in parts
        ],
    }
    # NumPy's numbers become plain ones; floats are written so that they come back the same.
    text = json.dumps(head, default=lambda value: value.tolist(), allow_nan=False)
    chunks = [text.encode(), b"\n"]
    for part in parts:
        for item in FIELDS:
            little = np.dtype(item.dtype).newbyteorder("<")
            chunks.append(np.ascontiguousarray(getattr(part, item.name), dtype=little).tobytes())
    body = b"".join(chunks)
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def _unpack(content: bytes, name: str) -> Result:
    checksum, _, body = content.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != checksum:
        raise ValueError("its checksum is wrong")
    text, _, rest = body.partition(b"\n")
    head = json.loads(text)
    if head["name"] != name:
        raise ValueError(f"it belongs to {head['name']}")
    parts = []
    at = 0
    for said in head["parts"]:
        arrays: dict[str, Any] = {}
        for item in FIELDS:
            shape = item.shape(said[item.rows], said["grid"])
            dtype = np.dtype(item.dtype)
            count = math.prod(shape)
            found = np.frombuffer(rest, dtype.newbyteorder("<"), count=count, offset=at)
            arrays[item.name] = found.astype(dtype).reshape(shape)
            at += count * dtype.itemsize
        parts.append(PartArrays(**arrays, facts=_facts(said["facts"])))
    reject = None if head["reject"] is None else RejectedPart(*head["reject"])
    return parts, reject


def _facts(said: dict[str, Any]) -> PartFacts:
    said["signature"] = np.array(said["signature"], dtype=np.float64)
    for corner in ("box_min", "box_max"):
        said[corner] = tuple(said[corner])
    return PartFacts(**said)
