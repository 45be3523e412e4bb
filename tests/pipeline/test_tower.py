"""A text tower of one's own lies where DVC sees its changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from brepfind.errors import ParamsError
from brepfind.pipeline.train import require_watched


def test_a_folder_that_dvc_does_not_watch_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data/pretrained/tower").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    require_watched(tmp_path, "data/pretrained/tower")
    require_watched(tmp_path, "minilm")
    for path in ("elsewhere", str(tmp_path / "elsewhere"), "data/pretrained/../../elsewhere"):
        with pytest.raises(ParamsError, match="move it below data/pretrained"):
            require_watched(tmp_path, path)
