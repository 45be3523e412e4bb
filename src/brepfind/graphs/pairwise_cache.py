"""The pairwise matrices of each part, found once per machine."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brepfind.cad.arrays import FEATURE_VERSION, PartArrays
from brepfind.files import write_bytes
from brepfind.graphs.pairwise import AngleRule, Pairwise, assemble, first_edges, hop_matrix
from brepfind.graphs.schema import content_hash
from brepfind.log import get_logger

log = get_logger(__name__)

# Bumped when another path would be taken or the file is laid out anew.
PAIRWISE_VERSION = 1


class PairwiseCache:
    """A folder of one small file per part; safe for any number of processes at once.

    The key is the part's content hash and the feature version, so that nothing stale can be met. A
    file holds hops and first edges, six bytes a pair, and a checksum; the rest is found from them
    faster than it could be read. So the angle rule does not reach the disk, and both rules share
    the files. A damaged file is found anew and replaced, and the log says so.

    Args:
        folder: where the files are; created when the first is written.
        angle_rule: see :func:`~brepfind.graphs.pairwise.pairwise`.
    """

    def __init__(self, folder: Path, angle_rule: AngleRule = "inside") -> None:
        self.folder = folder
        self.angle_rule = angle_rule

    def get(self, arrays: PartArrays, content: str | None = None) -> Pairwise:
        """The matrices of a part, from the file if there is one.

        Args:
            content: the part's content hash, where it is known; a store's manifest has it.
        """
        content = content or content_hash(arrays)
        path = self.path(content)
        found = self._read(path, arrays)
        if found is None:
            hops = hop_matrix(arrays)
            found = hops, first_edges(arrays, hops)
            write_bytes(path, _pack(*found))
        return assemble(arrays, *found, self.angle_rule)

    def path(self, content: str) -> Path:
        """The file of a part."""
        name = f"{content}-v{FEATURE_VERSION}.{PAIRWISE_VERSION}.pairs"
        return self.folder / content[:2] / name

    def _read(
        self, path: Path, arrays: PartArrays
    ) -> tuple[NDArray[np.int16], NDArray[np.int32]] | None:
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("%s: cannot be read (%s); its matrices are found anew", path, error)
            return None
        try:
            return _unpack(content, arrays.n_faces)
        except ValueError as error:
            log.warning("%s: is damaged (%s); its matrices are found anew", path, error)
            return None


def _pack(hops: NDArray[np.int16], first: NDArray[np.int32]) -> bytes:
    body = hops.astype("<i2").tobytes() + first.astype("<i4").tobytes()
    head = json.dumps({"crc32": zlib.crc32(body), "faces": len(hops)}).encode()
    return head + b"\n" + body


def _unpack(content: bytes, n_faces: int) -> tuple[NDArray[np.int16], NDArray[np.int32]]:
    head, _, body = content.partition(b"\n")
    said: Any = json.loads(head)
    cells = n_faces * n_faces
    if not isinstance(said, dict) or said.get("faces") != n_faces or len(body) != 6 * cells:
        raise ValueError("its size does not fit the part")
    if said.get("crc32") != zlib.crc32(body):
        raise ValueError("its checksum is wrong")
    hops = np.frombuffer(body, dtype="<i2", count=cells).astype(np.int16)
    first = np.frombuffer(body, dtype="<i4", offset=2 * cells).astype(np.int32)
    return hops.reshape(n_faces, n_faces), first.reshape(n_faces, n_faces)
