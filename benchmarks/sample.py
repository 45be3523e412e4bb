"""The model beside plain ones on the sample corpus: `make bench-sample`.

Rows: this model; it without pretraining, without what tells it of size, without the comparison of
lengths, without descriptors; ridge regression from descriptors; chance. Captions: those of the
sample's templates, and those written by hand for parts of the test split. Three more models
are trained without one family of phrasings each and asked in that one alone, beside a model that
knew it: one that learned templates falls there.

Each model is trained with three seeds; a query counts as the mean of the three. Intervals draw
parts, and the difference to ridge is paired: both answer the same queries. Everything is chosen on
validation; the test split is read here, once, after all models are trained. Trained models are kept
in ``build/bench-sample``, so that the bench can be stopped and goes on.

Needs ``dvc repro sanitize`` (the target runs it). Writes ``benchmarks/results/sample.json``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.rows import KS, hits_of, margin_of, row_of
from benchmarks.trainings import Training, train_all
from brepfind.corpus.manifest import Corpus, read_corpus, write_corpus
from brepfind.corpus.sample.handwritten import handwritten_captions
from brepfind.files import write_json
from brepfind.graphs.dataset import PartReader
from brepfind.graphs.store import GraphStore
from brepfind.log import console, setup_logging
from brepfind.metrics.counting import count_ranks
from brepfind.metrics.ranks import RankCounts, chance_counts
from brepfind.metrics.relevance import Relevance
from brepfind.metrics.rows import unit_rows
from brepfind.models.text import TextTower
from brepfind.params import check_section, read_params
from brepfind.pipeline import paths
from brepfind.retrieval.embed import embed
from brepfind.retrieval.model import load_trained
from brepfind.retrieval.relevant import caption_ids, text_to_cad_relevance
from brepfind.retrieval.ridge import ridge_counts, ridge_data
from brepfind.training.config import TrainConfig

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build/bench-sample"
OUT = ROOT / "benchmarks/results/sample.json"
SEEDS = (1, 2, 3)
# Of the twelve families of phrasings; each is left out of one more training.
HELD_OUT = ("question", "record", "spoken")

VARIANTS: dict[str, dict[str, Any]] = {
    "brepfind": {},
    "no_pretraining": {"weights": None},
    "no_size_features": {"size_features": False, "number_features": False},
    "no_number_features": {"number_features": False},
    "no_shape_features": {"shape_features": False},
}

Trainings = Mapping[tuple[str, int], Training]  # by row and seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """The sample as `dvc repro sanitize` left it."""

    corpus: Corpus
    store: GraphStore
    split: pd.DataFrame
    twins: Mapping[str, int]

    @property
    def test_ids(self) -> list[str]:
        """Parts of the test split, sorted."""
        return sorted(self.split["model_id"][self.split["split"] == "test"])

    def with_captions(self, captions: pd.DataFrame) -> Corpus:
        """The corpus with the test parts' captions replaced by ``model_id, caption`` rows."""
        kept = self.corpus.captions[~self.corpus.captions["model_id"].isin(self.test_ids)]
        captions = captions[captions["model_id"].isin(self.test_ids)]
        fresh = captions[["model_id", "caption"]].assign(level=-1, phrasing="")
        fresh["index"] = fresh.groupby("model_id").cumcount()
        both = pd.concat([kept, fresh]).sort_values(["model_id", "index"], ignore_index=True)
        return replace(self.corpus, captions=both)


def main() -> int:
    """The command; returns its exit code."""
    setup_logging()
    split = pd.read_parquet(ROOT / paths.SPLIT)
    data = Data(
        corpus=read_corpus(ROOT / paths.CORPUS),
        store=GraphStore(ROOT / paths.GRAPHS),
        split=split,
        twins=dict(zip(split["model_id"], split["twin"], strict=True)),
    )
    trainings = {
        (name, seed): _training(name, seed, changes, ROOT / paths.CORPUS)
        for name, changes in VARIANTS.items()
        for seed in SEEDS
    }
    for phrasing in HELD_OUT:
        narrow = _without_phrasing(data, phrasing)
        trainings[phrasing, SEEDS[0]] = _training(f"without_{phrasing}", SEEDS[0], {}, narrow)
    train_all(list(trainings.values()))

    result = {
        "text_to_cad": _table(data, data.corpus, trainings),
        "handwritten": _table(data, data.with_captions(handwritten_captions()), trainings),
    }
    held_out = {phrasing: _held_out(data, phrasing, trainings) for phrasing in HELD_OUT}
    facts = {"parts": len(split), "test_parts": len(data.test_ids), "seeds": list(SEEDS)}
    write_json(OUT, {**facts, **result, "held_out_phrasings": held_out})
    for name, table in [*result.items(), *held_out.items()]:
        _print(name, table)
    console.print(f"written to {OUT.relative_to(ROOT)}")
    return 0


def _without_phrasing(data: Data, phrasing: str) -> Path:
    """A corpus folder without the captions of one family of phrasings."""
    folder = WORK / f"corpus-without-{phrasing}"
    root = os.path.relpath(data.corpus.root, folder)
    captions = data.corpus.captions[data.corpus.captions["phrasing"] != phrasing]
    write_corpus(folder, data.corpus.parts, captions, root, data.corpus.source, {})
    return folder


def _training(name: str, seed: int, changes: Mapping[str, Any], corpus: Path) -> Training:
    """One training of a row; ``weights`` None among the changes is without pretraining."""
    changes = dict(changes)
    weights = changes.pop("weights", ROOT / paths.WEIGHTS)
    settings = read_params(ROOT / paths.PARAMS)["train"]
    settings |= {"processes": 1, "seed": seed, **changes}
    return Training(
        name=name,
        encoder="brepfind",
        config=check_section(settings, "train", TrainConfig),
        weights=weights,
        graphs=ROOT / paths.GRAPHS,
        corpus=corpus,
        split=ROOT / paths.SPLIT,
        work=WORK,
    )


def _table(data: Data, corpus: Corpus, trainings: Trainings) -> dict[str, Any]:
    """Rows by name for one set of captions of the test parts, and the difference to ridge."""
    hits: dict[str, NDArray[np.float64]] = {}
    for name in VARIANTS:
        found = [_model_counts(data, corpus, trainings[name, seed]) for seed in SEEDS]
        hits[name] = np.mean([hits_of(counts) for counts, _, _ in found], axis=0)
    _, parts, relevance = found[0]
    hits["chance"] = hits_of(chance_counts(relevance))
    tower = TextTower.load(read_params(ROOT / paths.PARAMS)["train"]["text_tower"], "frozen", 1)
    ridge = ridge_data(data.store, corpus, data.split, data.twins, tower)
    hits["ridge"] = hits_of(ridge_counts(ridge)[0])
    rows: dict[str, Any] = {name: row_of(values, parts) for name, values in hits.items()}
    for name in VARIANTS:
        rows[name]["mean_recall_over_ridge"] = margin_of(hits[name], hits["ridge"], parts)
        if name != "brepfind":  # what the model owes to what this row lacks
            gain = margin_of(hits["brepfind"], hits[name], parts)
            rows[name]["mean_recall_of_brepfind_over_it"] = gain
    return rows


def _held_out(data: Data, phrasing: str, trainings: Trainings) -> dict[str, Any]:
    """The test captions of one phrasing, by a model that knew it and by one that did not."""
    captions = data.corpus.captions
    corpus = data.with_captions(captions[captions["phrasing"] == phrasing])
    rows = {}
    for row, name in (("known", "brepfind"), ("unknown", phrasing)):
        counts, parts, _ = _model_counts(data, corpus, trainings[name, SEEDS[0]])
        rows[row] = row_of(hits_of(counts), parts)
    return rows


def _model_counts(
    data: Data, corpus: Corpus, training: Training
) -> tuple[RankCounts, NDArray[np.int64], Relevance]:
    """Ranks of the test parts' captions, the part of each, and what answers them."""
    trained = load_trained(training.folder / "model/best.safetensors")
    reader = PartReader(ROOT / paths.GRAPHS, ROOT / ".brepfind/pairs")
    found = embed(trained.model, reader, corpus, data.test_ids, twins=data.twins)
    relevance = text_to_cad_relevance(
        caption_ids(found.captions["caption"]), found.caption_part, found.twins
    )
    text, cad = unit_rows("text", found.text), unit_rows("CAD", found.cad)
    return count_ranks(text, cad, relevance), found.caption_part, relevance


def _print(name: str, table: Mapping[str, Any]) -> None:
    console.print(f"\n{name.replace('_', ' ')}")
    for row, numbers in table.items():
        recalls = "  ".join(f"{100 * numbers[f'R_at_{k}']:5.1f}" for k in KS)
        said = f"  {row:20s} {recalls}"
        said += _margin("over ridge", numbers.get("mean_recall_over_ridge"))
        said += _margin("brepfind over it", numbers.get("mean_recall_of_brepfind_over_it"))
        console.print(said, markup=False, highlight=False, soft_wrap=True)


def _margin(what: str, margin: Mapping[str, Any] | None) -> str:
    if margin is None:
        return ""
    low, high = margin["interval_95"]
    return f"  {what} {100 * margin['difference']:+5.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


if __name__ == "__main__":
    sys.exit(main())
