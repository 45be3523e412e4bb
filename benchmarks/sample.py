"""The model beside plain ones on the sample corpus: `make bench-sample`.

Rows: this model; it without pretraining, without what tells it of size, without the comparison of
lengths, without descriptors; ridge regression from descriptors; chance. Captions: those of the
sample's templates, and those that a person wrote for parts of the test split. Three more models
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
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from brepfind.corpus.manifest import Corpus, read_corpus, write_corpus
from brepfind.corpus.sample.handwritten import handwritten_captions
from brepfind.files import digest, sha256, write_json
from brepfind.graphs.dataset import PartReader
from brepfind.graphs.store import GraphStore
from brepfind.log import console, progress, setup_logging
from brepfind.metrics.counting import count_ranks
from brepfind.metrics.intervals import bootstrap_mean
from brepfind.metrics.ranks import RankCounts, chance_counts, exact_mean
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
from brepfind.training.job import Job

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build/bench-sample"
OUT = ROOT / "benchmarks/results/sample.json"
SEEDS = (1, 2, 3)
KS = (1, 5, 10)
DRAWS = 10_000
# Of the twelve families of phrasings; each is left out of one more training.
HELD_OUT = ("question", "record", "spoken")

VARIANTS: dict[str, dict[str, Any]] = {
    "brepfind": {},
    "no_pretraining": {"weights": None},
    "no_size_features": {"size_features": False, "number_features": False},
    "no_number_features": {"number_features": False},
    "no_shape_features": {"shape_features": False},
}


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
    jobs = {
        (name, seed): _job(name, seed, changes, ROOT / paths.CORPUS)
        for name, changes in VARIANTS.items()
        for seed in SEEDS
    }
    for phrasing in HELD_OUT:
        narrow = _without_phrasing(data, phrasing)
        jobs[phrasing, SEEDS[0]] = _job(f"without_{phrasing}", SEEDS[0], {}, narrow)
    _train(jobs)

    result = {
        "text_to_cad": _table(data, data.corpus, jobs),
        "handwritten": _table(data, data.with_captions(handwritten_captions()), jobs),
    }
    held_out = {phrasing: _held_out(data, phrasing, jobs) for phrasing in HELD_OUT}
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


def _job(name: str, seed: int, changes: Mapping[str, Any], corpus: Path) -> Job:
    """One training of one process, in a folder named after all that decides it."""
    changes = dict(changes)
    weights = str(ROOT / paths.WEIGHTS) if changes.pop("weights", "") is not None else None
    settings = read_params(ROOT / paths.PARAMS)["train"]
    settings |= {"processes": 1, "seed": seed, **changes}
    inputs = [paths.GRAPHS / "manifest.parquet", paths.SPLIT, paths.WEIGHTS]
    key = digest(
        [
            settings,
            weights is None,
            [sha256(ROOT / path) for path in inputs],
            sha256(corpus / "captions.parquet"),
        ]
    )
    folder = WORK / f"{name}-{seed}-{key[:12]}"
    return Job(
        train=check_section(settings, "train", TrainConfig),
        graphs=str(ROOT / paths.GRAPHS),
        corpus=str(corpus),
        split=str(ROOT / paths.SPLIT),
        weights=weights,
        out=str(folder / "model"),
        state=str(folder / "state"),
        events=str(folder / "events.jsonl"),
        cost=str(folder / "cost.json"),
        postmortem=str(folder / "postmortem"),
        features=str(ROOT / ".brepfind/features"),
        pairs=str(ROOT / ".brepfind/pairs"),
        device="cpu",
    )


def _train(jobs: Mapping[tuple[str, int], Job]) -> None:
    """Train what is not there yet, one process per core."""
    todo = [job for job in jobs.values() if not (Path(job.out) / "train.json").is_file()]
    with progress("training", len(todo)) as bar, ThreadPoolExecutor(os.cpu_count()) as pool:
        # The first alone: it computes the frozen features that the others read.
        for job in todo[:1]:
            _run(job)
            bar.advance(1)
        for _ in pool.map(_run, todo[1:]):
            bar.advance(1)


def _run(job: Job) -> None:
    folder = Path(job.out).parent
    folder.mkdir(parents=True, exist_ok=True)
    job.write(folder / "job.json")
    command = [sys.executable, "-m", "brepfind.distributed.launch", "--standalone"]
    command += ["--nproc-per-node=1", "-m", "brepfind.training", str(folder / "job.json")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (folder / "log.txt").open("w") as log:
        done = subprocess.run(command, env=environment, stdout=log, stderr=log, check=False)
    if done.returncode:
        raise SystemExit(f"training ended with code {done.returncode}; see {folder / 'log.txt'}")


def _table(data: Data, corpus: Corpus, jobs: Mapping[tuple[str, int], Job]) -> dict[str, Any]:
    """Rows by name for one set of captions of the test parts, and the difference to ridge."""
    hits: dict[str, NDArray[np.float64]] = {}
    for name in VARIANTS:
        found = [_model_counts(data, corpus, jobs[name, seed]) for seed in SEEDS]
        hits[name] = np.mean([_hits(counts) for counts, _, _ in found], axis=0)
    _, parts, relevance = found[0]
    hits["chance"] = _hits(chance_counts(relevance))
    tower = TextTower.load(read_params(ROOT / paths.PARAMS)["train"]["text_tower"], "frozen", 1)
    ridge = ridge_data(data.store, corpus, data.split, data.twins, tower)
    hits["ridge"] = _hits(ridge_counts(ridge)[0])
    rows: dict[str, Any] = {name: _row(values, parts) for name, values in hits.items()}
    for name in VARIANTS:
        margin = (hits[name] - hits["ridge"]).mean(axis=1)
        rows[name]["mean_recall_over_ridge"] = {
            "difference": exact_mean(margin),
            "interval_95": list(bootstrap_mean(margin, parts, draws=DRAWS) or ()),
        }
    return rows


def _held_out(data: Data, phrasing: str, jobs: Mapping[tuple[str, int], Job]) -> dict[str, Any]:
    """The test captions of one phrasing, by a model that knew it and by one that did not."""
    captions = data.corpus.captions
    corpus = data.with_captions(captions[captions["phrasing"] == phrasing])
    rows = {}
    for row, name in (("known", "brepfind"), ("unknown", phrasing)):
        counts, parts, _ = _model_counts(data, corpus, jobs[name, SEEDS[0]])
        rows[row] = _row(_hits(counts), parts)
    return rows


def _model_counts(
    data: Data, corpus: Corpus, job: Job
) -> tuple[RankCounts, NDArray[np.int64], Relevance]:
    """Ranks of the test parts' captions, the part of each, and what answers them."""
    trained = load_trained(Path(job.out) / "best.safetensors")
    reader = PartReader(ROOT / paths.GRAPHS, ROOT / ".brepfind/pairs")
    found = embed(trained.model, reader, corpus, data.test_ids, twins=data.twins)
    relevance = text_to_cad_relevance(
        caption_ids(found.captions["caption"]), found.caption_part, found.twins
    )
    text, cad = unit_rows("text", found.text), unit_rows("CAD", found.cad)
    return count_ranks(text, cad, relevance), found.caption_part, relevance


def _hits(counts: RankCounts) -> NDArray[np.float64]:
    """float64 (Q, 3), of each query at 1, 5 and 10."""
    assert counts.answerable.all()
    return np.stack([counts.hits(k) for k in KS], axis=1)


def _row(hits: NDArray[np.float64], parts: NDArray[np.int64]) -> dict[str, Any]:
    names = [f"R_at_{k}" for k in KS]
    return {
        "n_queries": len(hits),
        **{name: exact_mean(hits[:, i]) for i, name in enumerate(names)},
        "mean_recall": exact_mean(hits.mean(axis=1)),
        "interval_95": {
            name: list(bootstrap_mean(hits[:, i], parts, draws=DRAWS) or ())
            for i, name in enumerate(names)
        },
    }


def _print(name: str, table: Mapping[str, Any]) -> None:
    console.print(f"\n{name.replace('_', ' ')}")
    for row, numbers in table.items():
        margin = numbers.get("mean_recall_over_ridge")
        over = (
            f"  over ridge {100 * margin['difference']:+5.1f} "
            f"({100 * margin['interval_95'][0]:+.1f} to {100 * margin['interval_95'][1]:+.1f})"
            if margin
            else ""
        )
        recalls = "  ".join(f"{100 * numbers[f'R_at_{k}']:5.1f}" for k in KS)
        console.print(f"  {row:20s} {recalls}{over}", markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
