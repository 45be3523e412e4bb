"""The same state has the same fingerprint, and any other has another."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from brepfind.files import sha256
from brepfind.pipeline.fingerprint import (
    effective,
    file_digests,
    git_tags,
    state_files,
    state_fingerprint,
)

SAMPLE: dict[str, Any] = {
    "prepare": {"source": "sample", "seed": 1},
    "sanitize": {"checkpoint": None},
    "train": {"lr": 1e-5, "freeze": ["a"], "loss": {"local": True}},
    "runtime": {"workers": 0},
}


def changed(section: str, key: str, value: Any) -> dict[str, Any]:
    return {**SAMPLE, section: {**SAMPLE[section], key: value}}


@pytest.fixture
def fingerprint(tmp_path: Path) -> Any:
    return lambda params: state_fingerprint(
        params, state_files(params, tmp_path, tmp_path / ".brepfind")
    )


def test_what_cannot_change_a_result_does_not_change_it(fingerprint: Any) -> None:
    assert fingerprint(changed("runtime", "workers", 8)) == fingerprint(SAMPLE)
    # DVC writes 1.0 for 1 as it likes.
    assert fingerprint(changed("prepare", "seed", 1.0)) == fingerprint(SAMPLE)
    assert "runtime" not in effective(SAMPLE)
    here = {**SAMPLE, "extract": {"grid": 10, "cluster": "local"}}
    there = {**SAMPLE, "extract": {"grid": 10, "cluster": "tcp://host:8786"}}
    assert fingerprint(here) == fingerprint(there)
    assert here["extract"]["cluster"] == "local"


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("prepare", "seed", 2),
        ("train", "lr", 2e-5),
        ("train", "freeze", []),
        ("train", "loss", {"local": False}),
        ("train", "lr", float("nan")),  # refused by the stage; the record of it needs a name
    ],
)
def test_any_setting_changes_it(section: str, key: str, value: Any, fingerprint: Any) -> None:
    assert fingerprint(changed(section, key, value)) != fingerprint(SAMPLE)


def test_true_is_not_one(fingerprint: Any) -> None:
    assert fingerprint(changed("train", "loss", {"local": 1})) != fingerprint(SAMPLE)


def test_the_files_of_a_text_tower_are_a_part_of_it(tmp_path: Path, fingerprint: Any) -> None:
    tower = tmp_path / "data/pretrained/tower"
    tower.mkdir(parents=True)
    (tower / "model.safetensors").write_bytes(b"first")
    params = changed("train", "text_tower", "data/pretrained/tower")
    before = fingerprint(params)
    (tower / "model.safetensors").write_bytes(b"other weights")
    assert fingerprint(params) != before
    assert fingerprint(changed("train", "text_tower", "minilm")) != before


def test_the_users_files_and_the_checkpoint_are_a_part_of_it(
    tmp_path: Path, fingerprint: Any
) -> None:
    step = tmp_path / "raw" / "step"
    step.mkdir(parents=True)
    (step / "a.step").write_text("one")
    captions = tmp_path / "raw" / "captions.csv"
    captions.write_text("model_id,caption\n")
    params = {
        **SAMPLE,
        "prepare": {"source": "folder", "step_dir": "raw/step", "captions": "raw/captions.csv"},
        "sanitize": {"checkpoint": "weights.ckpt"},
    }
    seen = {fingerprint(params)}  # the checkpoint is missing: for the stage to say
    (tmp_path / "weights.ckpt").write_bytes(b"w")
    seen.add(fingerprint(params))
    (step / "a.step").write_text("two!")
    seen.add(fingerprint(params))
    captions.write_text("model_id,caption\na,word\n")
    seen.add(fingerprint(params))
    (step / "b.step").write_text("new")
    seen.add(fingerprint(params))
    assert len(seen) == 5


def test_a_file_is_read_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, home = tmp_path / "a.step", tmp_path / ".brepfind"
    file.write_text("one")
    read: list[Path] = []

    def counted(path: Path) -> str:
        read.append(path)
        return sha256(path)

    monkeypatch.setattr("brepfind.pipeline.fingerprint.sha256", counted)
    first = file_digests([file], tmp_path, home)
    assert file_digests([file], tmp_path, home) == first == {"a.step": sha256(file)}
    assert len(read) == 1
    file.write_text("longer")
    assert file_digests([file], tmp_path, home) == {"a.step": sha256(file)}
    assert len(read) == 2
    (home / "digests.json").write_text("cut by a cra")
    assert file_digests([file], tmp_path, home) == {"a.step": sha256(file)}


def test_the_commit_is_a_tag_and_so_is_an_uncommitted_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DVC_EXP_NAME", raising=False)
    assert git_tags(tmp_path) == {}
    (tmp_path / "file").write_text("x")
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    for command in (["init", "-q"], ["add", "file"], [*who, "commit", "-qm", "m"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    tags = git_tags(tmp_path)
    assert len(tags["mlflow.source.git.commit"]) == 40
    assert tags["brepfind.git_dirty"] == "false"
    (tmp_path / "file").write_text("y")
    monkeypatch.setenv("DVC_EXP_NAME", "upper-pats")
    tags = git_tags(tmp_path)
    assert tags["brepfind.git_dirty"] == "true"
    assert tags["brepfind.experiment_name"] == "upper-pats"
