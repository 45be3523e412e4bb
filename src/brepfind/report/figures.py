"""The curves of a run as PNG files."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("agg")  # no screen, and no window system asked for one

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes

from brepfind.files import atomic_path

_SIZE, _DPI = (5.6, 3.4), 120


def draw_curves(folder: Path, history: pd.DataFrame) -> list[Path]:
    """Loss, validation recall and the logit scale over epochs.

    Args:
        history: a row per validation, as training writes it; ``epoch`` 0 is before the first step.

    Returns:
        The files, in the order in which the report shows them.
    """
    trained = history[history["epoch"] > 0]

    def loss(axes: Axes) -> None:
        axes.plot(trained["epoch"], trained["loss"], marker=".", label="training")
        axes.plot(
            trained["epoch"], trained["chance_loss"], color="grey", linestyle="--", label="guessing"
        )
        axes.set_ylabel("contrastive loss")
        axes.legend()

    def recall(axes: Axes) -> None:
        axes.plot(history["epoch"], 100 * history["recall"], marker=".")
        axes.set_ylabel("validation mean recall, %")
        axes.set_ylim(bottom=0)

    def scale(axes: Axes) -> None:
        axes.plot(history["epoch"], history["logit_scale"], marker=".")
        axes.axhline(100, color="grey", linestyle="--", label="its limit")
        axes.set_ylabel("logit scale")
        axes.legend()

    return [
        _save(folder / "loss.png", loss),
        _save(folder / "recall.png", recall),
        _save(folder / "logit_scale.png", scale),
    ]


def _save(path: Path, draw: object) -> Path:
    assert callable(draw)
    figure, axes = plt.subplots(figsize=_SIZE, dpi=_DPI, layout="constrained")
    try:
        draw(axes)
        axes.set_xlabel("epoch")
        axes.grid(alpha=0.3)
        with atomic_path(path) as aside:
            # Without a date in it the same curve is the same file.
            figure.savefig(aside, format="png", metadata={"Software": None})
    finally:
        plt.close(figure)
    return path
