"""health: is the trained checkpoint sound, and do its embeddings still tell parts apart?

The gate looks at what training left: every tensor of its files (weights, buffers, optimizer state,
and an average of the weights where a file has one), the units on a probe batch, the embeddings of
validation parts, and whether the checkpoint gives the loss it was saved with. `brepfind rollback`
asks the same of the other checkpoints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from brepfind import findings
from brepfind.checkpoints.doctor import Diagnosis, diagnose
from brepfind.corpus.manifest import read_corpus
from brepfind.errors import InputError
from brepfind.files import read_json, write_json, write_text
from brepfind.findings import Finding
from brepfind.graphs.dataset import PartReader
from brepfind.log import console
from brepfind.metrics.activations import UnitVitals, unit_findings
from brepfind.metrics.causes import Circumstances
from brepfind.metrics.gate import HealthConfig
from brepfind.metrics.history import Story, tell
from brepfind.models.dual import DualEncoder
from brepfind.pipeline import paths
from brepfind.pipeline.context import StageContext
from brepfind.retrieval.embed import embed
from brepfind.retrieval.embeddings import Embeddings
from brepfind.retrieval.health import (
    EmbeddingHealth,
    TowerVitals,
    check_embeddings,
    probe_ids,
    tower_vitals,
)
from brepfind.retrieval.model import Trained, load_trained
from brepfind.retrieval.probe import probe_units
from brepfind.retrieval.recorded import agreement
from brepfind.training.build import build_dual
from brepfind.training.config import TrainConfig

BEST, LAST = "best.safetensors", "last.safetensors"
CHECKED = (BEST, LAST, "optimizer.pt")

# Parts, and captions of theirs, on which units are looked at.
_PROBE_PARTS, _PROBE_CAPTIONS = 32, 64


def health(context: StageContext) -> Mapping[str, Any]:
    """Write ``reports/health.json``; halts on anything not finite, on any collapse, and on a
    checkpoint that is not what was trained.

    Files come first; the model is loaded only if those are sound, since one NaN weight makes all
    embeddings NaN and hides where it came from.
    """
    gate = Gate(
        project=context.project,
        home=context.home,
        limits=context.section("health", HealthConfig),
        config=context.section("train", TrainConfig),
    )
    story = gate.story()
    files = gate.files(CHECKED)
    write_json(context.evidence / "tensors.json", files.rows)
    findings.require("health: the checkpoint", files.findings, then=since(story))
    seen = gate.model(BEST, step0=True)
    report = seen.as_json() | {
        "tensors": files.counts,
        "history": {"sentence": story.sentence(), "last_sound_epoch": story.last_sound},
    }
    for at in (context.evidence / "health.json", context.path(paths.REPORTS) / "health.json"):
        write_json(at, report)
    console.print(seen.embeddings.text, markup=False, highlight=False, soft_wrap=True)
    write_text(context.evidence / "health.txt", seen.embeddings.text + "\n")
    context.tracker.artifact(context.path(paths.REPORTS) / "health.json", "health")
    seen.require(since(story))
    return _numbers(seen, files)


@dataclass(frozen=True, kw_only=True)
class Files:
    """What the doctor says of the files of a training.

    Attributes:
        findings: every symptom. rows: the same for ``tensors.json``.
        counts: tensors by role in all files: weights, optimizer, scaler, ema, other. Training
            keeps no average of the weights (``ema``); one in a file is looked at like the rest.
    """

    findings: tuple[Finding, ...]
    rows: list[dict[str, Any]]
    counts: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the gate saw of one model.

    Attributes:
        units: every module's state on the probe batch.
        record: the findings on whether it is what was trained.
    """

    trained: Trained
    embeddings: EmbeddingHealth
    units: tuple[UnitVitals, ...]
    record: tuple[Finding, ...]

    @cached_property
    def unit_findings(self) -> list[Finding]:
        """Of the modules that are not well; a last one says how many were looked at."""
        odd = [f for f in unit_findings(self.units) if f.verdict != "ok"]
        judged = sum(unit.judged for unit in self.units)
        advice = "the probe batch made no module's input vary: nothing can be said of its units"
        return [*odd, findings.at_least("health.units.judged", judged, 1, advice=advice)]

    @property
    def findings(self) -> list[Finding]:
        """All of them; the embeddings' first, by which a collapse is known."""
        return [*self.embeddings.findings, *self.unit_findings, *self.record]

    def require(self, then: str = "") -> None:
        """Raise if anything failed.

        Raises:
            CheckFailed: with all findings, and the likely causes among them.
        """
        causes = [
            Finding(
                name=f"health.cause.{cause.name}",
                value="likely",
                limit="none",
                verdict="warning",
                advice=cause.sentence,
            )
            for cause in self.embeddings.causes
        ]
        groups = {
            "the embeddings": self.embeddings.findings,
            "units on a probe batch": self.unit_findings,
            "the checkpoint is not what was trained": self.record,
        }
        for what, mine in groups.items():
            if findings.failed(mine):
                rest = [finding for finding in self.findings if finding not in mine]
                findings.require(f"health: {what}", [*mine, *rest, *causes], then=then)

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        report = self.embeddings.as_json()
        more = [finding.as_json() for finding in (*self.unit_findings, *self.record)]
        return report | {
            "model": {"digest": self.trained.digest, "epoch": int(self.trained.metadata["epoch"])},
            "findings": report["findings"] + more,
        }


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The health gate of one project.

    Attributes:
        project: its root. home: where caches lie.
        limits, config: what is asked, and how the model was trained.
    """

    project: Path
    home: Path
    limits: HealthConfig
    config: TrainConfig

    @property
    def folder(self) -> Path:
        """Where training left its files."""
        return self.project / paths.MODEL

    def files(self, names: Sequence[str]) -> Files:
        """Look at every value of every tensor of some files in the model's folder."""
        found: list[Finding] = []
        rows: list[dict[str, Any]] = []
        counts: Counter[str] = Counter(weights=0, optimizer=0, ema=0)
        for name in names:
            diagnosis = diagnose(self.folder / name)
            found += _of_file(name, diagnosis)
            rows += [{"file": name, **symptom.as_json()} for symptom in diagnosis.symptoms]
            counts.update(diagnosis.counts)
        return Files(findings=tuple(found), rows=rows, counts=dict(sorted(counts.items())))

    def story(self) -> Story:
        """Since when the run is broken, by its history."""
        parts = int(read_json(self.folder / "train.json")["validation_parts"])
        attainable = max(1, min(parts - 1, self.config.embed_dim))
        return tell(self._history, self.limits, attainable=attainable)

    def model(self, name: str, *, step0: bool = False) -> Seen:
        """Load a model afresh and judge it.

        Args:
            step0: whether the same parts are embedded by the untrained model too, which tells a
                text tower that always pointed one way from one that collapsed.
        """
        trained = load_trained(self.folder / name)
        captions = self._corpus.captions
        some = self._ids[:_PROBE_PARTS]
        told = captions["caption"][captions["model_id"].isin(some)].tolist()[:_PROBE_CAPTIONS]
        units = probe_units(trained.model, self._reader, some, told)
        dead = [finding.name for finding in unit_findings(units) if finding.verdict == "failed"]
        embeddings = self._embed(trained.model, trained.digest)
        scale = float(trained.model.logit_scale.detach().exp())
        report = check_embeddings(
            embeddings,
            self.limits,
            step0=self._step0(trained.model) if step0 else None,
            known=Circumstances(
                dead_weights=[one.removeprefix("health.units.") for one in dead],
                text_frozen=self.config.text_train == "frozen",
                scale=scale,
                batch=self.config.batch_size,
                loss=self._history[-1]["loss"],
            ),
        )
        return Seen(
            trained=trained,
            embeddings=report,
            units=tuple(units),
            record=tuple(self._record(trained, embeddings, scale, report)),
        )

    def _record(
        self, trained: Trained, embeddings: Embeddings, scale: float, report: EmbeddingHealth
    ) -> list[Finding]:
        broken = [v.nonfinite_rows + v.zero_rows for v in (report.vitals.cad, report.vitals.text)]
        if any(broken):  # no loss can be taken, and the embeddings' own findings say why
            return []
        validation = self._split["model_id"][self._split["split"] == "validation"]
        return agreement(trained.metadata, embeddings.select(set(validation)), scale)

    def _step0(self, trained: DualEncoder) -> TowerVitals:
        """The vital signs of the same model before its first step."""
        weights = self.project / paths.WEIGHTS
        fresh = build_dual(self.config, weights if weights.is_file() else None)
        with torch.no_grad():
            fresh.facts_mean.copy_(trained.facts_mean)
            fresh.facts_std.copy_(trained.facts_std)
        return tower_vitals(self._embed(fresh, ""))

    def _embed(self, model: DualEncoder, digest: str) -> Embeddings:
        twins = dict(zip(self._split["model_id"], self._split["twin"], strict=True))
        return embed(model, self._reader, self._corpus, self._ids, twins=twins, digest=digest)

    @cached_property
    def _history(self) -> list[dict[Any, Any]]:
        file = self.folder / "history.csv"
        if not file.is_file():
            raise InputError(f"{file} is not there; train again with `dvc repro train`")
        # A cell is empty where a number was not finite: NaN again, which fails.
        return pd.read_csv(file).to_dict("records")

    @cached_property
    def _split(self) -> pd.DataFrame:
        return pd.read_parquet(self.project / paths.SPLIT)

    @cached_property
    def _ids(self) -> list[str]:
        return probe_ids(self._split, self.limits.min_rows)

    @cached_property
    def _corpus(self) -> Any:
        return read_corpus(self.project / paths.CORPUS)

    @cached_property
    def _reader(self) -> PartReader:
        return PartReader(self.project / paths.GRAPHS, self.home / "pairs")


def since(story: Story) -> str:
    """What the history adds to a failure, and the way back."""
    return f"by its history the run is {story.sentence()}. `brepfind rollback` looks for a way back"


def _of_file(name: str, diagnosis: Diagnosis) -> list[Finding]:
    found = [symptom.finding() for symptom in diagnosis.symptoms]
    if diagnosis.error:
        found.append(
            Finding(
                name=f"health.{name}",
                value="not readable",
                limit="whole",
                verdict="failed",
                advice=diagnosis.error,
            )
        )
    tensors = findings.at_least(
        f"health.{name}.tensors",
        sum(diagnosis.counts.values()),
        1,
        advice="a file without tensors is no checkpoint; train again",
    )
    return [*found, tensors]


def _numbers(seen: Seen, files: Files) -> dict[str, Any]:
    """What ``metrics/health.json`` holds."""
    vitals = seen.embeddings.vitals
    step0 = {tower.tower.lower(): tower.step0 for tower in seen.embeddings.towers}
    return {
        "self_retrieval": seen.embeddings.self_retrieval,
        "embedded_parts": vitals.cad.n,
        "epoch": int(seen.trained.metadata["epoch"]),
        "model": seen.trained.digest,
        "warnings": sum(finding.verdict == "warning" for finding in seen.findings),
        # Constant and zero tensors are many in a young model and no reason to worry by themselves.
        "tensors_worth_a_look": sum(finding.verdict == "warning" for finding in files.findings),
        "tensors": files.counts,
        "units": {
            "modules": len(seen.units),
            "judged": sum(unit.judged for unit in seen.units),
            "most_dead": max(unit.dead for unit in seen.units),
            "most_shut": max(unit.shut for unit in seen.units),
        },
        **{finding.name.removeprefix("health."): finding.value for finding in seen.record},
        "cad": vitals.cad.numbers(),
        "text": vitals.text.numbers(),
        "pair": seen.embeddings.pair.as_json(),
        "step0": {name: signs.numbers() for name, signs in step0.items() if signs is not None},
    }
