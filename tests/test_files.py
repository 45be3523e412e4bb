import subprocess
import sys
import threading
from pathlib import Path

import pytest

from brepfind import files
from brepfind.errors import InputError


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    files.write_text(path, "old")
    with pytest.raises(RuntimeError, match="in the middle"), files.atomic_path(path) as aside:
        aside.write_text("half")
        raise RuntimeError("in the middle")
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["a.txt"]


def test_a_write_that_the_system_cuts_short_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    files.write_bytes(path, b"old")
    # A limit on the size of a file fails a write half way, as a full disk does.
    program = """
import resource, sys
from pathlib import Path
from brepfind import files
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    files.write_bytes(Path(sys.argv[1]), bytes(5000))
except OSError as error:
    sys.exit(f"refused: {error.strerror}")
"""
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True)
    assert done.stderr.strip() == "refused: File too large"
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["a.bin"]


def test_writing_makes_folders_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "a.bin"
    files.write_bytes(path, b"1")
    files.write_bytes(path, b"2")
    assert path.read_bytes() == b"2"


def test_a_file_is_as_readable_as_any_other(tmp_path: Path) -> None:
    plain, ours = tmp_path / "plain", tmp_path / "ours"
    plain.touch()
    files.write_text(ours, "")
    assert plain.stat().st_mode == ours.stat().st_mode


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [-float("inf")]}])
def test_json_refuses_what_is_not_finite(tmp_path: Path, value: object) -> None:
    path = tmp_path / "m.json"
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_json(path, value)
    assert not path.exists()


def test_equal_values_give_equal_bytes(tmp_path: Path) -> None:
    files.write_json(tmp_path / "a", {"x": 1, "y": 2.5})
    files.write_json(tmp_path / "b", {"y": 2.5, "x": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert files.read_json(tmp_path / "a") == {"x": 1, "y": 2.5}
    assert files.digest({"x": 1, "y": 2.5}) == files.digest({"y": 2.5, "x": 1})
    assert files.digest({"x": 1}) != files.digest({"x": 2})


def test_unreadable_json_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json: cannot be read"):
        files.read_json(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InputError, match=r"bad\.json: is not valid JSON"):
        files.read_json(tmp_path / "bad.json")


def test_sha256_is_the_standard_one(tmp_path: Path) -> None:
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert files.sha256(path) == expected


def test_a_lock_that_is_held_is_named_after_the_timeout(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with files.locked(path):
            held.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert held.wait(10)
        with pytest.raises(InputError, match=r"x\.lock: still held"), files.locked(path, 0.1):
            pass
    finally:
        done.set()
        holder.join()
    with files.locked(path, 1):
        pass
