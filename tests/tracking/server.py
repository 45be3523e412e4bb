"""A real MLflow server on a loopback port, and what else listens there."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Listening:
    """A command that listens on a port of its own; it can be killed and started again.

    Args:
        command: what follows ``python -m``; it gets ``--host`` and ``--port``.
        alive: the path that answers once it listens.
    """

    def __init__(self, command: Sequence[str], alive: str, **environment: str) -> None:
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._command = [sys.executable, "-m", *command]
        self._command += ["--host", "127.0.0.1", "--port", str(self.port)]
        self._alive, self._environment = alive, environment

    def start(self) -> None:
        self.process = subprocess.Popen(
            self._command,
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", **self._environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for _ in range(1200):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.uri}{self._alive}"):
                return
            assert self.process.poll() is None, "the server ended while it started"
            time.sleep(0.2)
        raise AssertionError("the server does not answer")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> Listening:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def mlflow_server(store: str, artifacts: Path) -> Listening:
    """``mlflow server`` over a store."""
    return Listening(
        [
            *("mlflow", "server", "--workers", "1", "--backend-store-uri", store),
            *("--artifacts-destination", str(artifacts)),
        ],
        "/health",
        MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false",  # what chats need; it costs seconds
    )
