"""What ``brepfind doctor`` and ``brepfind sanitize`` do; the command line only parses.

Both work with the bare install: no OCP, dgl or mlflow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from brepfind import files
from brepfind.checkpoints import authors
from brepfind.checkpoints.compare import Architecture, Table, begins
from brepfind.checkpoints.doctor import Diagnosis, diagnose
from brepfind.checkpoints.read import Checkpoint, read_checkpoint
from brepfind.checkpoints.render import render
from brepfind.checkpoints.sanitize import SanitizeReport, examine, own_table, sanitize
from brepfind.checkpoints.weights import save_weights
from brepfind.errors import CheckFailed, CheckpointError
from brepfind.log import get_logger, progress

_log = get_logger(__name__)
_PROGRESS_BYTES = 256_000_000  # smaller files are done before a bar could be read


def like(
    name: str, known: Mapping[str, Callable[[], Architecture | Table]]
) -> Architecture | Table:
    """The architecture behind ``--like``: a known name, or another checkpoint to compare with.

    Args:
        name: what was asked for.
        known: named architectures; each is loaded only when it is asked for.

    Raises:
        CheckpointError: it is neither, or the other checkpoint cannot be read.
    """
    if name in known:
        return known[name]()
    path = Path(name)
    if not path.exists():
        names = ", ".join(sorted(known))
        raise CheckpointError(
            f"--like {name}: is neither a known architecture ({names}) nor a file"
        )
    return own_table(read_checkpoint(path).tensors)


def run_doctor(
    checkpoints: Sequence[Path],
    *,
    like: Architecture | Table | None = None,
    like_name: str = "",
    drop: Collection[str] = (),
    prefix: str | None = None,
    as_json: bool = False,
    everything: bool = False,
    console: Console | None = None,
) -> int:
    """Examine checkpoints and print what was found on stdout.

    Returns:
        The exit code: 0 all healthy, 1 one is sick, 2 one is not readable.
    """
    out = console or Console()
    diagnoses = []
    for path in checkpoints:
        try:
            diagnosis = _diagnose(path, like, like_name, drop, prefix)
        except Exception as bug:
            # One file must not hide the others, nor a bug look like the verdict "sick".
            _log.debug("%s", path, exc_info=True)
            said = (
                f"{path}: the doctor failed on it ({type(bug).__name__}: {bug}); please report it"
            )
            diagnosis = Diagnosis(path=path, error=said, counts={})
        diagnoses.append(diagnosis)
        if not as_json:
            render(diagnosis, out, everything=everything)
    code = max((diagnosis.exit_code for diagnosis in diagnoses), default=2)
    if as_json:
        whole = {
            "exit_code": code,
            "checkpoints": [diagnosis.as_json() for diagnosis in diagnoses],
        }
        out.file.write(json.dumps(whole, indent=2, allow_nan=False) + "\n")
    return code


def _diagnose(
    path: Path,
    like: Architecture | Table | None,
    like_name: str,
    drop: Collection[str],
    prefix: str | None,
) -> Diagnosis:
    size = _size(path)
    if size < _PROGRESS_BYTES:
        return diagnose(path, like, like_name=like_name, drop=drop, prefix=prefix)
    with progress(f"{path.name} (MB)", total=size // 1_000_000) as bar:
        done = 0

        def advance(nbytes: int) -> None:
            nonlocal done
            before, done = done // 1_000_000, done + nbytes
            bar.advance(done // 1_000_000 - before)

        return diagnose(path, like, like_name=like_name, drop=drop, prefix=prefix, advance=advance)


def _size(path: Path) -> int:
    """Bytes that will be looked at, roughly: of a set of shards, all that lies in its folder."""
    if path.is_file() and not path.name.endswith(".index.json"):
        return path.stat().st_size
    folder = path if path.is_dir() else path.parent
    return sum(file.stat().st_size for file in folder.glob("*") if file.is_file())


def run_sanitize(
    source: Path,
    target: Path,
    *,
    like: Architecture | Table | None = None,
    drop: Collection[str] = (),
    prefix: str | None = None,
    min_coverage: float = 1.0,
    restore: bool = False,
) -> int:
    """Write clean weights, or with ``restore`` the authors' layout again.

    Beside clean weights stand ``.sha256`` and a report that accounts for every key
    (``.report.json``), which is written when the check fails, too.

    Returns:
        0.

    Raises:
        CheckFailed: the checkpoint cannot be repaired honestly; nothing but the report was written.
        CheckpointError: the source cannot be read, or the target cannot be written or is part of
            the source.
    """
    if source.resolve() == target.resolve():
        raise CheckpointError(f"{target}: is the source itself; name another file to write")
    if restore:
        count = authors.restore(source, target)
        _log.info("%s: %d tensors in the authors' layout", target, count)
        return 0
    if target.suffix != ".safetensors":
        raise CheckpointError(f"{target}: clean weights are safetensors; name it so")
    checkpoint = read_checkpoint(source)
    if target.resolve() in [file.resolve() for file in checkpoint.container.files]:
        raise CheckpointError(f"{target}: is part of the source; name another file to write")
    for start in drop:
        if not any(begins(name, [start]) for name in checkpoint.tensors):
            _log.warning("--drop %s: no tensor's name begins so; nothing was dropped for it", start)
    arguments: dict[str, Any] = {"min_coverage": min_coverage, "drop": drop, "prefix": prefix}
    report_path = target.with_suffix(".report.json")
    report = examine(checkpoint, like, **arguments)
    files.write_json(report_path, report.as_json())
    try:
        clean = sanitize(checkpoint, like, **arguments)
    except CheckFailed as failure:
        raise CheckFailed(failure.summary, failure.findings, evidence=report_path) from None
    save_weights(target, clean.tensors, provenance(checkpoint, report))
    _log.info(
        "%s: %d tensors, coverage %.1f%%, account in %s",
        target,
        len(clean.tensors),
        100 * report.coverage,
        report_path,
    )
    return 0


def provenance(checkpoint: Checkpoint, report: SanitizeReport) -> dict[str, str]:
    """What :func:`brepfind.checkpoints.authors.restore` needs to know, as metadata."""
    notes = {
        "prefix": report.prefix,
        "split": json.dumps(report.split),
        "tied": json.dumps(report.tied),
    }
    if "hyper_parameters" in checkpoint.other:
        hyper = authors.noted(checkpoint.other["hyper_parameters"])
        notes["hyper_parameters"] = json.dumps(hyper, allow_nan=False)
    return notes
