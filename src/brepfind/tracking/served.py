"""What ``mlflow models serve`` runs: the model from code, so that nothing is pickled.

MLflow keeps a copy of this file with the model, beside a copy of the package, and executes it
where the model is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import mlflow.models
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PythonModel, PythonModelContext


class PartSearch(PythonModel):
    """A sentence a row in, the parts that fit it best out, as ``brepfind search`` gives them."""

    def load_context(self, context: PythonModelContext) -> None:
        """Load the weights and the index that they made."""
        # Heavy, and needed only where the model is asked something.
        from brepfind.retrieval.index import read_index
        from brepfind.retrieval.packed import load_packed
        from brepfind.retrieval.search import Searcher

        trained = load_packed(Path(context.artifacts["model"]))
        index = read_index(Path(context.artifacts["index"]), trained.digest)
        self._searcher = Searcher(trained.model, index, trained.digest)

    def predict(
        self,
        context: PythonModelContext,
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> pd.DataFrame:
        """The nearest parts of each query.

        Args:
            context: unused; see :meth:`load_context`.
            model_input: a frame with the column ``query``.
            params: ``k``, how many parts.

        Returns:
            A frame of ``query, rank, id, score``, ``k`` rows for each query in order.

        Raises:
            MlflowException: a query that says nothing or ``k`` below one; over HTTP, 400.
        """
        from brepfind.errors import InputError

        k = int((params or {}).get("k", 5))
        rows: list[dict[str, Any]] = []
        for query in _flat(model_input["query"]):
            try:  # one by one: in a batch the last bits depend on the neighbours
                hits = self._searcher.search(query, k)
            except InputError as error:
                raise MlflowException.invalid_parameter_value(str(error)) from error
            rows += [
                {"query": query, "rank": rank, "id": hit.model_id, "score": hit.score}
                for rank, hit in enumerate(hits, start=1)
            ]
        return pd.DataFrame(rows, columns=["query", "rank", "id", "score"])


def _flat(column: Iterable[Any]) -> Iterator[str]:
    """A mapping given to ``predict`` arrives with all of its queries in one cell."""
    for cell in column:
        yield from [cell] if isinstance(cell, str) else cell


mlflow.models.set_model(PartSearch())
