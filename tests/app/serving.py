"""A real model, a real index of real STEP files, and the real server in a process of its own."""

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import torch

from brepfind.retrieval.additions import add_files
from tests.retrieval.tiny import make_dual, make_tower, write_dual

HERE = Path(__file__).parent
ZOO = HERE.parent / "fixtures" / "cad" / "zoo"
# A file's name is data: this one is HTML, and a quote, and turns the reading direction.
HOSTILE = "<img src=x onerror=alert(1)>\"'&\u202egnp.step"
PARTS = {
    "box.step": "ok_box",
    "ball.step": "sphere",
    "cone.step": "cone_apex",
    "pipes/cylinder.step": "full_cylinder",
    "pipes/spline.step": "spline_face",
    "two solids.step": "two_solids_apart",
    HOSTILE: "unit_metre",
    "gone.step": "sliver",
    "changed.step": "tiny_1um",
}


@dataclass(frozen=True)
class Answer:
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.data["error"])


@dataclass(frozen=True)
class Server:
    """A server of its own process."""

    host: str
    port: int
    process: subprocess.Popen[str]
    index: Path
    parts: Path
    said: str

    @property
    def address(self) -> str:
        return f"http://{self.host}:{self.port}"

    def ask(
        self,
        path: str,
        question: dict[str, Any] | None = None,
        body: Any = None,
        method: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        line = http.client.HTTPConnection(self.host, self.port, timeout=120)
        try:
            line.request(
                method or ("GET" if body is None else "POST"),
                path + (f"?{urlencode(question)}" if question else ""),
                body=body,
                headers=headers or {},
            )
            got = line.getresponse()
            found = {name.lower(): value for name, value in got.getheaders()}
            return Answer(got.status, found, got.read())
        finally:
            line.close()


def start(
    model: Path, parts: Path, index: Path, cache: Path, *options: str, host: str = "127.0.0.1"
) -> Server:
    """Start ``brepfind app`` and wait until it says where it is."""
    process = subprocess.Popen(
        [sys.executable, "-m", "brepfind.cli", "app", "--port", "0", "--host", host,
         "--model", str(model), "--index", str(index), "--workers", "1", *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(cache), "NO_COLOR": "1", "COLUMNS": "200"},
    )  # fmt: skip
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if " parts at http://" in line:
            port = int(line.split(" (")[0].rpartition(":")[2])
            return Server("127.0.0.1", port, process, index, parts, "".join(said))
    raise AssertionError("".join(said))


def stop(server: Server) -> str:
    """End a server as Ctrl-C does; returns what it said."""
    server.process.send_signal(signal.SIGINT)
    _, said = server.process.communicate(timeout=60)
    return said


def make_weights(folder: Path) -> Path:
    """A model that knows nothing of parts, but gives each its place."""
    words = ["box", "ball", "cone", "pipe", "a", "mm", *map(str, range(10))]
    tower = make_tower(folder / "tower", words)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        dual = make_dual(tower)
    return write_dual(folder / "best.safetensors", dual, tower)


def make_shelf(root: Path, weights: Path) -> tuple[Path, Path]:
    """The folder of parts and the index of them; one file is gone since, and one has changed."""
    parts = root / "parts"
    for name, source in PARTS.items():
        (parts / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ZOO / f"{source}.step", parts / name)
    outcome = add_files(weights, root / "index", [parts], allow_twins=True, workers=1)
    assert len(outcome.added) == len(PARTS), outcome.refused
    (parts / "gone.step").unlink()
    shutil.copy(ZOO / "ok_box.step", parts / "changed.step")
    return parts, root / "index"
