"""The digest of a side of the split, taken row by row, is that of its rows as a list."""

import pandas as pd

from brepfind.files import digest
from brepfind.pipeline.datasets import _rows_digest


def test_rows_are_digested_as_their_list_would_be() -> None:
    parts = pd.DataFrame({"model_id": ["a", "b"], "sha256": ["1", "2"]})
    told = pd.DataFrame({"model_id": ["a", "b"], "caption": ['a "plate"\n', "Ø 3"]})
    for one, other in ((parts, told), (parts[:0], told), (parts, told[:0])):
        rows = [one.to_numpy().tolist(), other.to_numpy().tolist()]
        assert _rows_digest(one, other) == digest(rows)
