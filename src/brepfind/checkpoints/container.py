"""Open a checkpoint file safely: tell its format, check its bytes, load plain data, run nothing.

Formats: torch zip, torch legacy, safetensors, and sets of shards with an index. Zip and
safetensors files are memory-mapped, so that opening a large one costs nothing.
"""

from __future__ import annotations

import json
import pickle
import re
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from brepfind.checkpoints.allowed import safe_globals
from brepfind.checkpoints.checksums import Piece, locate, payload_start
from brepfind.checkpoints.layout import storages
from brepfind.errors import CheckpointError
from brepfind.log import printable

_LEGACY_MAGIC = (0x1950A86A20F9469CFC6C).to_bytes(10, "little")
_BOMB_RATIO = 100  # torch never compresses; more than this is an attack, not a checkpoint
_INDEXES = (
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
    "diffusion_pytorch_model.safetensors.index.json",
)
_NOT_OURS = (
    (b"GGUF", "is a GGUF file, which this does not read"),
    (b"\x89HDF", "is an HDF5 (Keras) file, which this does not read"),
    (
        b"version https://git-lfs",
        "is a Git LFS pointer, not the file; fetch it with `git lfs pull`",
    ),
    (b"<!DOCTYPE", "is a web page, not a checkpoint; the download was answered with a page"),
    (b"<html", "is a web page, not a checkpoint; the download was answered with a page"),
    (b"\x1f\x8b", "is compressed with gzip; unpack it first"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What was opened.

    Attributes:
        format: such as ``torch zip``.
        files: every file that was read.
        tree: plain Python data with tensors in it, memory-mapped where the format allows.
        pieces: the parts of the files that carry a checksum of their own.
        located: the pieces by the address of the storage that is mapped to them.
        checksums: what vouches for the bytes, for people.
        metadata: the text beside the tensors of a safetensors file.
        absent: keys that an index promises and no shard holds.
        unlisted: keys that a shard holds and the index does not name.
        misplaced: keys that stand in another shard than the index says.
    """

    format: str
    files: tuple[Path, ...]
    tree: Any
    pieces: tuple[Piece, ...] = ()
    located: Mapping[int, Piece] = field(default_factory=dict)
    checksums: str = "none in this format"
    metadata: dict[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    misplaced: tuple[str, ...] = ()


def open_container(path: Path) -> Container:
    """Open ``path``, whatever its format. Payload checksums are left to ``checksums.verify``.

    Raises:
        CheckpointError: missing, cut short, of an unknown format, or holding a class that is not
            allowed; the message says which and what to do.
    """
    try:
        if path.is_dir():
            return _open_folder(path)
        if not stat.S_ISREG(path.stat().st_mode):
            raise CheckpointError(f"{path}: is not a regular file; save what it gives to one first")
        if path.name.endswith(".index.json"):
            return _open_shards(path)
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
    if not head:
        raise CheckpointError(f"{path}: is empty (0 bytes); the write never finished")
    for magic, complaint in _NOT_OURS:
        if head.startswith(magic):
            raise CheckpointError(f"{path}: {complaint}")
    if head.startswith(b"PK"):
        return _open_zip(path)
    if head[:1] == b"\x80" and _LEGACY_MAGIC in head:
        return _open_legacy(path)
    if head[8:9] == b"{":
        return _open_safetensors(path)
    if head[:1] == b"\x80":
        raise CheckpointError(
            f"{path}: is a bare pickle, or a torch file cut after its first bytes; "
            "save it again with torch.save or as safetensors"
        )
    if tarfile.is_tarfile(path):
        raise CheckpointError(
            f"{path}: is in torch's old tar format, which cannot be read safely; load it in the "
            "program that made it and save the state dict as safetensors"
        )
    raise CheckpointError(
        f"{path}: is neither a torch file nor safetensors (it begins with {head[:8]!r}); "
        "if it was one, its first bytes are damaged"
    )


def _open_safetensors(path: Path) -> Container:
    try:
        with safe_open(path, framework="pt") as file:
            tree = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            metadata = dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise CheckpointError(
            f"{path}: not a whole safetensors file ({error}); it is cut short or damaged, "
            "take another copy"
        ) from error
    return Container(format="safetensors", files=(path,), tree=tree, metadata=metadata)


def _open_zip(path: Path) -> Container:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            pieces = tuple(
                Piece(path, entry.filename, payload_start(path, entry), entry.file_size, entry.CRC)
                for entry in entries
                if entry.compress_type == zipfile.ZIP_STORED
            )
            _check_entries(path, archive, entries)
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError) as error:
        raise CheckpointError(
            f"{path}: not a whole torch file ({error}); it is cut short or damaged, "
            "take another copy"
        ) from error
    stored = len(pieces) == len(entries)
    if not any(piece.crc for piece in pieces) and stored:
        # torch.serialization.set_crc32_options(False) writes zeros; there is nothing to check.
        pieces, checksums = (), "none (the file was saved without them)"
    else:
        checksums = "CRC-32 of every entry"
    # Mapping a compressed entry would read its compressed bytes as numbers.
    tree = _load(path, mapped=stored)
    return Container(
        format="torch zip",
        files=(path,),
        tree=tree,
        pieces=pieces,
        located=locate(_storages(path, tree), pieces) if stored else {},
        checksums=checksums,
    )


def _storages(path: Path, tree: Any) -> dict[int, int]:
    try:
        return storages(tree)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None


def _check_entries(path: Path, archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo]) -> None:
    names = [entry.filename for entry in entries]
    if len(set(names)) != len(names):
        raise CheckpointError(f"{path}: two entries of the zip have one name; it was tampered with")
    if any(PurePosixPath(name).name == "constants.pkl" for name in names):
        raise CheckpointError(
            f"{path}: is a TorchScript program, not a checkpoint; load it with torch.jit.load "
            "where it was made and save its state_dict()"
        )
    if not any(PurePosixPath(name).name == "data.pkl" for name in names):
        kind = "NumPy archive (.npz)" if any(n.endswith(".npy") for n in names) else "zip file"
        raise CheckpointError(f"{path}: is a {kind} but not a torch checkpoint (no data.pkl in it)")
    if any(entry.flag_bits & 1 for entry in entries):
        raise CheckpointError(f"{path}: its zip entries are encrypted")
    for entry in entries:
        if entry.compress_type == zipfile.ZIP_STORED:
            continue
        if entry.file_size > _BOMB_RATIO * max(entry.compress_size, 1):
            raise CheckpointError(f"{path}: entry {entry.filename} unpacks to a suspicious size")
        with archive.open(entry) as file:  # reading to the end is what checks the CRC
            while file.read(1 << 20):
                pass


def _open_legacy(path: Path) -> Container:
    return Container(format="torch legacy", files=(path,), tree=_load(path, mapped=False))


def _load(path: Path, *, mapped: bool) -> Any:
    with warnings.catch_warnings(), torch.serialization.safe_globals(safe_globals()):
        warnings.simplefilter("ignore")  # experimental and deprecated dtypes: the scan names them
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
        except pickle.UnpicklingError as error:
            raise CheckpointError(_refusal(path, str(error))) from None
        except MemoryError as error:
            raise CheckpointError(
                f"{path}: asks for more memory than there is; it is damaged, or made to do harm"
            ) from error
        except Exception as error:  # flipped bytes lead torch's reader to errors of any kind
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise CheckpointError(
                f"{path}: not a whole torch file ({printable(reason, 200)}); it is cut short or "
                "damaged, take another copy"
            ) from error


def _refusal(path: Path, message: str) -> str:
    text = " ".join(message.split())
    names = re.search(r"(?:GLOBAL|global:?) ([\w.<>]+)(?: was not an allowed| whose module)", text)
    if names is None:
        names = re.search(r"Trying to load unsupported GLOBAL ([\w.]+)", text)
    if names is not None:
        return (
            f"{path}: holds {names.group(1)}, which would run code when loaded, so it was refused "
            "and nothing was run. If you trust the file, load it where it was made and save only "
            "tensors: torch.save(model.state_dict(), ...) or safetensors"
        )
    operand = re.search(r"Unsupported operand (\d+)", text)
    if operand is not None:
        return (
            f"{path}: its pickle uses an operation that a safe reader refuses (operand "
            f"{operand.group(1)}); save it again with torch.save's default protocol, or it is "
            "damaged"
        )
    inner = re.sub(r".*WeightsUnpickler error: ", "", text)
    inner = re.sub(r" Check the documentation of torch\.load.*", "", inner)
    return f"{path}: cannot be read safely ({inner[:300]})"


def _open_folder(folder: Path) -> Container:
    if (folder / ".metadata").exists():
        raise CheckpointError(
            f"{folder}: is a distributed checkpoint; convert it first with `python -m "
            "torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER OUT.pt`"
        )
    indexes = [folder / name for name in _INDEXES if (folder / name).exists()]
    indexes = indexes or sorted(folder.glob("*.index.json"))
    if indexes:
        return _open_shards(indexes[0])
    files = sorted(
        path
        for path in folder.iterdir()
        if path.suffix in (".safetensors", ".bin", ".pt", ".pth", ".ckpt")
    )
    numbered = [path for path in files if re.search(r"-\d{5}-of-\d{5}$", path.stem)]
    if numbered:
        raise CheckpointError(
            f"{folder}: has shards such as {numbered[0].name} and no index (*.index.json) to say "
            "what belongs to the set; fetch the index, or name the files one by one"
        )
    if len(files) == 1:
        return open_container(files[0])
    raise CheckpointError(f"{folder}: holds {len(files)} checkpoints and no index; name one")


def _open_shards(index: Path) -> Container:
    try:
        content = json.loads(index.read_text(encoding="utf-8"), object_pairs_hook=_no_key_twice)
        weight_map = {str(key): str(name) for key, name in content["weight_map"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error) if isinstance(error, _KeyTwice) else "no weight_map"
        raise CheckpointError(f"{index}: is not an index of shards ({reason})") from error
    names = sorted(set(weight_map.values()))
    outside = [name for name in names if Path(name).name != name or name in ("", ".", "..")]
    if outside:
        raise CheckpointError(f"{index}: names {outside[0]!r}, which is outside its own folder")
    indexes = [name for name in names if name.endswith(".index.json")]
    if indexes:
        raise CheckpointError(f"{index}: names {indexes[0]!r}, an index, where a shard should be")
    gone = [name for name in names if not (index.parent / name).is_file()]
    if gone:
        raise CheckpointError(f"{index}: {len(gone)} of {len(names)} shards missing: {gone[0]}")
    shards = [open_container(index.parent / name) for name in names]
    tree: dict[str, Any] = {}
    misplaced = []
    for name, shard in zip(names, shards, strict=True):
        if not isinstance(shard.tree, dict):
            raise CheckpointError(f"{index.parent / name}: is not a shard (no mapping of tensors)")
        twice = tree.keys() & shard.tree.keys()
        if twice:
            raise CheckpointError(f"{index}: {min(twice)!r} stands in two shards")
        tree.update(shard.tree)
        misplaced += [key for key in shard.tree if weight_map.get(str(key), name) != name]
    return Container(
        format=f"{len(shards)} shards ({shards[0].format})" if shards else "shards",
        files=tuple(path for shard in shards for path in shard.files),
        tree=tree,
        pieces=tuple(piece for shard in shards for piece in shard.pieces),
        located={address: piece for shard in shards for address, piece in shard.located.items()},
        checksums=shards[0].checksums if shards else "none",
        absent=tuple(sorted(set(weight_map) - tree.keys())),
        unlisted=tuple(sorted(tree.keys() - set(weight_map))),
        misplaced=tuple(sorted(misplaced)),
    )


class _KeyTwice(ValueError):
    """A JSON object with one key twice: readers differ in which of the two they take."""


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _KeyTwice(f"{twice!r} stands in it twice")
    return content
