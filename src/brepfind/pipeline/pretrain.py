"""``make pretrain``: generated parts, extracted, without twins of what is tested on, pretrained on.

Not a stage: it is run by hand, and its checkpoint is shipped in ``data/pretrained``. The parts are
the sample corpus drawn with another seed, and those of a STEP folder if one is named; the
pipeline's own validation and test parts, and every part of the same shape, are left out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from brepfind.cad.extract import ExtractConfig
from brepfind.corpus.manifest import read_corpus
from brepfind.corpus.prepare import PrepareConfig, prepare
from brepfind.corpus.tables import step_files
from brepfind.errors import BrepfindError, InputError
from brepfind.files import read_json
from brepfind.graphs.extraction import extract_store
from brepfind.graphs.store import GraphStore
from brepfind.graphs.twins import twin_groups
from brepfind.log import get_logger, setup_logging
from brepfind.params import load_section
from brepfind.pipeline import paths
from brepfind.pipeline.config import RuntimeConfig
from brepfind.retrieval.leaks import write_signatures
from brepfind.training.pretrain import SIZES, PretrainConfig, read_parts, write_pretrained

log = get_logger(__name__)

_WORK = Path(".brepfind/pretrain")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="make pretrain", description=__doc__)
    parser.add_argument("--parts", type=int, default=1000, help="generated parts (%(default)s)")
    parser.add_argument("--seed", type=int, default=99, help="of the parts (%(default)s)")
    parser.add_argument("--step-dir", type=Path, help="STEP files to learn from, too, at any depth")
    parser.add_argument("--size", choices=SIZES, default="small", help="of the encoder")
    parser.add_argument("--out", type=Path, help="data/pretrained/brepformer_SIZE.ckpt otherwise")
    parser.add_argument(
        "--only-signatures",
        action="store_true",
        help="draw the same parts and only write down what they are, after a change of what a "
        "signature is",
    )
    given = parser.parse_args(arguments)
    setup_logging()
    try:
        _run(
            SIZES[given.size],
            _Drawn(given.parts, given.seed, given.step_dir),
            given.out or paths.PRETRAINED / f"brepformer_{given.size}.ckpt",
            given.only_signatures,
        )
    except BrepfindError as error:
        log.error("%s", error)
        return error.exit_code
    return 0


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Where the parts come from: so many generated ones, and a folder of STEP files or None."""

    parts: int
    seed: int
    step_dir: Path | None


def _run(config: PretrainConfig, drawn: _Drawn, out: Path, only_signatures: bool) -> None:
    began = time.monotonic()
    runtime = load_section(paths.PARAMS, "runtime", RuntimeConfig)
    # Batches are small: a second thread costs more in waiting than it brings.
    torch.set_num_threads(1)
    if load_section(paths.PARAMS, "prepare", PrepareConfig).seed == drawn.seed:
        raise InputError(
            f"--seed {drawn.seed} is prepare.seed: pretraining would see the same parts"
        )
    graphs = _graphs(drawn, runtime.workers_here())
    store = GraphStore(graphs)
    twins = tested_twins(store, GraphStore(paths.GRAPHS), pd.read_parquet(paths.SPLIT))
    log.info("%d parts are left out: twins of validation or test parts", len(twins))
    chosen = read_parts(graphs, Path(".brepfind/pairs"), config.encoder.max_faces, twins)
    if not only_signatures:
        write_pretrained(config, chosen, out)
    elif (made := read_json(out.with_suffix(".json"))["parts"]) != len(chosen.ids):
        raise InputError(
            f"{out} was made of {made} parts, and {len(chosen.ids)} are left now: generator, split "
            "or twins have changed; pretrain again with `make pretrain`"
        )
    of = dict(zip(store.ids, store.signatures, strict=True))
    write_signatures(out, np.stack([of[model_id] for model_id in chosen.ids]))
    log.info("took %.0f s", time.monotonic() - began)


def _graphs(drawn: _Drawn, workers: int) -> Path:
    """Generate the parts and extract them, and the user's with them."""
    mine = []
    if drawn.step_dir is not None:
        found = step_files(drawn.step_dir, advice="name another --step-dir")
        mine = [(f"step/{path}", f"step/{path}", drawn.step_dir / path) for path in found]
    config = PrepareConfig(
        source="sample",
        parts=drawn.parts,
        seed=drawn.seed,
        captions_per_part=1,
        step_dir=None,
        captions=None,
        max_orphan_rate=0.0,
    )
    prepare(config, _WORK / "corpus", workers)
    corpus = read_corpus(_WORK / "corpus")
    files = [
        (str(part.model_id), str(part.path), corpus.step_path(str(part.path)))
        for part in corpus.parts.itertuples()
    ]
    graphs = _WORK / "graphs"
    extraction = load_section(paths.PARAMS, "extract", ExtractConfig)
    tally = extract_store(files + mine, graphs, extraction, workers)
    log.info(
        "%d files: %d taken, %d rejected (%s)",
        *(tally.files, tally.accepted, tally.rejected, graphs / "rejects.csv"),
    )
    return graphs


def tested_twins(store: GraphStore, tested: GraphStore, split: pd.DataFrame) -> set[str]:
    """Parts of ``store`` that are the same shape as a validation or test part.

    Args:
        tested: the store that ``split`` divides.
        split: columns ``model_id, split``.
    """
    held = set(split.loc[split["split"].isin(["validation", "test"]), "model_id"])
    rows = [place for place, model_id in enumerate(tested.ids) if model_id in held]
    groups = twin_groups(np.concatenate([store.signatures, tested.signatures[rows]]))
    mine, theirs = groups[: len(store)], set(groups[len(store) :].tolist())
    return {i for i, group in zip(store.ids, mine.tolist(), strict=True) if group in theirs}


if __name__ == "__main__":
    sys.exit(main())
