"""The health of a set of embeddings: both towers' vital signs, their pair's, and self-retrieval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from brepfind.findings import Finding, at_most
from brepfind.metrics.causes import Cause, Circumstances, likely_causes
from brepfind.metrics.diagnostic import diagnostic
from brepfind.metrics.gate import HealthConfig, Judgement, judge, self_retrieval_finding
from brepfind.metrics.vitals import PairVitals, Vitals, pair_vitals, vitals
from brepfind.retrieval.embeddings import Embeddings
from brepfind.retrieval.evaluate import self_retrieval
from brepfind.retrieval.relevant import caption_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerVitals:
    """Vital signs of both towers, after projection and before it (None where it was not kept)."""

    cad: Vitals
    text: Vitals
    cad_before: Vitals | None
    text_before: Vitals | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingHealth:
    """What the gate says of a set of embeddings.

    Attributes:
        towers: the verdicts, CAD first. vitals, pair: the numbers.
        self_retrieval: R@1 of CAD to CAD, NaN where an embedding is not finite or is zero.
        findings: of all checks, the passed ones too; ``findings.require`` stops on them.
        causes: what a tower that is not well usually comes from, the likeliest first.
        text: the block for the terminal, causes included.
    """

    towers: tuple[Judgement, ...]
    vitals: TowerVitals
    pair: PairVitals
    self_retrieval: float
    findings: tuple[Finding, ...]
    causes: tuple[Cause, ...]
    text: str

    def as_json(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        v = self.vitals
        named = {
            "cad": v.cad,
            "text": v.text,
            "cad_before": v.cad_before,
            "text_before": v.text_before,
        }
        return {
            "verdict": {judged.tower.lower(): judged.state for judged in self.towers},
            "vitals": {name: signs.as_json() for name, signs in named.items() if signs},
            "step0": {
                judged.tower.lower(): judged.step0.as_json()
                for judged in self.towers
                if judged.step0 is not None
            },
            "pair": self.pair.as_json(),
            "self_retrieval": None if np.isnan(self.self_retrieval) else self.self_retrieval,
            "findings": [finding.as_json() for finding in self.findings],
            "causes": [{"name": cause.name, "sentence": cause.sentence} for cause in self.causes],
        }


def tower_vitals(embeddings: Embeddings) -> TowerVitals:
    """The vital signs of both towers; twins and equal captions may have equal rows."""
    parts, captions = embeddings.twins, caption_ids(embeddings.captions["caption"])
    return TowerVitals(
        cad=vitals(embeddings.cad, parts),
        text=vitals(embeddings.text, captions),
        cad_before=_if_kept(embeddings.cad_before, parts),
        text_before=_if_kept(embeddings.text_before, captions),
    )


def distinct_inputs(embeddings: Embeddings) -> int:
    """Different parts, twins counted once, or different captions: the fewer of the two."""
    captions = caption_ids(embeddings.captions["caption"])
    return min(len(np.unique(embeddings.twins)), len(np.unique(captions)))


def check_embeddings(
    embeddings: Embeddings,
    limits: HealthConfig,
    *,
    step0: TowerVitals | None = None,
    known: Circumstances | None = None,
    prefix: str = "health",
) -> EmbeddingHealth:
    """Judge both towers after projection, and self-retrieval.

    Args:
        step0: vital signs of the same parts and captions under the untrained model.
        known: what else is known of the run; it tells likely causes apart.
    """
    signs = tower_vitals(embeddings)
    towers = (
        judge("CAD", signs.cad, limits, step0=step0.cad if step0 else None, prefix=prefix),
        judge("Text", signs.text, limits, step0=step0.text if step0 else None, prefix=prefix),
    )
    sound = signs.cad.nonfinite_rows == 0 and signs.cad.zero_rows == 0 and len(embeddings.cad) > 0
    own = self_retrieval(embeddings) if sound else float("nan")
    findings = [finding for judged in towers for finding in judged.findings]
    findings.append(self_retrieval_finding(own, limits, prefix))
    findings.append(_same_rows(embeddings, prefix))
    causes = likely_causes(towers, known)
    return EmbeddingHealth(
        towers=towers,
        vitals=signs,
        pair=pair_vitals(embeddings.text, embeddings.cad, embeddings.caption_part),
        self_retrieval=own,
        findings=tuple(findings),
        causes=tuple(causes),
        text="\n".join(
            [diagnostic(towers, len(embeddings.cad)), *(f"  {cause.line()}" for cause in causes)]
        ),
    )


def _same_rows(embeddings: Embeddings, prefix: str) -> Finding:
    """Two towers never agree to the last bit: rows that do are one tower's, given twice."""
    same = (embeddings.text == embeddings.cad[embeddings.caption_part]).all(axis=1)
    return at_most(
        f"{prefix}.same_rows",
        float(same.mean()) if len(same) else 0.0,
        0.5,
        advice="captions have the very embeddings of their parts: one tower was given for both",
    )


def probe_ids(split: pd.DataFrame, min_rows: int) -> list[str]:
    """The parts whose embeddings health looks at: validation, topped up from train.

    A collapse shows on any parts, and a small corpus has too few for validation to tell; test
    parts are never looked at.

    Args:
        split: columns ``model_id, split``.
    """
    of = {name: sorted(rows["model_id"]) for name, rows in split.groupby("split")}
    chosen = of.get("validation", [])
    return chosen + of.get("train", [])[: max(0, min_rows - len(chosen))]


def _if_kept(rows: np.ndarray[Any, Any], inputs: np.ndarray[Any, Any]) -> Vitals | None:
    return vitals(rows, inputs) if rows.shape[1] else None
