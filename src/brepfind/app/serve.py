"""``brepfind app``: the page on this machine, until Ctrl-C."""

from __future__ import annotations

import socket
from pathlib import Path

from brepfind.errors import InputError
from brepfind.log import console, get_logger
from brepfind.retrieval.shape import Limits

log = get_logger(__name__)


def serve(
    model: Path,
    index: Path,
    *,
    host: str,
    port: int,
    views: Path,
    workers: int,
    limits: Limits,
    browse: bool,
) -> None:
    """Serve until interrupted.

    Args:
        model: the weights file. index: the folder of the index it made.
        host, port: to listen at; port 0 takes a free one.
        views: where pictures are kept. workers: that draw them. limits: of a STEP file.
        browse: open the page in the browser.

    Raises:
        InputError: if there is no model or index yet, or the address is taken.
    """
    import uvicorn

    from brepfind.app.catalogue import Catalogue
    from brepfind.app.guard import is_loopback
    from brepfind.app.server import create_app

    for path, what in ((model, "model"), (index / "index.json", "index")):
        if not path.is_file():
            raise InputError(
                f"{path}: there is no {what} yet; run `make repro` first, or name another with "
                f"--{what}"
            )
    with _listening(host, port) as listener:
        address = f"http://{_in_url(host)}:{listener.getsockname()[1]}"
        if not is_loopback(host):
            log.warning(
                "%s can be reached from other machines: whoever can reach it can search all parts "
                "and download their STEP files; there is no password and no encryption",
                address,
            )
        with console.status("loading the model"):
            catalogue = Catalogue(model, index, views, workers=workers, limits=limits)
        app = create_app(catalogue, host)
        console.print(
            f"{catalogue.about()['parts']} parts at {address} (Ctrl-C ends it)",
            markup=False,
            highlight=False,
        )
        if browse:
            import webbrowser

            webbrowser.open(address)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            limit_concurrency=200,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=5,
            server_header=False,
        )
        server = uvicorn.Server(config)
        stop = server.shutdown

        async def shutdown(sockets: list[socket.socket] | None = None) -> None:
            catalogue.close()  # else uvicorn waits for pictures that nobody will see
            await stop(sockets)

        server.shutdown = shutdown  # type: ignore[method-assign]
        server.run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # who comes early waits, instead of being turned away
    except OSError as error:
        listener.close()
        raise InputError(
            f"cannot listen at {host}, port {port} ({error.strerror}); name another with --port"
        ) from None
    return listener


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
