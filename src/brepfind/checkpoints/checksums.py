"""Do the bytes say what was written? The zip's own CRC-32, and a ``.sha256`` file beside.

torch is built with the zip's checks off: a file with flipped bytes loads without a word.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from brepfind import files
from brepfind.checkpoints.crc import append, crc32
from brepfind.errors import CheckpointError

BLOCK = 32 << 20  # bytes of one task; large against its overhead, small against a tensor

_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
# As sha256sum writes it: a backslash if the name is escaped, the digest, the file's name.
_LINE = re.compile(rb"\s*\\?([0-9A-Fa-f]{64})(?:\s+\*?(.*))?")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a file that has a CRC-32 of its own."""

    path: Path
    name: str
    start: int
    length: int
    crc: int


def payload_start(path: Path, entry: zipfile.ZipInfo) -> int:
    """Where a zip entry's bytes begin; the local header's lengths may differ from the central's.

    Raises:
        zipfile.BadZipFile: if there is no local header where the directory says.
    """
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        header = file.read(_LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size or not header.startswith(b"PK\x03\x04"):
        raise zipfile.BadZipFile(f"no header for entry {entry.filename}")
    *_, name_length, extra_length = _LOCAL_HEADER.unpack(header)
    return entry.header_offset + _LOCAL_HEADER.size + name_length + extra_length


def start(pieces: Sequence[Piece], pool: ThreadPoolExecutor) -> Callable[[], Iterator[Piece]]:
    """Set the sums going, block by block; the returned function yields the damaged pieces."""
    jobs = [
        (piece, [pool.submit(_block_crc, piece, at) for at in range(0, piece.length, BLOCK)])
        for piece in pieces
    ]

    def damaged() -> Iterator[Piece]:
        for piece, blocks in jobs:
            crc = 0
            for number, block in enumerate(blocks):
                length = min(BLOCK, piece.length - number * BLOCK)
                crc = append(crc, block.result(), length)
            if crc != piece.crc:
                yield piece

    return damaged


def locate(storages: Mapping[int, int], pieces: Sequence[Piece]) -> dict[int, Piece]:
    """Which piece of a memory-mapped file each storage is.

    All storages of one file lie in one mapping, so one difference takes every address to its place
    in the file; it is the one for which each storage has a piece of its own length.

    Args:
        storages: address -> length in bytes, of all storages of one file.
        pieces: the pieces of that file.

    Returns:
        Address -> piece; empty if no one difference explains them all.
    """
    places = {piece.start: piece for piece in pieces if piece.length}
    whole = {address: length for address, length in storages.items() if length}
    if not whole:
        return {}
    first, length = next(iter(whole.items()))
    bases = [first - piece.start for piece in places.values() if piece.length == length]
    for base in bases:
        found = {address: places.get(address - base) for address in whole}
        good = {
            address: piece
            for address, piece in found.items()
            if piece is not None and piece.length == whole[address]
        }
        if base % mmap.PAGESIZE == 0 and len(good) == len(whole):
            return good
    return {}


def _block_crc(piece: Piece, at: int) -> int:
    start = piece.start + at
    length = min(BLOCK, piece.length - at)
    base = start - start % mmap.ALLOCATIONGRANULARITY
    try:
        with (
            piece.path.open("rb") as file,
            mmap.mmap(
                file.fileno(), start + length - base, access=mmap.ACCESS_READ, offset=base
            ) as view,
            memoryview(view) as whole,
            whole[start - base :] as part,
        ):
            return crc32(part)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{piece.path}: is shorter than its directory says") from error


def sidecar(path: Path) -> Path:
    """The file beside ``path`` that holds its SHA-256, as ``sha256sum`` writes it."""
    return path.with_name(path.name + ".sha256")


def read_sidecar(path: Path) -> list[str]:
    """The digests in the file beside ``path``; none if there is no such file.

    Two stand there while a new version takes the old one's place, so that a crash in between
    leaves a file that still verifies. In a list of several files the lines with this file's name
    count; a list of one file is this one's, which may have been renamed.

    Raises:
        CheckpointError: if the file is there and holds no digest, or those of other files only.
    """
    beside = sidecar(path)
    try:
        lines = beside.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"{beside}: cannot be read ({error})") from error
    found = [_LINE.fullmatch(line) for line in lines if line.strip()]
    whole = [match for match in found if match is not None]
    if not whole or len(whole) < len(found):
        raise CheckpointError(f"{beside}: holds no SHA-256; write it again with sha256sum")
    names = [(match[2] or b"").rpartition(b"/")[2] for match in whole]
    own = _name(path)
    if own not in names and len(set(names)) > 1:
        raise CheckpointError(f"{beside}: lists other files and not {path.name}; write it again")
    return [
        match[1].decode().lower()
        for match, name in zip(whole, names, strict=True)
        if name == own or own not in names
    ]


def verify_sidecar(path: Path, *, required: bool = False) -> bool:
    """Compare a file with the SHA-256 beside it.

    Returns:
        True if it was compared and agrees, False if there is none beside it.

    Raises:
        CheckpointError: if they disagree, or there is none and one is ``required``.
    """
    digests = read_sidecar(path)
    if not digests:
        if required:
            raise CheckpointError(
                f"{path}: has no {sidecar(path).name} beside it, so its bytes cannot be vouched "
                "for; copy that file too, or run the stage that wrote it again"
            )
        return False
    if files.sha256(path) not in digests:
        raise CheckpointError(
            f"{path}: its bytes do not give the SHA-256 in {sidecar(path).name}; the file is "
            "damaged or was changed after it was written, take another copy"
        )
    return True


def publish(aside: Path, path: Path) -> str:
    """Note the SHA-256 of ``aside``, which is about to replace ``path``; return it.

    The old digest stays in the list until :func:`settle`.
    """
    digest = files.sha256(aside)
    _write_digests(path, [*_digests_or_none(path), digest])
    return digest


def settle(path: Path, digest: str) -> None:
    """Leave only the new digest beside ``path``."""
    _write_digests(path, [digest])


def _digests_or_none(path: Path) -> list[str]:
    try:
        return read_sidecar(path)
    except CheckpointError:
        return []


def _write_digests(path: Path, digests: Sequence[str]) -> None:
    name = _name(path)
    mark = b"\\" if name != os.fsencode(path.name) else b""
    lines = [mark + digest.encode() + b"  " + name + b"\n" for digest in digests]
    files.write_bytes(sidecar(path), b"".join(lines))


def _name(path: Path) -> bytes:
    """A file's name as ``sha256sum`` writes it: its own bytes, without a line break in them."""
    name = os.fsencode(path.name).replace(b"\\", b"\\\\")
    return name.replace(b"\n", b"\\n").replace(b"\r", b"\\r")
