"""Files that are whole or not there: atomic writes, checksums, locks, strict JSON."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock

from brepfind.errors import InputError


def unicode_text(text: str) -> str:
    """``text`` with what is not valid Unicode (bytes of a file name) as backslash escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A path to write to, renamed to ``path`` when the block ends well.

    The content is synced to the disk before the rename and the folder after it, so that a crash
    or a full disk leaves either the old file or the new one. If the block raises, the old file
    stays and the partial one is removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    aside = Path(name)
    try:
        yield aside
        with aside.open("rb+") as file:
            os.fsync(file.fileno())
        aside.chmod(0o666 & ~_umask())  # mkstemp makes files that only their owner can read
        aside.replace(path)
        _sync_folder(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` atomically."""
    with atomic_path(path) as aside:
        aside.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write ``content`` to ``path`` atomically as UTF-8."""
    write_bytes(path, content.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON with sorted keys; the same value gives the same bytes.

    Raises:
        ValueError: if a number is not finite. NaN in a metrics file is not JSON, and DVC would
            accept it and go on.
    """
    write_text(path, json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        InputError: if it is missing or not JSON; the message names the file.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise InputError(f"{path}: is not valid JSON ({error})") from error


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(value: Any) -> str:
    """The SHA-256 of a value's canonical JSON, in hexadecimal."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


@contextmanager
def locked(path: Path, timeout_s: float = 600.0) -> Iterator[None]:
    """Hold a lock file, shared by processes of one machine.

    Raises:
        InputError: if another process still holds it after ``timeout_s`` seconds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path, timeout=timeout_s)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise InputError(
            f"{path}: still held by another process after {timeout_s:g} s; "
            "wait for it, or end it if it hangs"
        ) from None
    try:
        yield
    finally:
        lock.release()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
