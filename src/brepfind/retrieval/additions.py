"""``brepfind index``: parts come into an index and leave it, and no model is trained again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from brepfind.errors import InputError, VersionMismatch
from brepfind.files import locked, unicode_text
from brepfind.graphs.dataset import PartReader
from brepfind.graphs.extraction import extract_store, find_step_files
from brepfind.graphs.extraction_cache import ExtractionCache
from brepfind.graphs.store import GraphStore
from brepfind.graphs.twins import twin_groups
from brepfind.retrieval.embed import embed_parts
from brepfind.retrieval.index import (
    Index,
    add_parts,
    is_index_file,
    make_index,
    read_index,
    read_stamp,
    remove_parts,
    write_index,
)
from brepfind.retrieval.model import Trained, load_trained
from brepfind.retrieval.parts import part_table
from brepfind.retrieval.shape import Limits

# Of one's own files: as long as the extract stage gives them.
LIMITS = Limits(timeout_s=60.0)

_GRID = 10  # of a new index: that of the pipeline's default and of the shipped encoder


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A file that did not come in.

    Attributes:
        name: its id. reason: a short code that can be counted. message: one sentence.
    """

    name: str
    reason: str
    message: str


@dataclass(slots=True, kw_only=True)
class Added:
    """What became of the files.

    Attributes:
        added: ids that came in. replaced: those of them that were there with other content.
        known: ids that were there already with the same content.
        refused: what did not come in, each with its reason. total: parts in the index now.
    """

    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    total: int = 0


def add_files(
    weights: Path,
    folder: Path,
    paths: Sequence[Path],
    *,
    prefix: str = "",
    replace: bool = False,
    allow_twins: bool = False,
    workers: int = 1,
    limits: Limits = LIMITS,
    cache: Path | None = None,
) -> Added:
    """Add the parts of STEP files to an index; it is made if the folder holds none.

    The index is written once, at the end: whatever stops this before leaves the old one.

    Args:
        weights: the model that made the index. folder: of the index.
        paths: STEP files and folders of them. A part's id is ``prefix`` and its path below the
            folder it was found in.
        replace: take a file whose id is there with other content, instead of refusing it.
        allow_twins: take a shape that is there under another id, instead of refusing it.
        workers: processes that read files. limits: of each file.
        cache: of extracted files, or None.

    Raises:
        InputError: if a path is not there. VersionMismatch: if another model made the index.
    """
    trained = load_trained(weights)
    old = _old(folder, trained)
    files = [(prefix + name, path, file) for name, path, file in find_step_files(paths)]
    config = limits.config(old.grid if old else _GRID, trained.model.encoder.config.max_faces)
    known = None if cache is None else ExtractionCache(cache, config)
    with tempfile.TemporaryDirectory(prefix="brepfind-") as scratch:
        graphs = Path(scratch) / "graphs"
        extract_store(files, graphs, config, workers, known)
        store = GraphStore(graphs)
        outcome = Added(refused=_rejected(store, prefix))
        table = _table(store, files)
        with _changing(folder):
            old = _old(folder, trained)  # others may have added while this one extracted
            ids = _judge(old, table, outcome, replace=replace, allow_twins=allow_twins)
            outcome.total = len(old) if old else 0
            if not ids:
                return outcome
            _, vectors = embed_parts(trained.model, PartReader(store, Path(scratch) / "pairs"), ids)
            new = table.set_index("model_id").loc[ids].reset_index()
            if old is None:
                made = make_index(vectors, new, trained.digest, grid=config.grid)
            else:
                made = add_parts(old, vectors, new, trained.digest)
            write_index(folder, made)
            outcome.added, outcome.total = ids, len(made)
    return outcome


def delete_parts(folder: Path, ids: Sequence[str]) -> int:
    """Take parts out of an index; returns how many are left.

    Raises:
        InputError: if it does not hold one of them, and then none is taken out; or if none would
            be left.
    """
    with _changing(folder):
        index = read_index(folder)
        absent = sorted(set(ids) - set(index.parts["model_id"]))
        if absent:
            raise InputError(
                f"{folder}: holds no part {absent[0]!r}; nothing was deleted "
                "(`brepfind index show --ids` lists them)"
            )
        less = remove_parts(index, ids)
        if not len(less):
            raise InputError(
                f"{folder}: these are all its parts; delete the folder itself if you mean that"
            )
        write_index(folder, less)
        return len(less)


@contextmanager
def _changing(folder: Path) -> Iterator[None]:
    """One at a time. The lock lies beside the folder, which may be an output of DVC."""
    folder = folder.resolve()
    with locked(folder.parent / f".{folder.name}.lock"):
        yield


def _old(folder: Path, trained: Trained) -> Index | None:
    if not (folder / "index.json").is_file():
        if folder.exists() and not all(is_index_file(path) for path in folder.iterdir()):
            raise InputError(f"{folder}: holds other files and no index; name a new folder")
        return None
    read_stamp(folder, trained.digest)
    return read_index(folder, trained.digest)


def _rejected(store: GraphStore, prefix: str) -> list[Refusal]:
    return [
        Refusal(name=prefix + row["path"], reason=row["reason"], message=row["message"])
        for row in store.rejects.to_dict("records")
    ]


def _table(store: GraphStore, files: Sequence[tuple[str, str, Path]]) -> pd.DataFrame:
    """The rows of all parts that were accepted; each knows its own root."""
    roots = {unicode_text(name): _root(file, path) for name, path, file in files}
    table = part_table(store, sorted(store.ids), "")
    return table.assign(root=[roots[name] for name in table["model_id"]])


def _root(file: Path, path: str) -> str:
    """The folder below which ``file`` has this path."""
    root = file.absolute()
    for _ in Path(path).parts:
        root = root.parent
    return root.as_posix()


def _judge(
    old: Index | None, table: pd.DataFrame, outcome: Added, *, replace: bool, allow_twins: bool
) -> list[str]:
    """The ids that come in; what does not is noted in ``outcome``."""
    there = {} if old is None else _contents(old)
    candidates = []
    for name, content in zip(table["model_id"], table["sha256"], strict=True):
        if name not in there:
            candidates.append(name)
        elif there[name] == content:
            outcome.known.append(name)
        elif replace:
            candidates.append(name)
            outcome.replaced.append(name)
        else:
            message = "the index holds another part of this id; use --replace or --prefix"
            outcome.refused.append(Refusal(name=name, reason="duplicate", message=message))
    if allow_twins:
        return candidates
    twins = _twins(old, table, candidates)
    outcome.replaced = [name for name in outcome.replaced if name not in twins]
    outcome.refused += [
        Refusal(
            name=name,
            reason="twin",
            message=f"is the same shape as {other!r}, moved or turned; use --allow-twins",
        )
        for name, other in twins.items()
    ]
    return [name for name in candidates if name not in twins]


def _contents(index: Index) -> dict[str, str]:
    if "sha256" not in index.parts:
        raise VersionMismatch("the index has no checksums of its parts; build it again")
    return dict(zip(index.parts["model_id"], index.parts["sha256"], strict=True))


def _twins(old: Index | None, table: pd.DataFrame, candidates: list[str]) -> dict[str, str]:
    """Which candidates are the same shape as a part of the index, or as a candidate before them."""
    new = table.set_index("model_id").loc[candidates].reset_index()
    kept = new.iloc[:0] if old is None else old.parts[~old.parts["model_id"].isin(candidates)]
    both = pd.concat([kept[["model_id", "signature"]], new[["model_id", "signature"]]])
    if not len(new):
        return {}
    groups = twin_groups(np.stack([np.asarray(row, np.float64) for row in both["signature"]]))
    first: dict[int, str] = {}
    found = {}
    for place, (name, group) in enumerate(zip(both["model_id"], groups.tolist(), strict=True)):
        if place >= len(kept) and group in first:
            found[name] = first[group]
        first.setdefault(group, name)
    return found
