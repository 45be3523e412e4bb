"""Many files into a graph store: what the extract stage and ``brepfind extract`` both do."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from brepfind.cad.extract import ExtractConfig
from brepfind.cad.pool import extract_many
from brepfind.errors import InputError, Interrupted, RejectedPart
from brepfind.files import sha256
from brepfind.graphs.bin_parts import SUFFIX, extract_bin
from brepfind.graphs.extraction_cache import ExtractionCache, Result
from brepfind.graphs.schema import check_arrays
from brepfind.graphs.store import GraphStoreWriter
from brepfind.log import get_logger, progress

log = get_logger(__name__)

_ENDINGS = {".step", ".stp"}


@dataclass(slots=True)
class Tally:
    """What came of an extraction, and what it took.

    Attributes:
        files: given; each was accepted or rejected.
        accepted: files that are in the store.
        rejected: files that are not.
        graphs: in the store; more than ``accepted`` only under ``multi_solid: split``.
        extracted: files that were really worked on.
        cached: files whose result was known by their content.
        damaged: results in the cache that could not be used.
        seconds: of all workers together.
    """

    files: int = 0
    accepted: int = 0
    rejected: int = 0
    graphs: int = 0
    extracted: int = 0
    cached: int = 0
    damaged: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Source:
    """A file as it was when it was looked at.

    Attributes:
        model_id: of its part.
        path: to keep in the manifest.
        file: where it is.
        state: what tells that it was written to since, or None where it cannot be read.
        checksum: SHA-256 of its bytes, or "" where it cannot be read.
    """

    model_id: str
    path: str
    file: Path
    state: tuple[int, int, int] | None
    checksum: str

    @property
    def is_graph(self) -> bool:
        """Whether it is a ``.bin`` graph file."""
        return self.file.suffix.lower() == SUFFIX

    @property
    def is_kept(self) -> bool:
        """Whether the cache may know it.

        It is for STEP files alone: a graph file is read in milliseconds, and neither its kind nor
        the code that reads it is part of the cache's key.
        """
        return bool(self.checksum) and not self.is_graph


def extract_store(
    files: Sequence[tuple[str, str, Path]],
    folder: Path,
    config: ExtractConfig,
    workers: int,
    cache: ExtractionCache | None = None,
) -> Tally:
    """Extract STEP files into a graph store; ``.bin`` graph files are taken into it as they are.

    The store's bytes depend on the files and the settings only: not on the order of ``files``, on
    the number of workers, or on what the cache knew.

    Args:
        files: id, the path to keep in the manifest, and the file itself.
        folder: of the store. Under ``multi_solid: split`` the solids of one file are
            ``id#0``, ``id#1`` and so on, in the file's order.
        config: the ``extract`` section.
        workers: processes on this machine.
        cache: what is known of STEP files by their content, and where new results are kept.
    """
    assert len({model_id for model_id, _, _ in files}) == len(files), "ids must be unique"
    with (
        GraphStoreWriter(folder, config.shards) as writer,
        progress("extracting", len(files)) as bar,
    ):
        taker = _Taker(writer, cache)
        waiting: dict[str, _Source] = {}
        for entry in files:
            source = _look(*entry)
            known = cache.get(source.checksum) if cache and source.is_kept else None
            if known is None:
                waiting[source.model_id] = source
                continue
            taker.tally.cached += 1
            taker.take(source, known)
            bar.advance()
        for source in [one for one in waiting.values() if one.is_graph]:
            taker.fresh(waiting.pop(source.model_id), _from_bin(source.file, config))
            bar.advance()
        asked = [(source.model_id, source.file) for source in waiting.values()]
        try:
            with closing(extract_many(asked, config, workers)) as outcomes:
                for outcome in outcomes:
                    taker.tally.seconds += outcome.seconds
                    taker.fresh(waiting.pop(outcome.key), (outcome.parts, outcome.reject))
                    bar.advance()
        except (KeyboardInterrupt, Interrupted):
            if cache:
                log.warning(
                    "stopped with %d of %d files done; their results are kept, and the next run "
                    "goes on from there",
                    len(files) - len(waiting),
                    len(files),
                )
            raise
        tally = taker.tally
        tally.files, (tally.graphs, _) = len(files), writer.counts
        assert not waiting and tally.accepted + tally.rejected == tally.files
    if cache:
        tally.damaged = cache.damaged
        cache.trim()
    return tally


def _from_bin(file: Path, config: ExtractConfig) -> Result:
    try:
        return [extract_bin(file, config)], None
    except RejectedPart as error:
        return [], error


def _look(model_id: str, path: str, file: Path) -> _Source:
    state = _state(file)
    try:
        return _Source(model_id, path, file, state, sha256(file))
    except OSError:  # the extraction finds the same and says it
        return _Source(model_id, path, file, state, "")


def _state(file: Path) -> tuple[int, int, int] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


class _Taker:
    """Takes results into the store, whole files or none of them."""

    def __init__(self, writer: GraphStoreWriter, cache: ExtractionCache | None) -> None:
        self._writer = writer
        self._cache = cache
        self.tally = Tally()

    def fresh(self, source: _Source, result: Result) -> None:
        """A result that was just made."""
        self.tally.extracted += 1
        if _state(source.file) != source.state:
            self.take(source, ([], RejectedPart("changed", "it was written to while it was read")))
            return
        accepted = self.take(source, result)
        _, reject = result
        # A part that the store refuses is not kept: the refusal names this path.
        if self._cache and source.is_kept and accepted == (reject is None):
            self._cache.put(source.checksum, *result)

    def take(self, source: _Source, result: Result) -> bool:
        """Any result; whether it was accepted."""
        parts, reject = result
        try:
            if reject is not None:
                raise reject
            for part in parts:  # a file of several solids is in the store whole or not at all
                check_arrays(part, where=source.path)
        except RejectedPart as error:
            self.tally.rejected += 1
            self._writer.reject(source.path, error.reason, error.message)
            return False
        several = len(parts) > 1
        for number, part in enumerate(parts):
            model_id = f"{source.model_id}#{number}" if several else source.model_id
            self._writer.add(model_id, source.path, source.checksum, part)
        self.tally.accepted += 1
        return True


def find_step_files(paths: Sequence[Path]) -> list[tuple[str, str, Path]]:
    """STEP files below folders, and files named one by one, for :func:`extract_store`.

    Raises:
        InputError: if a path is not there, holds no STEP file, or two files would share an id.
    """
    found: dict[str, Path] = {}
    for path in paths:
        if path.is_dir():
            # A link that leads nowhere is listed, too: it is rejected, not passed over.
            inside = [
                file
                for file in sorted(path.rglob("*"))
                if file.suffix.lower() in _ENDINGS and not file.is_dir()
            ]
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
