"""Real parts with real words: `make bench-kicad`.

2,000 parts of KiCad's library, chosen and split in ``benchmarks/data/kicad-2000.csv`` before
anything was trained on them; see :mod:`benchmarks.kicad_choose`. Rows: this model; it without what
tells it of size, without pretraining, with the text tower frozen, without the edges on the path
between two faces; UV-Net in the encoder's place, for as long; ridge regression from descriptors;
BM25 of the query against the paths of the files, the lookup a person would use today; chance.

The learning rates of this model and of UV-Net are chosen on validation, from the same number of
trials; the model's rows share its choice. Each model is trained with two seeds and a query counts
as their mean. Intervals draw parts. The test split is read here, once, after all is trained. What
is done is kept in ``build/bench-kicad``, so that the bench can be stopped and goes on.

Needs ``make data-kicad``. Writes ``benchmarks/results/kicad.json``. ``--baselines`` reads the
validation split instead, trains nothing and writes nothing; ``--smoke N`` takes N parts and two
epochs in a folder of its own, to see that everything runs, and reads validation, too. ``--try
batch_size=64 lr=1e-3`` trains once with some settings changed and notes what they give on
validation in ``benchmarks/results/kicad_tried.json``: how the settings below were found.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from benchmarks import kicad_train
from benchmarks.kicad_data import Data, prepare_data
from benchmarks.kicad_lookup import path_scores
from benchmarks.rows import KS, hits_of, margin_of, row_of
from benchmarks.trainings import Training, train_all
from brepfind.files import read_json, write_json
from brepfind.log import console, setup_logging
from brepfind.metrics.counting import count_both
from brepfind.metrics.ranks import chance_counts
from brepfind.metrics.relevance import Relevance
from brepfind.metrics.rows import unit_rows
from brepfind.models.text import TextTower
from brepfind.params import check_section, read_params
from brepfind.pipeline import paths
from brepfind.retrieval.embed import embed
from brepfind.retrieval.relevant import caption_ids, text_to_cad_relevance
from brepfind.retrieval.ridge import ridge_data, ridge_rows
from brepfind.training.config import TrainConfig

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build/bench-kicad"
OUT = ROOT / "benchmarks/results/kicad.json"
TRIED = OUT.with_name("kicad_tried.json")
SEEDS = (1, 2)
TRIALS = (1e-3, 3e-4)  # learning rates
EPOCHS = 10
# UV-Net learns from the grids of all faces, and a step takes seven times as long: three epochs cost
# more than ten of this model and its pretraining together.
UVNET_EPOCHS = 3

# What this corpus wants otherwise than ``params.yaml`` has it.
KICAD: dict[str, Any] = {"pattern_features": True}

ROWS: dict[str, dict[str, Any]] = {
    "brepfind": {},
    "no_size_features": {
        "size_features": False,
        "number_features": False,
        "pattern_features": False,
    },
    "no_pretraining": {"weights": None},
    "frozen_text": {"text_train": "frozen"},
    "no_edge_path": {"encoder_kind": "no_edge_path"},
    "uvnet": {
        "encoder_kind": "uvnet",
        "weights": None,
        "epochs": UVNET_EPOCHS,
        "size_features": False,
        "shape_features": False,
        "number_features": False,
        "pattern_features": False,
        "freeze": [],
        "freeze_batch_norm": False,
    },
}

Hits = dict[str, NDArray[np.float64]]  # by direction: (Q, len(KS))


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    setup_logging()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kicad")
    parser.add_argument("--baselines", action="store_true", help="on validation, training nothing")
    parser.add_argument("--smoke", type=int, metavar="N", help="N parts, two epochs")
    parser.add_argument("--try", nargs="*", metavar="NAME=VALUE", dest="tried")
    asked = parser.parse_args(arguments)
    if asked.tried is not None and asked.smoke:
        parser.error("--try is about all parts; leave --smoke out")
    if any("=" not in one for one in asked.tried or ()):
        parser.error("--try takes settings of train in params.yaml, such as batch_size=64")
    work = WORK.with_name(f"bench-kicad-smoke-{asked.smoke}") if asked.smoke else WORK
    data = prepare_data(ROOT, work, asked.smoke)
    if asked.baselines:
        _print(_tables(data, baselines(data, "validation"), "validation"))
        return 0
    if asked.tried is not None:
        _try(data, work, asked.tried)
        return 0
    chosen = _choose(data, work, asked.smoke)
    trainings = {
        name: [_training(data, work, name, seed, chosen, asked.smoke) for seed in SEEDS]
        for name in ROWS
    }
    train_all([one for several in trainings.values() for one in several])
    # Only now is the test split looked at, and only by the whole bench.
    side = "validation" if asked.smoke else "test"
    hits = {name: _model_hits(data, several, side) for name, several in trainings.items()}
    tables = _tables(data, hits | baselines(data, side), side)
    result = {
        **tables,
        "parts": data.split["split"].value_counts().sort_index().to_dict(),
        "seeds": list(SEEDS),
        "epochs": {"brepfind": EPOCHS, "uvnet": UVNET_EPOCHS},
        "learning_rates_tried": list(TRIALS),
        "learning_rates": chosen,
        "known_to_pretraining": data.known_to_pretraining,
        "seconds": {name: _seconds(several) for name, several in trainings.items()},
    }
    out = work / "smoke.json" if asked.smoke else OUT
    write_json(out, result)
    _print(tables)
    console.print(f"written to {os.path.relpath(out, ROOT)}")
    return 0


# Training -----------------------------------------------------------------------------------------


def _choose(data: Data, work: Path, smoke: int | None) -> dict[str, float]:
    """The learning rate of each encoder: the better of the trials on validation, one seed."""
    trials = {
        name: [_training(data, work, name, SEEDS[0], {name: lr}, smoke) for lr in TRIALS]
        for name in ("brepfind", "uvnet")
    }
    train_all([one for several in trials.values() for one in several])
    return {
        name: TRIALS[int(np.argmax([one.numbers()["best"]["recall"] for one in several]))]
        for name, several in trials.items()
    }


def _try(data: Data, work: Path, changes: Sequence[str]) -> None:
    """Train once with other settings, and add what it gives on validation to what was tried."""
    given = {name: yaml.safe_load(value) for name, value in (one.split("=", 1) for one in changes)}
    given = {"lr": TRIALS[0]} | KICAD | given
    one = _training(data, work, "brepfind", SEEDS[0], {}, None, given)
    train_all([one])
    hits = baselines(data, "validation") | {"tried": _model_hits(data, [one], "validation")}
    tables = _tables(data, hits, "validation")
    _print(tables)
    tried = read_json(TRIED) if TRIED.is_file() else {}
    key = " ".join(f"{name}={json.dumps(value)}" for name, value in sorted(given.items()))
    tried[key] = tables["text_to_cad"]["tried"]
    write_json(TRIED, tried)


def _training(
    data: Data,
    work: Path,
    name: str,
    seed: int,
    lr: Mapping[str, float],
    smoke: int | None,
    given: Mapping[str, Any] | None = None,
) -> Training:
    changes = KICAD | ROWS[name] | dict(given or {})
    encoder = changes.pop("encoder_kind", "brepfind")
    weights = changes.pop("weights", data.weights)
    settings = read_params(ROOT / paths.PARAMS)["train"]
    settings |= {
        "processes": 1,
        "epochs": EPOCHS,
        "seed": seed,
        "lr": lr.get(name, lr.get("brepfind")),
    }
    settings |= changes
    if smoke:
        settings |= {"epochs": 2, "batch_size": 8, "min_embedding_std": 0.0, "min_distinct_rows": 0}
    return Training(
        name=name,
        encoder=encoder,
        config=check_section(settings, "train", TrainConfig),
        weights=weights,
        graphs=data.graphs,
        corpus=data.corpus_folder,
        split=data.split_file,
        work=work,
    )


def _seconds(trainings: Sequence[Training]) -> float:
    """Seconds of training of one seed, the mean."""
    costs = [read_json(one.folder / "cost.json")["seconds_by_part"] for one in trainings]
    return round(float(np.mean([sum(cost.values()) for cost in costs])), 1)


# Rows ---------------------------------------------------------------------------------------------


def _model_hits(data: Data, trainings: Sequence[Training], side: str) -> Hits:
    found = []
    for one in trainings:
        model = kicad_train.load(one.encoder, one.config, one.folder / "model/best.safetensors")
        rows = embed(model, data.reader, data.corpus, data.ids(side), twins=data.twins)
        relevance = text_to_cad_relevance(
            caption_ids(rows.captions["caption"]), rows.caption_part, rows.twins
        )
        found.append(_both(unit_rows("text", rows.text), unit_rows("CAD", rows.cad), relevance))
    return {side: np.mean([hits[side] for hits in found], axis=0) for side in found[0]}


def baselines(data: Data, side: str) -> dict[str, Hits]:
    """What needs no training: ridge, BM25 and chance on a split."""
    tower = TextTower.load(read_params(ROOT / paths.PARAMS)["train"]["text_tower"], "frozen", 1)
    split = data.split.sort_values("model_id", ignore_index=True)
    ridge = ridge_data(data.store, data.corpus, split, data.twins, tower)
    (text, cad, relevance), alpha, _ = ridge_rows(ridge, side)
    console.print(f"ridge: alpha {alpha:g}, chosen on validation")
    captions = data.captions(side)
    scores = path_scores(captions["caption"].tolist(), data.ids(side))
    return {
        "ridge": _both(text, cad, relevance),
        "bm25": _both(scores, np.eye(scores.shape[1]), relevance),
        "chance": {
            "text_to_cad": hits_of(chance_counts(relevance)),
            "cad_to_text": hits_of(chance_counts(relevance.transpose())),
        },
    }


def _both(text: NDArray[Any], cad: NDArray[Any], relevance: Relevance) -> Hits:
    forward, backward = count_both(text, cad, relevance)
    return {"text_to_cad": hits_of(forward), "cad_to_text": hits_of(backward)}


def _tables(data: Data, hits: Mapping[str, Hits], side: str) -> dict[str, Any]:
    """Rows by direction and name, each beside ridge on the same queries."""
    part = {name: number for number, name in enumerate(data.ids(side))}
    units: dict[str, NDArray[np.int64]] = {
        "text_to_cad": np.array([part[name] for name in data.captions(side)["model_id"]], np.int64),
        "cad_to_text": np.arange(len(part), dtype=np.int64),
    }
    return {
        direction: {
            name: {
                **row_of(found[direction], units[direction]),
                "mean_recall_over_ridge": margin_of(
                    found[direction], hits["ridge"][direction], units[direction]
                ),
                **_behind(name, direction, hits, units[direction]),
            }
            for name, found in hits.items()
        }
        for direction in units
    }


def _behind(
    name: str, direction: str, hits: Mapping[str, Hits], units: NDArray[np.int64]
) -> dict[str, Any]:
    """How far a row of the model is behind the model itself, on the same queries."""
    if name == "brepfind" or name not in ROWS or "brepfind" not in hits:
        return {}
    ours, theirs = hits["brepfind"][direction], hits[name][direction]
    return {"mean_recall_of_brepfind_over_it": margin_of(ours, theirs, units)}


def _print(tables: Mapping[str, Any]) -> None:
    for direction, rows in tables.items():
        console.print(f"\n{direction.replace('_', ' ')}")
        frame = pd.DataFrame(
            {
                name: [
                    f"{100 * row[f'R_at_{k}']:.1f} ({_ends(row['interval_95'][f'R_at_{k}'])})"
                    for k in KS
                ]
                + [
                    f"{100 * row['mean_recall_over_ridge']['difference']:+.1f} "
                    f"({_ends(row['mean_recall_over_ridge']['interval_95'])})"
                ]
                for name, row in rows.items()
            },
            index=[*(f"R@{k}, %" for k in KS), "over ridge"],
        )
        console.print(frame.T.to_string(), markup=False, highlight=False, soft_wrap=True)


def _ends(interval: Sequence[float]) -> str:
    return " to ".join(f"{100 * end:.1f}" for end in interval)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
