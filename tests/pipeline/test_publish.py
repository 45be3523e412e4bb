"""Nothing is published that was judged on other weights."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from brepfind.errors import InputError
from brepfind.files import sha256
from brepfind.pipeline import paths
from brepfind.pipeline.publish import _require_one_model


def test_a_verdict_on_other_weights_is_refused(tmp_path: Path) -> None:
    weights = tmp_path / paths.MODEL / "best.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"these")
    digest = sha256(weights)
    context = SimpleNamespace(path=lambda relative: tmp_path / relative)
    judged = {"health": {"model": digest}, "evaluate": {"model": digest}}
    _require_one_model(context, judged)  # type: ignore[arg-type]
    for stage in ("health", "evaluate"):
        other = {**judged, stage: {"model": "0" * 64}}
        with pytest.raises(InputError, match=f"{stage} judged a model that is no longer there"):
            _require_one_model(context, other)  # type: ignore[arg-type]
