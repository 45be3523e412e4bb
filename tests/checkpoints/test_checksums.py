"""Checksums: joined CRC-32 sums, where storages lie in a file, the SHA-256 beside it."""

import subprocess
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brepfind import files
from brepfind.checkpoints import checksums, crc
from brepfind.checkpoints.checksums import Piece
from brepfind.checkpoints.doctor import diagnose
from brepfind.checkpoints.read import read_checkpoint
from brepfind.errors import CheckpointError
from tests.checkpoints import zoo


@settings(deadline=None)  # a busy machine is no failure
@given(st.binary(max_size=300), st.binary(max_size=300))
def test_sums_of_two_stretches_join(head: bytes, tail: bytes) -> None:
    joined = crc.append(crc.crc32(head), crc.crc32(tail), len(tail))
    assert joined == zlib.crc32(head + tail)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_a_large_tensor_is_summed_while_it_is_scanned(tmp_path: Path, dtype: torch.dtype) -> None:
    numbers = torch.randint(0, 100, (9_000_001 * 4 // dtype.itemsize,)).to(dtype)
    path = zoo.torch_file(tmp_path, {"w": numbers})
    assert diagnose(path).verdict == "healthy"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert "it holds w" in diagnose(path).error


def test_a_piece_of_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "BLOCK", 1000)
    content = bytes(range(256)) * 40
    path = tmp_path / "file"
    path.write_bytes(content)
    good = Piece(path, "good", 17, 9000, zlib.crc32(content[17:9017]))
    bad = Piece(path, "bad", 17, 9000, 1)
    empty = Piece(path, "empty", 17, 0, 0)
    with ThreadPoolExecutor(2) as pool:
        assert list(checksums.start([good, bad, empty], pool)()) == [bad]
        beyond = Piece(path, "beyond", 10_000, 9000, 1)
        with pytest.raises(CheckpointError, match="shorter than its directory says"):
            list(checksums.start([beyond], pool)())


def test_each_storage_is_found_in_the_file(tmp_path: Path) -> None:
    path = zoo.torch_file(tmp_path, zoo.training())
    checkpoint = read_checkpoint(path)
    located = checkpoint.container.located
    content = path.read_bytes()
    for entry in checkpoint.entries:
        piece = located[entry.tensor.untyped_storage().data_ptr()]
        held = content[piece.start : piece.start + piece.length]
        assert held == bytes(entry.tensor.untyped_storage().tolist())


def test_no_place_is_claimed_where_addresses_do_not_agree(tmp_path: Path) -> None:
    pieces = [Piece(tmp_path, "a", 64, 10, 1), Piece(tmp_path, "b", 128, 20, 2)]
    page = 1 << 20
    assert set(checksums.locate({page + 64: 10, page + 128: 20}, pieces)) == {page + 64, page + 128}
    assert checksums.locate({page + 64: 10, page + 200: 20}, pieces) == {}
    assert checksums.locate({page + 64: 10, page + 128: 21}, pieces) == {}


@pytest.mark.parametrize("at", range(0, 40, 7))
def test_a_flipped_byte_anywhere_in_a_tensor_is_found(tmp_path: Path, at: int) -> None:
    path = zoo.torch_file(tmp_path, zoo.model())
    content = bytearray(path.read_bytes())
    place = content.index(zoo.model()["embed.weight"].numpy().tobytes()) + at * 12
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="does not match its CRC-32"):
        read_checkpoint(path)
    read_checkpoint(path, verify=False)  # which is what torch itself does


def test_sidecar_agrees_is_missing_or_differs(tmp_path: Path) -> None:
    path = tmp_path / "w.bin"
    path.write_bytes(b"old")
    assert not checksums.verify_sidecar(path)
    with pytest.raises(CheckpointError, match=r"has no w\.bin\.sha256 beside it"):
        checksums.verify_sidecar(path, required=True)
    digest = files.sha256(path).upper()  # as some tools write it
    checksums.sidecar(path).write_text(f"{digest} *w.bin\n")
    assert checksums.verify_sidecar(path, required=True)
    path.write_bytes(b"new")
    with pytest.raises(CheckpointError, match="do not give the SHA-256"):
        checksums.verify_sidecar(path)
    checksums.sidecar(path).write_text("soon\n")
    with pytest.raises(CheckpointError, match="holds no SHA-256"):
        checksums.verify_sidecar(path)


def test_in_a_list_of_several_files_the_line_of_this_one_counts(tmp_path: Path) -> None:
    path, other = tmp_path / "w.bin", "1" * 64
    path.write_bytes(b"this")
    beside, digest = checksums.sidecar(path), files.sha256(path)
    beside.write_text(f"{other}  a.bin\n{digest}  runs/w.bin\n")
    assert checksums.verify_sidecar(path)
    beside.write_text(f"{digest}  a.bin\n{other}  w.bin\n")
    with pytest.raises(CheckpointError, match="do not give the SHA-256"):
        checksums.verify_sidecar(path)
    beside.write_text(f"{digest}  a.bin\n{other}  b.bin\n")
    with pytest.raises(CheckpointError, match=r"lists other files and not w\.bin"):
        checksums.verify_sidecar(path)
    for alone in (f"{digest}\n", f"{digest}  before_it_was_renamed.bin\n"):
        beside.write_text(alone)
        assert checksums.verify_sidecar(path)


@pytest.mark.parametrize("name", ["größe.bin", "a b.bin", "back\\slash\n.bin", "\udcff.bin"])
def test_any_file_name_is_written_as_sha256sum_does(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"this")
    checksums.settle(path, files.sha256(path))
    assert checksums.verify_sidecar(path, required=True)
    theirs = subprocess.run(["sha256sum", name], cwd=tmp_path, capture_output=True, check=True)
    assert checksums.sidecar(path).read_bytes() == theirs.stdout


def test_a_crash_between_publish_and_rename_leaves_a_file_that_verifies(tmp_path: Path) -> None:
    path, aside = tmp_path / "w.bin", tmp_path / "aside"
    path.write_bytes(b"old")
    checksums.settle(path, files.sha256(path))
    aside.write_bytes(b"new")
    digest = checksums.publish(aside, path)
    assert checksums.verify_sidecar(path, required=True)  # still the old one
    aside.replace(path)
    assert checksums.verify_sidecar(path, required=True)  # the new one, not yet settled
    checksums.settle(path, digest)
    assert checksums.read_sidecar(path) == [digest]


def test_sharded_torch_files_are_summed_in_the_same_pass(tmp_path: Path) -> None:
    container = read_checkpoint(zoo.shards(tmp_path, suffix="bin")).container
    assert len(container.located) == len(zoo.model())
    assert {piece.path.name for piece in container.located.values()} == {
        "model-00001-of-00002.bin",
        "model-00002-of-00002.bin",
    }
    assert torch.get_num_threads() >= 1
