"""The page over HTTP: FastAPI in front of a :class:`~brepfind.app.catalogue.Catalogue`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from brepfind.app.catalogue import Catalogue
from brepfind.app.guard import Guard
from brepfind.app.uploads import Uploads
from brepfind.errors import BrepfindError, InputError
from brepfind.log import printable
from brepfind.retrieval.parts import Filters

STATIC = Path(__file__).parent / "static"

Text = Annotated[str, Query(max_length=1000)]
Id = Annotated[str, Query(max_length=10_000)]
K = Annotated[int, Query(ge=1, le=100)]
Size = Annotated[float | None, Query(ge=0, allow_inf_nan=False)]
Faces = Annotated[int | None, Query(ge=0, le=2**31)]
Rows = list[dict[str, Any]]


def _filters(
    min_size: Size = None,
    max_size: Size = None,
    min_faces: Faces = None,
    max_faces: Faces = None,
) -> Filters:
    return Filters(min_size=min_size, max_size=max_size, min_faces=min_faces, max_faces=max_faces)


Limited = Annotated[Filters, Depends(_filters)]


def create_app(catalogue: Catalogue, host: str = "127.0.0.1") -> FastAPI:
    """The application.

    Args:
        host: that it will be bound to; see :class:`~brepfind.app.guard.Guard`.
    """
    app = FastAPI(title="brepfind", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, host=host)
    app.add_exception_handler(BrepfindError, _on_refusal)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_question)
    app.add_exception_handler(ClientDisconnect, _on_gone)
    _questions(app, catalogue)
    _files(app, catalogue)
    return app


def _questions(app: FastAPI, catalogue: Catalogue) -> None:
    uploads = Uploads(catalogue.limits.max_mb)

    @app.get("/api/about")
    def about() -> dict[str, Any]:
        return catalogue.about()

    @app.get("/api/search")
    def search(q: Text, filters: Limited, k: K = 12) -> Rows:
        return catalogue.search(q, k, filters)

    @app.get("/api/like")
    def like(id: Id, filters: Limited, k: K = 12) -> Rows:
        return catalogue.more_like(id, k, filters)

    @app.post("/api/shape")
    async def shape(request: Request, filters: Limited, k: K = 12) -> Rows:
        async with uploads.file(request) as path:
            return await run_in_threadpool(catalogue.like_file, path, k, filters)

    @app.get("/api/part")
    def part(id: Id) -> dict[str, Any]:
        return catalogue.part(id)


def _files(app: FastAPI, catalogue: Catalogue) -> None:
    kept = {"cache-control": "private, max-age=300"}

    @app.get("/picture")
    def picture(id: Id) -> Response:
        return FileResponse(catalogue.picture(id), media_type="image/png", headers=kept)

    @app.get("/model")
    def model(id: Id) -> Response:
        return FileResponse(catalogue.model(id), media_type="model/gltf-binary", headers=kept)

    @app.get("/step")
    def step(id: Id) -> Response:
        path = catalogue.step(id)
        return FileResponse(path, media_type="model/step", filename=printable(path.name, 200))

    @app.get("/")
    def page() -> Response:
        return FileResponse(STATIC / "index.html", media_type="text/html")

    app.mount("/static", StaticFiles(directory=STATIC))


# Every refusal is one line under "error", whatever found it -------------------------------------


def _said(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": printable(message, 500)}, status_code=status)


def _on_refusal(request: Request, error: Exception) -> Response:
    status = 422 if request.url.path.startswith("/api/") else 404
    return _said(status if isinstance(error, InputError) else 500, str(error))


def _on_http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = _said(error.status_code, error.detail)
    response.headers.update(error.headers or {})
    return response


def _on_question(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return _said(422, f"{first['loc'][-1]}: {first['msg'].lower()}")


def _on_gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)  # nobody is there to read it
