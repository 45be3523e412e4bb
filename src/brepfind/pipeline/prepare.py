"""prepare: the corpus manifest, from generated parts or from the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from brepfind import findings
from brepfind.corpus import prepare as corpus_prepare
from brepfind.corpus.manifest import read_corpus
from brepfind.corpus.prepare import PrepareConfig
from brepfind.pipeline import paths
from brepfind.pipeline.context import StageContext


def prepare(context: StageContext) -> Mapping[str, Any]:
    """Write ``data/corpus``; halts when too many captions have no part, or parts no caption."""
    config = context.section("prepare", PrepareConfig)
    out = context.path(paths.CORPUS)
    checks = corpus_prepare.prepare(config, out, context.runtime.workers_here())
    findings.require("prepare", checks)
    corpus = read_corpus(out)
    levels = corpus.captions["level"].value_counts().sort_index()
    return {
        "parts": len(corpus.parts),
        "captions": len(corpus.captions),
        "families": int(corpus.parts["family"].nunique()),
        "captions_by_level": {str(level): int(count) for level, count in levels.items()},
        "checks": {check.name: check.value for check in checks},
    }
