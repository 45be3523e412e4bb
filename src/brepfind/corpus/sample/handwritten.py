"""Captions written by hand for parts of the sample, in words that no template has.

They were written by looking at the facts of the parts in the test split of the default sample
(``prepare.seed: 20``, ``split.seed: 7``, a quarter for test, at 160 and at 400 parts), and are only
for testing: a model must never be trained on them.
"""

from __future__ import annotations

from importlib.resources import files

import pandas as pd


def handwritten_captions() -> pd.DataFrame:
    """Columns ``model_id`` and ``caption``, in the file's order; a part may have several."""
    with files(__package__).joinpath("handwritten.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file, dtype=str, keep_default_na=False)
