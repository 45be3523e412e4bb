"""Pictures and 3D views of parts: made once per content of a STEP file, by processes apart."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from pathlib import Path

from brepfind.app.gltf import VERSION, glb
from brepfind.cad.mesh import mesh_file
from brepfind.cad.pool import work_on
from brepfind.errors import InputError
from brepfind.files import write_bytes
from brepfind.log import get_logger
from brepfind.report.part_pictures import part_pictures
from brepfind.retrieval.shape import Limits

log = get_logger(__name__)

_BATCH = 24  # pictures asked for at once; a page's worth
_GATHER_S = 0.05
_CLOSED = InputError("the server is stopping")
_CLOSE_S = 10.0
_Wanted = tuple[str, Path, Future[Path]]
_MESHES = 2  # 3D views made at a time


class Views:
    """Makes and keeps pictures (PNG) and 3D views (GLB).

    A worker that draws needs seconds to load what it draws with, and a page asks for a dozen
    pictures at once: they are gathered and drawn by the same workers.

    Args:
        folder: where they are kept. workers: processes that draw. limits: of each part.
    """

    def __init__(self, folder: Path, workers: int, limits: Limits) -> None:
        self._folder = folder
        self._workers = workers
        self._limits = limits
        self._wanted: queue.SimpleQueue[_Wanted | None] = queue.SimpleQueue()
        self._waiting: set[Future[Path]] = set()
        self._closing = threading.Lock()
        self._closed = False
        self._meshing = threading.BoundedSemaphore(_MESHES)
        self._drawing = threading.Thread(target=self._draw, name="brepfind-pictures", daemon=True)
        self._drawing.start()

    def picture(self, key: str, step: Path) -> Path:
        """A PNG of the part; it says so itself where the part cannot be drawn.

        Args:
            key: SHA-256 of the STEP file. step: where it lies.
        """
        asked: Future[Path] = Future()
        with self._closing:
            if self._closed:
                raise _CLOSED
            self._waiting.add(asked)
        self._wanted.put((key, step, asked))
        try:
            return asked.result()
        finally:
            self._waiting.discard(asked)

    def close(self) -> None:
        """Tell all who wait for a picture that none will come."""
        with self._closing:
            self._closed = True
            for asked in list(self._waiting):
                _end(asked, _CLOSED)
        self._wanted.put(None)
        # A worker that is being started when its parent goes would complain of it at length.
        self._drawing.join(_CLOSE_S)

    def model(self, key: str, step: Path) -> Path:
        """A GLB of the part.

        Raises:
            InputError: if it cannot be meshed within the limits.
        """
        path = self._folder / f"{key}-{VERSION}.glb"
        if path.is_file():
            return path
        with self._meshing:
            if not path.is_file():
                config = self._limits.config(grid=10, max_faces=4095)
                (outcome,) = work_on([(key, step)], mesh_file, config, workers=1)
                if outcome.reject is not None:
                    raise InputError(f"no 3D view: {outcome.reject}")
                write_bytes(path, glb(outcome.parts[0]))
        return path

    def _draw(self) -> None:
        while batch := self._batch():
            items = {key: step for key, step, _ in batch}
            try:
                found = part_pictures(
                    items.items(),
                    self._folder,
                    self._workers,
                    timeout_s=self._limits.timeout_s,
                    memory_gb=self._limits.memory_gb,
                )
            except Exception as error:  # whatever it is, who waits is told, and the next is drawn
                log.warning("pictures: %s", error)
                for _, _, asked in batch:
                    _end(asked, InputError(f"no picture: {error}"))
                continue
            for key, _, asked in batch:
                _end(asked, found.paths[key])

    def _batch(self) -> list[_Wanted]:
        """What was asked for of late; empty once the desk is closed."""
        batch: list[_Wanted] = []
        while len(batch) < _BATCH:
            try:
                wanted = self._wanted.get(timeout=_GATHER_S if batch else None)
            except queue.Empty:
                break
            if wanted is None or self._closed:
                return []
            batch.append(wanted)
        return batch


def _end(asked: Future[Path], how: Path | Exception) -> None:
    with suppress(InvalidStateError):  # it was told already that none will come
        if isinstance(how, Path):
            asked.set_result(how)
        else:
            asked.set_exception(how)
