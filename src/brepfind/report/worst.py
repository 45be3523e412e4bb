"""The worst queries, with pictures of what was wanted and of what came."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd
from PIL import Image

from brepfind.report import words
from brepfind.report.charts import data_uri
from brepfind.report.part_pictures import Pictures, part_pictures
from brepfind.report.queries import Query, Ranked
from brepfind.report.run import Run
from brepfind.report.section import Content, embeddings_of

MOST = 20
_SIZE = (320, 240)  # pixels of a picture on the page
_QUALITY = 70


def worst(run: Run) -> Content:
    """The captions whose part came last."""
    ranked = Ranked(embeddings_of(run))
    queries = ranked.worst(MOST)
    drawn = _Drawn(run, queries)
    total = len(ranked.captions)
    said = (
        f"The {len(queries)} of {words.many(total, 'caption')} whose part came last. Beside what "
        "was wanted stand the three parts that came first; the bar below a part is a length along "
        "its axes."
        if queries
        else f"None: every one of {words.many(total, 'caption')} finds its part first."
    )
    failed = len(drawn.pictures.failed)
    return {
        "said": said,
        "size": _SIZE,
        "queries": [drawn.card(query) for query in queries],
        "undrawn": f"{words.many(failed, 'part')} could not be drawn." if failed else drawn.without,
    }


class _Drawn:
    """Cards of queries; each part is drawn once and put on the page as often as it came."""

    def __init__(self, run: Run, queries: list[Query]) -> None:
        self.parts: pd.DataFrame = embeddings_of(run).parts
        rows = {query.part for query in queries}
        rows |= {came.part for query in queries for came in query.came}
        ids = [str(self.parts["model_id"].iloc[row]) for row in sorted(rows)]
        self.without, self.facts = "", pd.DataFrame()
        self.pictures = Pictures({}, {}, 0)
        if run.graphs is not None:
            self.facts = run.graphs.drop_duplicates("model_id").set_index("model_id")
        if run.graphs is None or run.steps is None or run.pictures is None:
            self.without = "No pictures: the STEP files' places are not known."
            return
        steps: Path = run.steps
        known = [model_id for model_id in ids if model_id in self.facts.index]
        self.pictures = part_pictures(
            [
                (self.facts["sha256"][one], steps / PurePosixPath(self.facts["path"][one]))
                for one in known
            ],
            run.pictures,
            run.workers,
        )
        self.sources = {
            key: data_uri(_small(path), "image/webp") for key, path in self.pictures.paths.items()
        }

    def card(self, query: Query) -> dict[str, Any]:
        """One query."""
        level = words.LEVELS.get(str(query.level), str(query.level))
        shown = [
            self._picture(query.part, "wanted", query.score, wanted=True),
            *(
                self._picture(
                    came.part,
                    f"came {('first', 'second', 'third')[place]}" + (", right" * came.right),
                    came.score,
                )
                for place, came in enumerate(query.came)
            ),
        ]
        return {
            "caption": query.caption,
            "said": f"rank {words.rank(query.rank)} · caption level {level}",
            "pictures": [picture for picture in shown if picture],
        }

    def _picture(
        self, part: int, head: str, score: float, wanted: bool = False
    ) -> dict[str, Any] | None:
        model_id = str(self.parts["model_id"].iloc[part])
        family = str(self.parts["family"].iloc[part]) or "no family"
        if model_id not in self.facts.index or not self.pictures.paths:
            return {"wanted": wanted, "src": "", "alt": "", "head": head, "name": model_id,
                    "said": [family, f"cosine {score:.3f}"]}  # fmt: skip
        facts: dict[Any, Any] = self.facts.loc[model_id].to_dict()
        sides = sorted((facts[f"box_max_{a}"] - facts[f"box_min_{a}"] for a in "xyz"), reverse=True)
        size = " × ".join(f"{side:.3g}" for side in sides)
        why = self.pictures.failed.get(facts["sha256"])
        return {
            "wanted": wanted,
            "src": self.sources[facts["sha256"]],
            "alt": f"no picture of {model_id}: {why}"
            if why
            else f"{model_id}, drawn with its edges",
            "head": head,
            "name": model_id,
            "said": [family, f"{size} mm", f"cosine {score:.3f}"],
        }


def _small(path: Path) -> bytes:
    out = BytesIO()
    with Image.open(path) as image:
        small = image.convert("RGB").resize(_SIZE, Image.Resampling.LANCZOS)
        small.save(out, format="webp", quality=_QUALITY, method=6)
    return out.getvalue()
