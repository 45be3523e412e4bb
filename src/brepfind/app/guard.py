"""What keeps a page on one's own machine one's own: who may ask, and what the page may do.

A server on the loopback can be reached by every page that is open in the browser. Two things keep
them out: a request must name the server by a name it is known by (else a foreign name was pointed
at 127.0.0.1, DNS rebinding), and one that sends something must come from the page itself.
"""

from __future__ import annotations

import ipaddress

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# model-viewer builds its own shadow tree from a template with one <style>; that alone is let in
# by its hash. Everything else is this server's, or made in memory (blob:) from what it sent.
_VIEWER_STYLE = "'sha256-PXtZZkJMMyc18o/DN1ZEFOJ2qEGq95IQbVaJFMOXOb0='"

POLICY = "; ".join(
    [
        "default-src 'none'",
        # <model-viewer> compiles its mesh decoder when it is loaded; text is never run as a script.
        "script-src 'self' 'wasm-unsafe-eval'",
        f"style-src 'self' {_VIEWER_STYLE}",
        "img-src 'self' blob: data:",
        "connect-src 'self' blob:",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Guard:
    """ASGI middleware: refuses what does not come from here, and sets the page's policy.

    Args:
        host: that the server is bound to. Bound to all addresses it cannot know its names, and
            only looks at the origin of what is sent.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app = app
        self._names = None if is_wildcard(host) else _LOOPBACK | {host.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        complaint = self._complaint(scope["method"], Headers(scope=scope))
        if complaint:
            refusal = JSONResponse({"error": complaint}, status_code=403)
            await refusal(scope, receive, with_policy)
            return
        await self._app(scope, receive, with_policy)

    def _complaint(self, method: str, headers: Headers) -> str:
        host = headers.get("host", "")
        if self._names is not None and host_name(host) not in self._names:
            return "this server does not go by that name; open it as http://127.0.0.1"
        origin = headers.get("origin")
        if method not in ("GET", "HEAD") and origin is not None and origin != f"http://{host}":
            return "sent from another page; open this server's own"
        return ""


def host_name(host: str) -> str:
    """The name in a ``Host`` header, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if host.count(":") == 1 else host.lower()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server bound to ``host``."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """Whether ``host`` stands for all addresses of the machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
