"""Many STEP files into a graph store: what the extract stage and ``brepfind extract`` both do."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from brepfind.cad.extract import ExtractConfig
from brepfind.cad.pool import Outcome, extract_many
from brepfind.errors import InputError, RejectedPart
from brepfind.files import sha256
from brepfind.graphs.store import GraphStoreWriter
from brepfind.log import progress

_ENDINGS = {".step", ".stp"}


def extract_store(
    files: Sequence[tuple[str, str, Path]], folder: Path, config: ExtractConfig, workers: int
) -> tuple[int, int]:
    """Extract STEP files into a graph store.

    Args:
        files: id, the path to keep in the manifest, and the file itself.
        folder: of the store. Under ``multi_solid: split`` the solids of one file are
            ``id#0``, ``id#1`` and so on.
        config: the ``extract`` section.
        workers: processes.

    Returns:
        How many graphs were written, and how many files rejected.
    """
    of = {model_id: (path, file) for model_id, path, file in files}
    with (
        GraphStoreWriter(folder, config.shards) as writer,
        progress("extracting", len(files)) as bar,
        closing(
            extract_many([(model_id, file) for model_id, _, file in files], config, workers)
        ) as outcomes,
    ):
        for outcome in outcomes:
            _take(writer, outcome, *of[outcome.key])
            bar.advance()
        return writer.counts


def _take(writer: GraphStoreWriter, outcome: Outcome, path: str, file: Path) -> None:
    try:
        if outcome.reject is not None:
            raise outcome.reject
        checksum = sha256(file)
        several = len(outcome.parts) > 1
        for number, part in enumerate(outcome.parts):
            writer.add(f"{outcome.key}#{number}" if several else outcome.key, path, checksum, part)
    except RejectedPart as reject:
        writer.reject(path, reject.reason, reject.message)


def find_step_files(paths: Sequence[Path]) -> list[tuple[str, str, Path]]:
    """STEP files below folders, and files named one by one, for :func:`extract_store`.

    Raises:
        InputError: if a path is not there, holds no STEP file, or two files would share an id.
    """
    found: dict[str, Path] = {}
    for path in paths:
        if path.is_dir():
            inside = [f for f in sorted(path.rglob("*")) if f.suffix.lower() in _ENDINGS]
            if not inside:
                raise InputError(f"{path}: holds no file that ends in .step or .stp")
            named = [(file.relative_to(path).as_posix(), file) for file in inside]
        elif path.exists():
            named = [(path.name, path)]
        else:
            raise InputError(f"{path}: there is no such file or folder")
        for model_id, file in named:
            if found.setdefault(model_id, file) != file:
                raise InputError(
                    f"{file} and {found[model_id]} would both have the id {model_id!r}; extract "
                    "the folder above them instead"
                )
    return [(model_id, model_id, file) for model_id, file in found.items()]
