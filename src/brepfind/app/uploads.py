"""A file from the browser: counted while it arrives, kept no longer than it is read."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request

_AT_ONCE = 2  # files that are received and read at a time
_WAITING = 4  # that wait for it; any more are sent away
_ARRIVE_S = 60.0


class Uploads:
    """Lets so many files in at a time.

    Args:
        max_mb: size of a file, MB. arrive_s: seconds in which it must have arrived.
    """

    def __init__(self, max_mb: float, arrive_s: float = _ARRIVE_S) -> None:
        self._most = int(max_mb * 1e6)
        self._arrive_s = arrive_s
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._inside = 0

    @asynccontextmanager
    async def file(self, request: Request) -> AsyncIterator[Path]:
        """The request's body as a file, which is gone after the block.

        Raises:
            HTTPException: 413 too large, 408 too slow, 503 too many at once, 400 empty.
        """
        said = request.headers.get("content-length", "")
        if said.isdigit() and int(said) > self._most:
            raise self._too_large()
        if self._inside >= _AT_ONCE + _WAITING:
            raise HTTPException(503, "too many files at once; try again in a moment")
        self._inside += 1
        try:
            async with self._places:
                with tempfile.TemporaryDirectory(prefix="brepfind-upload-") as folder:
                    path = Path(folder) / "query.step"
                    await self._receive(request, path)
                    yield path
        finally:
            self._inside -= 1

    async def _receive(self, request: Request, path: Path) -> None:
        length = 0
        try:
            async with asyncio.timeout(self._arrive_s):
                with path.open("wb") as file:
                    async for chunk in request.stream():
                        length += len(chunk)
                        if length > self._most:
                            raise self._too_large()
                        file.write(chunk)
        except TimeoutError:
            raise HTTPException(408, f"did not arrive within {self._arrive_s:g} s") from None
        if not length:
            raise HTTPException(400, "the file is empty")

    def _too_large(self) -> HTTPException:
        # Closing the line ends the rest of the file, too, which would be read and thrown away.
        return HTTPException(
            413,
            f"the file is too large; allowed are {self._most / 1e6:g} MB",
            headers={"connection": "close"},
        )
