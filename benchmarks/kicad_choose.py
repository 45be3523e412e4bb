"""The parts of `make bench-kicad` and their fixed split, ``benchmarks/data/kicad-2000.csv``: how
they were chosen, once, before anything was trained on them.

    brepfind extract data/kicad/share/3dmodels -o GRAPHS --max-faces 150
    python -m benchmarks.kicad_choose GRAPHS data/kicad/corpus

Of the parts that have words and at most 150 faces, the 2,000 whose ids have the smallest SHA-256.
A family is a library with those words of a name that hold no number: ``C_Rect_L7.0mm_P5.0mm`` and
``C_Rect_L4.0mm_P2.5mm`` are of one. A family stands on one side as a whole, as do twins, so that
what is nearest to a test part is in the gallery beside it and not in train. The shares hold within
each library as far as whole families allow; the seed is the first whose shares come out within
three points and whose validation and test have no family of more than an eighth of their parts.
"""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from brepfind.corpus.manifest import SPLITS, read_corpus
from brepfind.corpus.splits import SplitConfig, divide, uniform
from brepfind.graphs.store import GraphStore
from brepfind.graphs.twins import twin_groups

LIST = Path(__file__).resolve().parent / "data/kicad-2000.csv"
PARTS, MAX_FACES = 2000, 150
ASKED = {"validation": 0.15, "test": 0.25}


def family_of(model_id: str) -> str:
    """``LIBRARY/WORDS`` of a part's path ``LIBRARY.3dshapes/NAME.step``."""
    library, _, name = model_id.rpartition("/")
    words = [
        word for word in re.split(r"[_-]", name.rpartition(".")[0]) if not re.search(r"\d", word)
    ]
    return f"{library.removesuffix('.3dshapes')}/{'_'.join(filter(None, words))}"


def sides_of(families: list[str], twins: NDArray[np.int64], ids: list[str], seed: int) -> list[str]:
    """The side of each part: families and twins whole, shares within each library."""
    shares = SplitConfig(**ASKED, seed=seed, min_parts=4, allow_leaks=False)
    _, family = np.unique(families, return_inverse=True)
    n = len(ids)
    links = coo_array(
        (np.ones(2 * n), (np.tile(np.arange(n), 2), np.concatenate([n + family, 2 * n + twins]))),
        shape=(3 * n, 3 * n),
    )
    group = connected_components(links, directed=False)[1][:n]
    table = pd.DataFrame({"id": ids, "library": [f.partition("/")[0] for f in families]})
    table["group"] = group
    sides: dict[int, str] = {}
    heads = table.sort_values("id").drop_duplicates("group")
    sizes = table["group"].value_counts()
    for library, rows in heads.groupby("library", sort=True):
        line = [
            (str(h), int(g), int(sizes[g])) for h, g in zip(rows["id"], rows["group"], strict=True)
        ]
        sides |= divide(str(library), line, shares)
    return [sides[int(g)] for g in group]


def balanced(table: pd.DataFrame) -> bool:
    """Whether a split is one that can be measured on; columns ``family`` and ``split``."""
    for side, share in ASKED.items():
        families = table["family"][table["split"] == side].value_counts()
        if abs(families.sum() / len(table) - share) > 0.03 or families.max() > families.sum() / 8:
            return False
    return True


def main(graphs: Path, corpus: Path) -> int:
    """Write the list."""
    store = GraphStore(graphs)
    rows = store.manifest.assign(twin=twin_groups(store.signatures))
    rows = rows[rows["model_id"].isin(read_corpus(corpus).parts["model_id"])]
    rows = rows[rows["faces"] <= MAX_FACES]
    order = rows["model_id"].map(lambda name: uniform("kicad-2000", name))
    rows = rows[order.rank(method="first") <= PARTS].sort_values("model_id", ignore_index=True)
    ids = rows["model_id"].tolist()
    families = [family_of(name) for name in ids]
    rows["family"] = families
    twins = np.unique(rows["twin"], return_inverse=True)[1]
    for seed in itertools.count():
        rows["split"] = sides_of(families, twins, ids, seed)
        if balanced(rows):
            break
    LIST.parent.mkdir(exist_ok=True)
    columns = ["model_id", "sha256", "family", "split"]
    rows[columns].to_csv(LIST, index=False, lineterminator="\n")
    for side in SPLITS:
        chosen = rows[rows["split"] == side]
        print(f"seed {seed}, {side}: {len(chosen)} parts of {chosen['family'].nunique()} families")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
