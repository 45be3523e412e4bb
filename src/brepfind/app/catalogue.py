"""What the page asks for, as plain data and files; no HTTP in here."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brepfind.app.rows import hit_row, part_row
from brepfind.app.views import Views
from brepfind.errors import BrepfindError, InputError
from brepfind.files import sha256
from brepfind.log import get_logger
from brepfind.retrieval.index import read_index
from brepfind.retrieval.model import Trained, load_trained
from brepfind.retrieval.parts import Filters, step_file
from brepfind.retrieval.search import Hit, Searcher
from brepfind.retrieval.shape import Limits

log = get_logger(__name__)

_DIGEST = re.compile(r"[0-9a-f]{64}")


class Catalogue:
    """The parts of an index, looked for by a model.

    An index that is written anew (``brepfind index add``) is taken up with the next question.

    Args:
        model: the weights file. folder: of the index. views: folder where pictures are kept.
        workers: processes that draw pictures. limits: of each STEP file that is read.

    Raises:
        CheckpointError, VersionMismatch, InputError: if model or index cannot be used.
    """

    def __init__(
        self, model: Path, folder: Path, views: Path, *, workers: int = 1, limits: Limits
    ) -> None:
        self.limits = limits
        self._folder = folder
        self._trained: Trained = load_trained(model)
        self._views = Views(views, workers, limits)
        self._lock = threading.Lock()
        self._state = _state(folder)
        self._searcher = self._read()

    def close(self) -> None:
        """Let nobody wait any longer."""
        self._views.close()

    def about(self) -> dict[str, Any]:
        """What there is to be searched."""
        searcher = self._current()
        return {
            "parts": len(searcher.index),
            "model": searcher.index.model[:12],
            "exact": searcher.index.exact,
            "recall_at_10": searcher.index.recall,
            "max_upload_mb": self.limits.max_mb,
        }

    def search(self, text: str, k: int, filters: Filters) -> list[dict[str, Any]]:
        """Rows of the parts nearest to a sentence; see :mod:`brepfind.app.rows`.

        Raises:
            InputError: if the sentence says nothing.
        """
        return self._rows(self._current().search(text, k, filters))

    def more_like(self, model_id: str, k: int, filters: Filters) -> list[dict[str, Any]]:
        """Rows of the parts nearest to one of them.

        Raises:
            InputError: if there is no such part.
        """
        return self._rows(self._current().more_like(model_id, k, filters))

    def like_file(self, path: Path, k: int, filters: Filters) -> list[dict[str, Any]]:
        """Rows of the parts nearest to that in a STEP file.

        Raises:
            InputError: if it cannot be read within the limits.
        """
        found = self._current().like_file(path, k, filters, self.limits, "the file")
        return self._rows(found)

    def part(self, model_id: str) -> dict[str, Any]:
        """The row of a part.

        Raises:
            InputError: if there is no such part.
        """
        return part_row(model_id, self._current().index.facts(model_id), self._folder)

    def picture(self, model_id: str) -> Path:
        """A PNG of a part.

        Raises:
            InputError: if there is no such part, or its STEP file is not the one that was indexed.
        """
        return self._views.picture(*self._source(model_id))

    def model(self, model_id: str) -> Path:
        """A GLB of a part.

        Raises:
            InputError: as for :meth:`picture`, or if the part cannot be meshed.
        """
        return self._views.model(*self._source(model_id))

    def step(self, model_id: str) -> Path:
        """The STEP file of a part.

        Raises:
            InputError: as for :meth:`picture`.
        """
        return self._source(model_id)[1]

    def _source(self, model_id: str) -> tuple[str, Path]:
        """The SHA-256 and the STEP file of a part.

        Only a file whose bytes are those that were indexed is ever opened to be shown, whatever
        an index from elsewhere names.
        """
        facts = self._current().index.facts(model_id)
        key, file = str(facts.get("sha256", "")), step_file(self._folder, facts)
        if file is None or not _DIGEST.fullmatch(key):
            raise InputError("the index does not know the STEP file of this part")
        try:
            found = sha256(file) if file.is_file() else None
        except OSError:
            found = None
        if found is None:
            raise InputError("the STEP file of this part is gone")
        if found != key:
            raise InputError("the STEP file of this part has changed since it was indexed")
        return key, file

    def _rows(self, hits: Sequence[Hit]) -> list[dict[str, Any]]:
        return [hit_row(hit, self._folder) for hit in hits]

    def _read(self) -> Searcher:
        index = read_index(self._folder, self._trained.digest)
        return Searcher(self._trained.model, index, self._trained.digest, self._folder)

    def _current(self) -> Searcher:
        with self._lock:
            state = _state(self._folder)
            if state != self._state:
                self._state = state
                try:
                    self._searcher = self._read()
                    log.info("the index was written anew: %d parts", len(self._searcher.index))
                except BrepfindError as error:  # what was read before still answers
                    log.warning("the index changed and cannot be used: %s", error)
            return self._searcher


def _state(folder: Path) -> tuple[int, int] | None:
    try:
        stat = (folder / "index.json").stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino
