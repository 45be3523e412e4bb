"""The model's folder: whole, exact, answering as ``brepfind search`` does, over HTTP too."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from brepfind.errors import InputError
from brepfind.tracking.package import Model, mlflow, pinned
from tests.tracking.conftest import LOCK
from tests.tracking.server import Listening

QUERIES = ["a plate 4 mm", "shaft 2"]
_LOADED = """
import json, sys
from importlib.metadata import packages_distributions
import mlflow.pyfunc
model = mlflow.pyfunc.load_model(sys.argv[1])
found = model.predict({"query": ["a plate"]}, params={"k": 2})
import brepfind
known = packages_distributions()
names = {name.partition(".")[0] for name in list(sys.modules)}
used = sorted({one for name in names for one in known.get(name, [])})
print(json.dumps({"code": brepfind.__file__, "used": used, "rows": len(found)}))
"""


def near(score: float) -> Any:
    """The command line rounds."""
    return pytest.approx(score, abs=1e-5)


def searched(weights: Path, index: Path, query: str, k: int) -> list[dict[str, Any]]:
    """What the command line says."""
    command = [sys.executable, "-m", "brepfind.cli", "search", query, "-k", str(k), "--json"]
    command += ["--model", str(weights), "--index", str(index)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return [
        {"query": query, "rank": rank, "id": row["model_id"], "score": near(row["score"])}
        for rank, row in enumerate(found, start=1)
    ]


def test_it_says_what_it_takes_gives_and_needs(model: Path) -> None:
    described = Model.load(str(model))
    assert described.signature.inputs.input_names() == ["query"]
    assert described.signature.outputs.input_names() == ["query", "rank", "id", "score"]
    assert described.signature.params.to_dict()[0]["name"] == "k"
    assert described.load_input_example(str(model)) == {"query": ["a plate"]}
    assert (model / "requirements.txt").read_text().split() == pinned(LOCK)
    # Nothing pickled, and no path of the machine that wrote it.
    assert not [file.name for file in model.rglob("*") if file.suffix in (".pkl", ".bin", ".pt")]
    assert str(model.parent) not in (model / "MLmodel").read_text()
    assert "/tmp" not in (model / "MLmodel").read_text()


def test_it_brings_its_own_code_and_its_requirements_are_all_it_uses(
    model: Path, tmp_path: Path
) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _LOADED, str(model)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert Path(told["code"]).is_relative_to(model / "code")
    assert told["rows"] == 2
    needed: set[str] = set()
    waiting = [Requirement(line).name for line in (model / "requirements.txt").read_text().split()]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in needed:
            continue
        needed.add(name)
        for text in importlib.metadata.requires(name) or []:
            one = Requirement(text)
            if one.marker is None or one.marker.evaluate({"extra": ""}):
                waiting.append(one.name)
    used = {canonicalize_name(name) for name in told["used"]} - {"brepfind", "pip", "setuptools"}
    used -= {"colorama", "orjson", "pydot"}  # taken by others where they are there
    assert used <= needed, sorted(used - needed)


def test_a_lock_without_what_a_search_needs_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(re.sub(r"(?m)^(faiss-cpu|torch)==.*\n", "", LOCK.read_text()))
    with pytest.raises(InputError, match="names no exact version of faiss-cpu, torch"):
        pinned(lock)
    with pytest.raises(InputError, match=r"nowhere: cannot be read"):
        pinned(tmp_path / "nowhere")


def test_it_answers_as_the_command_line_does(model: Path, weights: Path, index: Path) -> None:
    loaded = mlflow.pyfunc.load_model(str(model))
    found = loaded.predict({"query": QUERIES}, params={"k": 3})
    assert found.to_dict("records") == [
        row for query in QUERIES for row in searched(weights, index, query, 3)
    ]
    assert len(loaded.predict({"query": QUERIES[:1]})) == 5


def _ask(uri: str, body: Any) -> tuple[int, Any]:
    asked = urllib.request.Request(
        f"{uri}/invocations", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(asked, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_mlflow_models_serve_answers_over_http(model: Path, weights: Path, index: Path) -> None:
    command = ["mlflow", "models", "serve", "--env-manager", "local", "--model-uri", str(model)]
    with Listening(command, "/ping") as server:
        records = [{"query": query} for query in QUERIES]
        status, said = _ask(server.uri, {"dataframe_records": records, "params": {"k": 3}})
        assert status == 200, said
        wanted = [row for query in QUERIES for row in searched(weights, index, query, 3)]
        assert said["predictions"] == wanted
        for body, reason in (
            ({"inputs": [" "]}, "the search text is empty"),
            ({"dataframe_records": records, "params": {"k": 0}}, "k is 0"),
            ({"dataframe_records": [{"text": "a plate"}]}, "missing inputs ['query']"),
        ):
            status, said = _ask(server.uri, body)
            assert status == 400
            assert reason in said["message"]
