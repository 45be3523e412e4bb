"""The command line as a person uses it: real processes, real files."""

import json
import math
import os
import pty
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from brepfind.cli import app
from brepfind.log import printable

FIXTURES = Path(__file__).parent / "fixtures"
ZOO = FIXTURES / "cad" / "zoo"
AUTHORS = FIXTURES / "models" / "brepformer_small.ckpt"
COMMANDS = ["search", "app", "index", "doctor", "sanitize", "encode", "inspect", "extract", "embed",
            "vitals", "evaluate", "join", "rollback", "replay", "corpus"]  # fmt: skip


def brepfind(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "brepfind.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "120"},
        timeout=120,
    )


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_help_lists_the_commands_and_loads_nothing_heavy() -> None:
    done = brepfind("--help")
    assert done.returncode == 0
    for command in ("doctor", "sanitize", "inspect", "extract", "search", "replay"):
        assert f" {command} " in done.stdout
    heavy = {"torch", "numpy", "pandas", "OCP", "dgl", "mlflow", "transformers"}
    assert not heavy & modules_after("import brepfind.cli")


def test_the_doctor_needs_neither_open_cascade_nor_dgl_nor_mlflow() -> None:
    loaded = modules_after("import brepfind.cli, brepfind.checkpoints.commands")
    assert "torch" in loaded
    assert not {"OCP", "dgl", "mlflow", "pandas", "transformers"} & loaded


def test_the_doctor_knows_the_architecture_by_name() -> None:
    done = brepfind("doctor", AUTHORS, "--like", "brepformer")
    assert done.returncode == 0
    # The authors' complex RoPE tables are what NCCL cannot carry.
    assert "look  brep_encoder.layers.0.freqs_cis: complex64" in done.stdout
    (diagnosis,) = json.loads(brepfind("doctor", AUTHORS, "--json").stdout)["checkpoints"]
    assert diagnosis["exit_code"] == 0


def test_sanitize_then_doctor_is_healthy(tmp_path: Path) -> None:
    clean = tmp_path / "clean.safetensors"
    assert brepfind("sanitize", AUTHORS, clean, "--like", "brepformer").returncode == 0
    done = brepfind("doctor", clean, "--like", "brepformer")
    assert done.returncode == 0, done.stdout


def test_inspect_tells_what_is_in_a_file() -> None:
    done = brepfind("inspect", ZOO / "ok_box.step", "--json", "--faces")
    facts = json.loads(done.stdout)
    assert facts["faces_by_type"] == {"plane": 6}
    assert facts["edges"] == 12
    assert sorted(facts["box_mm"]) == pytest.approx([10, 20, 30])
    assert facts["volume_mm3"] == pytest.approx(6000)
    assert sorted(face["area_mm2"] for face in facts["faces"]) == pytest.approx(
        [200, 200, 300, 300, 600, 600]
    )
    assert "6 plane" in brepfind("inspect", ZOO / "ok_box.step").stdout


def test_a_bad_file_ends_in_one_line_that_names_it() -> None:
    done = brepfind("inspect", ZOO / "lfs_pointer.step")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "lfs_pointer.step: unreadable" in done.stderr
    assert "git lfs pull" in done.stderr
    assert "Traceback" in brepfind("--traceback", "inspect", ZOO / "lfs_pointer.step").stderr


def test_a_name_cannot_reach_the_terminal_raw(tmp_path: Path) -> None:
    hostile = tmp_path / "a\x1b[31m[bold]red\u202estep.step"
    shutil.copy(ZOO / "ok_box.step", hostile)
    done = brepfind("inspect", hostile)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert "[bold]" in done.stdout


def test_extract_keeps_every_file_in_the_account(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    (parts / "sub").mkdir(parents=True)
    shutil.copy(ZOO / "ok_box.step", parts / "box.step")
    shutil.copy(ZOO / "sphere.step", parts / "sub" / "box.step")
    shutil.copy(ZOO / "two_solids_apart.step", parts / "two.STEP")
    shutil.copy(ZOO / "html_404.step", parts / "page.step")
    out = tmp_path / "out"
    done = brepfind("extract", parts, "-o", out, "--multi-solid", "split", "--no-cache")
    assert done.returncode == 0, done.stderr
    assert "4 graphs" in done.stdout
    manifest = pd.read_parquet(tmp_path / "out" / "manifest.parquet")
    assert set(manifest["model_id"]) == {"box.step", "sub/box.step", "two.STEP#0", "two.STEP#1"}
    rejects = pd.read_csv(tmp_path / "out" / "rejects.csv")
    assert rejects[["path", "reason"]].values.tolist() == [["page.step", "unreadable"]]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["extract", "nowhere", "-o", "out"], "nowhere: there is no such file or folder"),
        (["extract", ".", "-o", "out"], "holds no file that ends in .step or .stp"),
        (["extract", ".", "-o", "out", "--multi-solid", "some"], "extract.multi_solid is 'some'"),
        (["doctor", "x.pt", "--like", "alexnet"], "is neither a known architecture (brepformer)"),
        (["search", "a bolt"], "data/model/best.safetensors"),
        (["search"], "say what the part looks like, or name one with --like"),
        (["search", "a bolt", "--like", "x.step"], "one of the two"),
        (["search", "a bolt", "--min-size", "9", "--max-size", "3"], "no part is between them"),
        (["app"], "data/model/best.safetensors: there is no model yet; run `make repro` first"),
        (["index", "show"], "data/index: holds no index; `dvc repro` makes data/index"),
        (["index", "add", "."], "data/model/best.safetensors"),
        (["index", "delete", "x"], "data/index: holds no index"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(
    arguments: list[str], complaint: str, tmp_path: Path
) -> None:
    done = brepfind(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert complaint in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("spread", "code", "said"),
    [(1.0, 0, "ok"), (0.0, 1, "NaN=False"), (math.nan, 1, "NaN=True")],
)
def test_vitals_judges_anyones_embeddings(
    spread: float, code: int, said: str, tmp_path: Path
) -> None:
    rows = 1 + spread * np.random.default_rng(0).normal(size=(200, 32))
    np.save(tmp_path / "mine.npy", rows.astype(np.float32))
    done = brepfind("vitals", tmp_path / "mine.npy")
    assert done.returncode == code
    assert said in done.stdout
    assert brepfind("vitals", tmp_path / "none.npy").returncode == 2


@pytest.mark.parametrize(
    ("text", "length", "shown"),
    [
        ("bolt Ø8 ボルト", None, "bolt Ø8 ボルト"),
        ("a\nb\tc", None, "a\\nb\\tc"),
        ("\x1b[31m", None, "\\x1b[31m"),
        ("\u202eabc", None, "\\u202eabc"),
        ("abcdefghij", 5, "ab…ij"),
        ("abcde", 5, "abcde"),
    ],
)
def test_printable(text: str, length: int | None, shown: str) -> None:
    assert printable(text, length) == shown


def in_terminal(*arguments: str | Path, **environment: str) -> tuple[int, str]:
    """The command in a terminal of its own; returns its exit code and all that it wrote."""
    here, there = pty.openpty()
    environ = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, "-m", "brepfind.cli", *map(str, arguments)],
        stdin=there,
        stdout=there,
        stderr=there,
        env={**environ, "TERM": "xterm-256color", "COLUMNS": "120", **environment},
    )
    os.close(there)
    wrote = b""
    with suppress(OSError):  # the terminal's end
        while chunk := os.read(here, 65536):
            wrote += chunk
    os.close(here)
    return process.wait(timeout=60), wrote.decode()


_NO_DETECTION = "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"  # bash is named instead
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")


@pytest.mark.parametrize("arguments", [["--help"], ["inspect", ZOO / "lfs_pointer.step"]])
def test_no_color_is_respected(arguments: list[str | Path]) -> None:
    _, coloured = in_terminal(*arguments)
    assert COLOUR.search(coloured)
    _, plain = in_terminal(*arguments, NO_COLOR="1")
    assert not COLOUR.search(plain)
    assert len(plain) > 50


def test_progress_is_shown_in_a_terminal_and_quiet_when_piped(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    shutil.copy(ZOO / "ok_box.step", parts)
    code, wrote = in_terminal("extract", parts, "-o", tmp_path / "a", "--no-cache")
    assert code == 0
    assert "extracting" in wrote
    done = brepfind("extract", parts, "-o", tmp_path / "b", "--no-cache")
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1


def test_help_has_a_line_for_each_command_in_groups_and_an_example() -> None:
    lines = brepfind("--help").stdout.splitlines()
    groups = ("Search", "Checkpoints", "STEP files", "Embeddings", "Training", "Corpora")
    heads = [line for line in lines if line.startswith("╭─ ")][1:]
    assert len(heads) == len(groups)
    assert all(f" {group} " in head for group, head in zip(groups, heads, strict=True))
    rows = [line for line in lines if line.startswith("│ ")]
    for command in COMMANDS:
        assert sum(row.startswith(f"│ {command} ") for row in rows) == 1, command
    assert len([row for row in rows if not row.startswith(("│ --", "│   "))]) == len(COMMANDS)
    assert any('brepfind search "' in line for line in lines)


@pytest.mark.parametrize("command", [*COMMANDS, "index add", "index delete", "index show"])
def test_every_command_has_a_page_of_help(command: str) -> None:
    from typer.testing import CliRunner

    done = CliRunner().invoke(app, [*command.split(), "--help"])
    assert done.exit_code == 0
    assert f"{command} " in done.output
    assert "--help" in done.output


@pytest.mark.parametrize(
    ("words", "offered"),
    [("brepfind se", {"search"}), ("brepfind index ", {"add", "delete", "show"})],
)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands(shell: str, words: str, offered: set[str]) -> None:
    """As the script of --install-completion asks."""
    asked = {
        "bash": {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))},
        "zsh": {"_TYPER_COMPLETE_ARGS": words},
        "fish": {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    done = subprocess.run(
        [Path(sys.executable).parent / "brepfind"],
        env={**os.environ, "_BREPFIND_COMPLETE": f"complete_{shell}", **asked},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert offered == set(re.findall(r"\b(search|add|delete|show|embed)\b", done.stdout))


def test_completion_is_installed(tmp_path: Path) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "brepfind", "--install-completion", "bash"],
        env={**os.environ, "HOME": str(tmp_path), _NO_DETECTION: "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "brepfind" in (tmp_path / ".bashrc").read_text()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_traceback_may_stand_anywhere(place: int) -> None:
    arguments: list[str | Path] = ["inspect", ZOO / "lfs_pointer.step"]
    arguments.insert(place, "--traceback")
    done = brepfind(*arguments)
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("brepfind: ")


def test_what_the_system_refuses_is_one_line() -> None:
    done = brepfind("extract", ZOO / "ok_box.step", "-o", "/proc/nowhere", "--no-cache")
    assert done.returncode == 2
    assert done.stderr == "brepfind: /proc/nowhere: No such file or directory\n"
