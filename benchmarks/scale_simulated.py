"""A corpus of a million parts without a million STEP files, and what is done with it.

    PYTHONPATH=src python -m benchmarks.scale_simulated STEP FOLDER OUT

The graph store, the corpus and the captions of a real project are repeated under new ids: shards
are hard links, signatures are moved by some per mille so that a part is no twin of its copies
(twins of one copy stay twins), captions end in a word of their copy. What is simulated is the
number of parts, not their variety; and shards that are links of few files are read from memory,
not from a disk.

Each step is one process, and leaves seconds, the memory after its imports, and facts in ``OUT``.
"""

from __future__ import annotations

import json
import os
import shutil
import string
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.memory import private_gb
from brepfind.corpus import manifest
from brepfind.files import digest, read_json, sha256, write_json
from brepfind.graphs import store_layout as layout
from brepfind.graphs.store import GraphStore
from brepfind.graphs.twins import twin_groups
from brepfind.pipeline import paths

# How far copies lie apart, of each number of a signature; a tolerance is 2e-5.
_APART = 5e-3
_SEED = 0


# The corpus -------------------------------------------------------------------------------------


def make(source: Path, folder: Path, parts: int) -> None:
    """Repeat a project's graph store and corpus until there are ``parts`` parts."""
    made = folder / "made.json"
    key = digest([parts, sha256(source / paths.GRAPHS / layout.MANIFEST), 1])
    if made.is_file() and read_json(made) == key:
        return
    store = GraphStore(source / paths.GRAPHS)
    corpus = manifest.read_corpus(source / paths.CORPUS)
    copies = -(-parts // len(store))
    sizes = [len(store)] * (copies - 1) + [parts - len(store) * (copies - 1)]
    shutil.rmtree(folder / "rows", ignore_errors=True)  # they are of other parts
    _make_store(source / paths.GRAPHS, folder / paths.GRAPHS, store, sizes)
    kept = corpus.parts["model_id"].isin(store.ids)
    _make_corpus(folder / paths.CORPUS, corpus, corpus.parts[kept], sizes)
    write_json(made, key)


def original(model_id: str) -> str:
    """The id of the part that a part of the repeated store is a copy of."""
    return model_id.partition("/")[2]


def _make_store(source: Path, folder: Path, store: GraphStore, sizes: Sequence[int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    table, metadata = layout.read_manifest(source / layout.MANIFEST)
    shards = int(metadata["shards"])
    schema = layout.MANIFEST_SCHEMA.with_metadata(
        layout.pack_metadata(grid=store.grid, shards=shards * len(sizes))
    )
    signatures, group = store.signatures, twin_groups(store.signatures)
    with pq.ParquetWriter(folder / layout.MANIFEST, schema) as writer:
        for copy, size in enumerate(sizes):
            for shard in range(shards):
                name = source / layout.shard_name(shard)
                if name.is_file():
                    os.link(name, folder / layout.shard_name(copy * shards + shard))
            draw = np.random.default_rng([_SEED, copy])
            moved = 1 + _APART * draw.standard_normal((int(group.max()) + 1, signatures.shape[1]))
            columns = {name: table[name].slice(0, size) for name in layout.MANIFEST_SCHEMA.names}
            columns["model_id"] = _copied(table["model_id"], copy, size)
            columns["path"] = _copied(table["path"], copy, size)
            columns["shard"] = pa.array(
                table["shard"].to_numpy()[:size] + copy * shards, pa.int32()
            )
            columns["signature"] = pa.array(
                list((signatures * moved[group])[:size]), pa.list_(pa.float64())
            )
            writer.write_table(pa.table(columns, schema=schema))
    (folder / layout.REJECTS).write_text(layout.rejects_text([]), encoding="utf-8")


def _make_corpus(
    folder: Path, corpus: manifest.Corpus, parts: pd.DataFrame, sizes: Sequence[int]
) -> None:
    parts = parts.sort_values("model_id", ignore_index=True)
    folder.mkdir(parents=True, exist_ok=True)
    captions = 0
    with (
        pq.ParquetWriter(folder / "parts.parquet", manifest._PARTS) as part_writer,
        pq.ParquetWriter(folder / "captions.parquet", manifest._CAPTIONS) as caption_writer,
    ):
        for copy, size in enumerate(sizes):
            mine = parts.iloc[:size]
            said = corpus.captions[corpus.captions["model_id"].isin(mine["model_id"])]
            captions += len(said)
            # No two copies say the very same; a word of letters, since numbers are read as lengths.
            word = "".join(string.ascii_lowercase[copy // 26**place % 26] for place in range(3))
            said = said.assign(caption=said["caption"] + f", batch {word}")
            for writer, table in ((part_writer, mine), (caption_writer, said)):
                table = table.assign(model_id=f"{copy:05d}/" + table["model_id"].astype(str))
                if "path" in table:
                    table["path"] = f"{copy:05d}/" + table["path"].astype(str)
                arrow = pa.Table.from_pandas(
                    table[writer.schema.names], schema=writer.schema, preserve_index=False
                )
                writer.write_table(arrow.replace_schema_metadata(None))
    facts = {"source": "sample", "root": "step", "parts": sum(sizes), "captions": captions}
    write_json(folder / "corpus.json", {**facts, "families": 0, "notes": {}})


def _copied(column: pa.ChunkedArray, copy: int, size: int) -> pa.Array:
    return pa.array([f"{copy:05d}/{text}" for text in column.slice(0, size).to_pylist()])


# The steps ----------------------------------------------------------------------------------------


class Work:
    """Seconds of a block, and the memory of the process before it."""

    seconds = 0.0
    imports_gb = 0.0

    def __enter__(self) -> Work:
        self.imports_gb = private_gb()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *raised: object) -> None:
        self.seconds = time.perf_counter() - self._start


def tables(folder: Path, work: Work) -> dict[str, Any]:
    """The manifest of the store and the corpus, as every stage reads them."""
    with work:
        store = GraphStore(folder / paths.GRAPHS)
        corpus = manifest.read_corpus(folder / paths.CORPUS)
    return {"parts": len(store), "captions": len(corpus.captions)}


def data_sets(folder: Path, work: Work) -> dict[str, Any]:
    """What the runner tells MLflow of train's data, before the stage begins."""
    from brepfind.pipeline.datasets import split_data

    with work:
        found = split_data(folder, "train")
    return {one["name"]: one["profile"] for one in found}


def reading(folder: Path, work: Work) -> dict[str, Any]:
    """Parts with their matrices, drawn at random: what a batch is made of."""
    from brepfind.graphs.dataset import PartReader

    _read_as_originals()
    reader = PartReader(folder / paths.GRAPHS, folder / ".brepfind/pairs")
    ids = reader.store.ids
    chosen = np.random.default_rng(_SEED).choice(len(ids), min(len(ids), 4000), replace=False)
    with work:
        for number in chosen:
            reader.read([ids[number]])
    return {"parts_read": len(chosen), "ms_a_part": 1e3 * work.seconds / len(chosen)}


def first_steps(folder: Path, work: Work) -> dict[str, Any]:
    """One rank of training from its start to its third step.

    Features of frozen layers are not made beforehand but for each batch: at their rate that would
    take days. For the same reason every part's descriptors are those of the first.
    """
    import torch

    from brepfind.distributed.group import open_group
    from brepfind.params import check_section, read_params
    from brepfind.training import prepare as preparing
    from brepfind.training.config import TrainConfig
    from brepfind.training.faults import Faults
    from brepfind.training.job import Job

    _read_as_originals()
    settings = read_params(folder / paths.PARAMS)["train"] | {"processes": 1, "timeout_s": 86_400}
    job = Job(
        train=check_section(settings, "train", TrainConfig),
        graphs=str(folder / paths.GRAPHS),
        corpus=str(folder / paths.CORPUS),
        split=str(folder / paths.SPLIT),
        weights=str(folder / paths.WEIGHTS),
        out=str(folder / "model"),
        state=str(folder / "state"),
        events=str(folder / "events.jsonl"),
        cost=str(folder / "cost.json"),
        postmortem=str(folder / "postmortem"),
        features=str(folder / "features"),
        pairs=str(folder / ".brepfind/pairs"),
        device="cpu",
    )
    read_pool, told = preparing.read_pool, {}

    def pool_of_one_part(store: GraphStore, *rest: Any, **named: Any) -> Any:
        start = time.perf_counter()
        part = store.load(store.ids[0])
        with _replaced(GraphStore, "load", lambda self, model_id: part):
            pool = read_pool(store, *rest, **named)
        told["seconds_pool"] = time.perf_counter() - start
        return pool

    with (
        _replaced(preparing, "read_pool", pool_of_one_part),
        _replaced(preparing, "part_features", lambda *_: (None, None)),
        _replaced(
            preparing, "caption_features", lambda tower, texts, *_: (_Hidden(tower, texts), 0)
        ),
        open_group(job.train.timeout_s, device="cpu") as group,
        work,
    ):
        torch.set_num_threads(1)  # as a rank has that shares two cores with another
        start = time.perf_counter()
        ready = preparing.prepare(job, group, Faults((), 0))
        told["seconds_prepare"] = time.perf_counter() - start
        for step in range(3):
            start = time.perf_counter()
            ready.guarded.run(step, ready.data[0, step].to(group.device))
            told[f"seconds_step_{step}"] = time.perf_counter() - start
    return {
        **told,
        "train_parts": len(ready.pool.train),
        "captions": len(ready.pool.texts),
        "steps_an_epoch": ready.order.steps,
    }


def ranks(folder: Path, work: Work) -> dict[str, Any]:
    """One pass of evaluate over the test split, random unit vectors in its rows' place; what
    answers what is real. Some eight blocks of queries are timed, and stand for all.
    """
    from brepfind.metrics.counting import RankJob
    from brepfind.retrieval.relevant import caption_ids, text_to_cad_relevance

    captions, place, twins = _side(folder, "test")
    dim = _dim(folder)
    with work:
        text, cad = _unit(len(captions), dim), _unit(len(twins), dim)
        relevance = text_to_cad_relevance(caption_ids(captions), place, twins)
        job = RankJob(text, cad, relevance)
        blocks = len(job.query_blocks)
        start = time.perf_counter()
        apart = max(1, blocks // 8)
        job.run(0, apart)
        spent = time.perf_counter() - start
    work.seconds += spent * (blocks / len(job.query_blocks[::apart]) - 1)
    return {
        "captions": len(captions),
        "parts": len(twins),
        "pairs_that_answer": len(relevance.items),
        "seconds_measured": spent,
    }


def validation_loss(folder: Path, work: Work) -> dict[str, Any]:
    """The held-out loss that training takes at each validation, of random unit vectors: so many
    parts are timed against all captions, and stand for all.
    """
    from brepfind.metrics.contrast import held_out_loss
    from brepfind.metrics.relevance import Relevance

    captions, _, twins = _side(folder, "validation")
    few = min(512, len(twins))
    with work:
        text, cad = _unit(len(captions), _dim(folder)), _unit(few, _dim(folder))
        own = Relevance.from_pairs(np.arange(few), np.arange(few), few, len(text))
        start = time.perf_counter()
        held_out_loss(cad, text, own, 20.0)
        spent = time.perf_counter() - start
    work.seconds += spent * (len(twins) / few - 1)
    return {"captions": len(captions), "parts": len(twins), "seconds_measured": spent}


def vitals_of(folder: Path, work: Work) -> dict[str, Any]:
    """Vital signs of the test split's captions before projection, the widest rows there are."""
    from brepfind.metrics.vitals import vitals

    captions, _, _ = _side(folder, "test")
    with work:
        rows = _unit(len(captions), 384)
        signs = vitals(rows)
    return {"captions": len(captions), "rank_share": signs.rank_share}


def index(folder: Path, work: Work) -> dict[str, Any]:
    """The search index of all parts: made, written, read, and asked once."""
    from brepfind.retrieval.index import make_index, read_index, write_index
    from brepfind.retrieval.parts import part_table

    store = GraphStore(folder / paths.GRAPHS)
    vectors = _unit(len(store), _dim(folder))
    with work:
        start = time.perf_counter()
        made = make_index(vectors, part_table(store, store.ids, "."), "0" * 64, grid=10)
        making = time.perf_counter() - start
        write_index(folder / "index", made)
        recall = made.recall
        del made
        found = read_index(folder / "index")
        start = time.perf_counter()
        found.nearest(vectors[:1], 10)
        search = time.perf_counter() - start
    return {
        "seconds_making": making, "ms_a_search": 1e3 * search,
        "recall_at_10": recall, "exact": found.exact,
    }  # fmt: skip


STEPS: dict[str, Callable[[Path, Work], dict[str, Any]]] = {
    "tables": tables,
    "data_sets": data_sets,
    "reading": reading,
    "first_steps": first_steps,
    "ranks": ranks,
    "validation_loss": validation_loss,
    "vitals": vitals_of,
    "index": index,
}


class _Hidden:
    """In the place of kept features of captions: each is computed when it is asked for."""

    def __init__(self, tower: Any, texts: Sequence[str]) -> None:
        self._tower, self._texts = tower, texts

    def entry(self, column: str, number: int) -> Any:
        assert column == "hidden"
        return self._tower.lower(self._tower.tokenize([self._texts[number]]))[0]


def _read_as_originals() -> None:
    """Shards are links and hold the ids of the originals, which they are asked for."""
    from brepfind.graphs import store

    arrays = store._Shard.arrays
    store._Shard.arrays = lambda self, model_id, position: arrays(  # type: ignore[method-assign]
        self, original(model_id), position
    )


@contextmanager
def _replaced(where: Any, name: str, by: Any) -> Iterator[None]:
    before = getattr(where, name)
    setattr(where, name, by)
    try:
        yield
    finally:
        setattr(where, name, before)


def _side(folder: Path, side: str) -> tuple[list[str], Any, Any]:
    """Captions of a side of the split, the row of each one's part, the twin group of each part."""
    split = pd.read_parquet(folder / paths.SPLIT)
    split = split[split["split"] == side]
    said = pd.read_parquet(folder / paths.CORPUS / "captions.parquet")
    said = said[said["model_id"].isin(split["model_id"])]
    rows = pd.Series(np.arange(len(split)), index=split["model_id"])
    place = rows.loc[said["model_id"]].to_numpy(np.int64)
    return said["caption"].tolist(), place, split["twin"].to_numpy(np.int64)


def _dim(folder: Path) -> int:
    from brepfind.params import read_params

    return int(read_params(folder / paths.PARAMS)["train"]["embed_dim"])


def _unit(n: int, dim: int) -> np.ndarray:
    rows = np.random.default_rng(_SEED).standard_normal((n, dim), np.float32)
    # Without a second matrix, which would be the peak that is measured.
    rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return rows


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    name, folder, out = arguments
    work = Work()
    facts = STEPS[name](Path(folder), work)
    numbers = {"seconds": work.seconds, "imports_gb": work.imports_gb, "facts": facts}
    Path(out).write_text(json.dumps(numbers), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
