"""The frame of a DGL graph file, walked from end to end before DGL is let near it.

DGL believes every length it reads: one flipped byte can make it ask for exabytes, which ends the
process, and a file that lost its tail loads. So each length, shape and magic number is checked
here, in a file of one homogeneous graph as DGL 0.6 to 2.x write it (version 2):

    header    magic, version, kind, number of graphs; unused bytes up to 4096
    u64       where the graph begins
    labels    a list of named arrays
    graph     relations, then lists of named arrays of nodes and edges, then type names
    tail      the list of where graphs begin, its length in bytes on both sides

All numbers are little-endian. An array is: magic, reserved, device, rank, type, shape, bytes, data.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from brepfind.errors import InputError

HEADER_BYTES = 4096
HEADER_USED = 32  # DGL leaves the rest of the header as the memory was

_FILE = 0xDD2E4FF046B4A13F
_ARRAY = 0xDD5E40F096B4A13F
_HETERO = 0xDD589FBE35224ABF
_META = 0xDD3C5FFE20046ABF
_CSR = 0xDD6CD31205DFF127
_COO = 0xDD61FFD305DFF127
_UNIT = 0xDD2E60F0F6B4A127

_MAX_RANK = 8
_MAX_ITEMS = 1000  # of lists of names and arrays; real files have ten
_MAX_NAME = 1000
_CPU = 1


class _Broken(Exception):
    """The frame does not hold; the message says where."""


def check_frame(path: Path) -> None:
    """See that a file is one whole DGL graph file of one graph.

    Raises:
        InputError: if it is missing, no such file, cut, or its frame is damaged. Damage inside the
            numbers of an array is not seen here.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size < HEADER_BYTES:
                raise InputError(f"{path}: is no DGL graph file, or is cut ({size} bytes)")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                _Walk(content).file()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (_Broken, struct.error) as error:
        raise InputError(f"{path}: is cut, damaged, or no DGL graph file ({error})") from None


class _Walk:
    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self._size = len(content)
        self._at = 0

    def file(self) -> None:
        magic, version, _, graphs = (self._u64() for _ in range(4))
        if magic != _FILE:
            raise _Broken("its first bytes are not DGL's")
        if version != 2:
            raise _Broken(f"it has format version {version}, version 2 is read")
        if graphs != 1:
            raise _Broken(f"it holds {graphs} graphs, files of one part each are read")
        self._at = HEADER_BYTES
        begin = self._u64()
        self._named_arrays("labels")
        if self._at != begin:
            raise _Broken("its labels do not end where its graph begins")
        self._graph()
        tail = tuple(self._u64() for _ in range(4))
        if tail != (16, 1, begin, 16) or self._at != self._size:
            raise _Broken("its tail does not fit its header")

    def _graph(self) -> None:
        self._magic(_HETERO, "graph")
        self._meta()
        if self._u64() != 1:
            raise _Broken("its graph has several relations")
        self._unit()
        if self._u64() != 1:
            raise _Broken("its graph has several types of node")
        self._u64()
        for what in ("node fields", "edge fields"):
            if self._u64() != 1:
                raise _Broken(f"its {what} are not of one type")
            self._named_arrays(what)
        for _ in ("node type", "edge type"):
            for _ in range(self._count("type names")):
                self._name()

    def _unit(self) -> None:
        self._magic(_UNIT, "relation")
        self._skip(16)  # the formats it was saved in, and those allowed
        self._meta()
        self._edges()
        while self._content[self._at : self._at + 8] == struct.pack("<Q", _META):
            self._meta()
            self._edges()

    def _edges(self) -> None:
        """One list of edges; an index that leads out of it would be followed when it is used."""
        magic = self._u64()
        if magic not in (_COO, _CSR):
            raise _Broken("its edges are in no known format")
        rows, columns = self._u64(), self._u64()
        first, second, ids = self._integers(), self._integers(), self._integers()
        if magic == _COO:
            self._skip(2)  # flags of order
            good = len(first) == len(second) and _within(first, rows)
        else:
            self._skip(1)
            bounds = np.concatenate([[0], first, [len(second)]])
            good = len(first) == rows + 1 and bool((np.diff(bounds) >= 0).all())
        if not (good and _within(second, columns) and _within(ids, len(second))):
            raise _Broken("an edge leads to a node that is not there")

    def _integers(self) -> NDArray[np.int64]:
        code, bits, at, count = self._array()
        if code != 0 or bits not in (32, 64):
            raise _Broken("its edges are not integers")
        return np.frombuffer(self._content, f"<i{bits // 8}", count, at).astype(np.int64)

    def _meta(self) -> None:
        self._magic(_META, "meta graph")
        self._magic(_CSR, "meta graph's rows")
        self._skip(16)
        for _ in range(3):
            self._array()
        self._skip(1)

    def _named_arrays(self, what: str) -> None:
        for _ in range(self._count(what)):
            self._name()
            self._array()

    def _array(self) -> tuple[int, int, int, int]:
        """Pass an array; gives its type's code and bits, where its data begins, and its length."""
        self._magic(_ARRAY, "array")
        self._skip(8)
        device, _, rank = struct.unpack("<3i", self._take(12))
        code, bits, lanes = struct.unpack("<BBH", self._take(4))
        if device != _CPU or not 0 <= rank <= _MAX_RANK:
            raise _Broken(f"an array of rank {rank} on device {device}")
        if code > 2 or bits not in (1, 8, 16, 32, 64) or lanes != 1:
            raise _Broken(f"an array of unknown type {code}, {bits} bits, {lanes} lanes")
        shape = struct.unpack(f"<{rank}q", self._take(8 * rank))
        size = self._u64()
        begin = self._at
        if min(shape, default=0) < 0 or size != math.prod(shape) * bits // 8:
            raise _Broken(f"an array of shape {shape} with {size} bytes")
        self._skip(size)
        return code, bits, begin, math.prod(shape)

    def _magic(self, magic: int, what: str) -> None:
        if self._u64() != magic:
            raise _Broken(f"no {what} at byte {self._at - 8}")

    def _count(self, what: str) -> int:
        count = self._u64()
        if count > _MAX_ITEMS:
            raise _Broken(f"{count} {what}")
        return count

    def _name(self) -> None:
        length = self._u64()
        if length > _MAX_NAME:
            raise _Broken(f"a name of {length} bytes")
        try:
            self._take(length).decode()
        except UnicodeDecodeError:
            raise _Broken(f"a name before byte {self._at} is not text") from None

    def _u64(self) -> int:
        value: int = struct.unpack("<Q", self._take(8))[0]
        return value

    def _take(self, size: int) -> bytes:
        at = self._at
        self._skip(size)
        return self._content[at : at + size]

    def _skip(self, size: int) -> None:
        if size > self._size - self._at:
            raise _Broken(f"it ends early, at byte {self._size}")
        self._at += size


def _within(values: NDArray[np.int64], limit: int) -> bool:
    return values.size == 0 or bool(values.min() >= 0 and values.max() < limit)
