"""What the model makes of words that were written otherwise: `make bench-words`.

Every probe changes the captions of validation parts in one way: case, units, signs, decimal
commas, typos, no numbers, wrong numbers. It is asked with the changed captions and, for comparison,
with the same captions as they were; captions that a probe leaves as they are take no part in it.
Another language cannot be had by a rule: there the question is the name of a family alone, and any
part of the family answers it.

The gallery is the validation split: the test split is not read. Needs a trained model in
``data/model`` (``dvc repro train``). Writes ``benchmarks/results/words.json``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from benchmarks.rows import KS
from brepfind.corpus.manifest import read_corpus
from brepfind.files import write_json
from brepfind.graphs.dataset import PartReader
from brepfind.log import console, setup_logging
from brepfind.metrics.counting import count_ranks
from brepfind.metrics.relevance import Relevance
from brepfind.metrics.rows import Rows, unit_rows
from brepfind.models.dual import DualEncoder
from brepfind.pipeline import paths
from brepfind.retrieval.embed import embed_parts, embed_texts
from brepfind.retrieval.model import load_trained
from brepfind.retrieval.relevant import caption_ids, text_to_cad_relevance

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "benchmarks/results/words.json"

_MM = re.compile(r"(\d+(?:\.\d+)?)\s?(?:mm|millimetres|millimeters)\b")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def _inches(found: re.Match[str]) -> str:
    return f"{float(found[1]) / 25.4:.3f} in"


def _fraction(found: re.Match[str]) -> str:
    """To the next sixteenth, as on a tape: 40 mm is 1-9/16 in."""
    sixteenths = max(1, round(float(found[1]) / 25.4 * 16))
    whole, rest = divmod(sixteenths, 16)
    parts = [str(whole)] * bool(whole) + [str(Fraction(rest, 16))] * bool(rest)
    return "-".join(parts) + '"'


def _typos(text: str) -> str:
    """Two neighbouring letters change places in every second word of more than four."""
    rng = Random(text)  # the same typos in every run

    def slip(found: re.Match[str]) -> str:
        word = found[0]
        if rng.random() < 0.5:
            return word
        at = rng.randrange(1, len(word) - 2)
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]

    return re.sub(r"[A-Za-z]{5,}", slip, text)


PROBES: dict[str, Callable[[str], str]] = {
    "UPPER CASE": str.upper,
    "no blank before units: 40mm": lambda t: re.sub(r"(\d) (mm)\b", r"\1\2", t),
    "units left out: 40": lambda t: _MM.sub(r"\1", t),
    "centimetres: 4 cm": lambda t: _MM.sub(lambda m: f"{float(m[1]) / 10:g} cm", t),
    "inches: 1.575 in": lambda t: _MM.sub(_inches, t),
    'fractions of inches: 1-9/16"': lambda t: _MM.sub(_fraction, t),
    "decimal comma: 2,5": lambda t: re.sub(r"(\d)\.(\d)", r"\1,\2", t),
    "diameter for Ø": lambda t: re.sub(r"Ø\s?", "diameter ", t),
    "multiplication sign: 8 × 40": lambda t: re.sub(r"(?<=\d)\s?[xX*]\s?(?=\d)", " × ", t),
    "joined: M8x40": lambda t: re.sub(r"(?<=\d)\s?[xX*]\s?(?=\d)", "x", t),
    "typos": _typos,
    "words in another order": lambda t: " ".join(reversed(re.split(r"(?<=,)\s", t))),
    "no numbers": lambda t: " ".join(_NUMBER.sub("", t).split()),
    "every number half as large again": lambda t: _NUMBER.sub(
        lambda m: f"{float(m[0]) * 1.5:.4g}", t
    ),
}

# A name in English, German, French and Spanish, for families that every shop has a word for.
NAMES = {
    "bearing": ("ball bearing", "Kugellager", "roulement à billes", "rodamiento de bolas"),
    "beam": ("steel beam", "Stahlträger", "poutre en acier", "viga de acero"),
    "hex_bolt": ("hex bolt", "Sechskantschraube", "vis à tête hexagonale", "tornillo hexagonal"),
    "hex_nut": ("hex nut", "Sechskantmutter", "écrou hexagonal", "tuerca hexagonal"),
    "plain_washer": ("washer", "Unterlegscheibe", "rondelle", "arandela"),
    "set_screw": ("set screw", "Gewindestift", "vis sans tête", "prisionero"),
    "retaining_ring": ("retaining ring", "Sicherungsring", "circlip", "anillo de retención"),
    "parallel_key": ("parallel key", "Passfeder", "clavette parallèle", "chaveta paralela"),
    "o_ring": ("O-ring", "O-Ring", "joint torique", "junta tórica"),
    "pipe": ("pipe", "Rohr", "tuyau", "tubo"),
    "pipe_flange": ("pipe flange", "Rohrflansch", "bride de tuyau", "brida de tubería"),
    "spur_gear": ("spur gear", "Stirnrad", "engrenage droit", "engranaje recto"),
    "sprocket": ("sprocket", "Kettenrad", "pignon à chaîne", "piñón de cadena"),
    "v_pulley": ("V-belt pulley", "Keilriemenscheibe", "poulie trapézoïdale", "polea trapezoidal"),
    "shaft": ("shaft", "Welle", "arbre", "eje"),
    "heat_sink": ("heat sink", "Kühlkörper", "dissipateur thermique", "disipador de calor"),
    "l_bracket": ("angle bracket", "Winkel", "équerre", "escuadra"),
    "handle": ("handle", "Griff", "poignée", "asa"),
    "enclosure": ("enclosure", "Gehäuse", "boîtier", "caja"),
    "spacer": ("spacer", "Distanzhülse", "entretoise", "separador"),
}
LANGUAGES = ("English", "German", "French", "Spanish")


def main() -> int:
    """The command; returns its exit code."""
    setup_logging()
    torch.set_num_threads(1)
    split = pd.read_parquet(ROOT / paths.SPLIT)
    split = split[split["split"] == "validation"].sort_values("model_id")
    ids, twins = split["model_id"].tolist(), split["twin"].to_numpy(np.int64)
    corpus = read_corpus(ROOT / paths.CORPUS)
    captions = corpus.captions[corpus.captions["model_id"].isin(ids)]
    place = {model_id: number for number, model_id in enumerate(ids)}
    texts = captions["caption"].tolist()
    parts = captions["model_id"].map(place).to_numpy(np.int64)
    family = corpus.parts.set_index("model_id")["family"].loc[ids].to_numpy(str)

    model = load_trained(ROOT / paths.MODEL / "best.safetensors").model
    reader = PartReader(ROOT / paths.GRAPHS, ROOT / ".brepfind/pairs")
    cad = unit_rows("CAD", embed_parts(model, reader, ids)[1])

    rows: dict[str, dict[str, Any]] = {
        "as written": {"n": len(texts), "changed": _recall(model, texts, parts, cad, twins)}
    }
    for name, change in PROBES.items():
        changed = [change(text) for text in texts]
        told = [i for i, text in enumerate(changed) if text != texts[i] and text.strip()]
        rows[name] = {
            "n": len(told),
            "before": _recall(model, [texts[i] for i in told], parts[told], cad, twins),
            "changed": _recall(model, [changed[i] for i in told], parts[told], cad, twins),
        }
    names = {
        language: _by_name(model, number, family, cad) for number, language in enumerate(LANGUAGES)
    }
    facts = {"gallery": len(ids), "model": Path(paths.MODEL / "best.safetensors").name}
    write_json(OUT, {**facts, "probes": rows, "names_of_families": names})
    _print(rows, names, len(ids))
    return 0


def _recall(
    model: DualEncoder,
    texts: Sequence[str],
    parts: NDArray[np.int64],
    cad: Rows,
    twins: NDArray[np.int64],
) -> dict[str, float]:
    """R@K of captions of the parts with these places in the gallery."""
    if not len(texts):
        return {}
    rows = unit_rows("text", embed_texts(model, texts)[1])
    relevance = text_to_cad_relevance(caption_ids(pd.Series(texts)), parts, twins)
    return _at(rows, cad, relevance)


def _by_name(
    model: DualEncoder, language: int, family: NDArray[np.str_], cad: Rows
) -> dict[str, float]:
    """How often a part of the family is among the first, asked by its name."""
    asked = [name for name in NAMES if name in family]
    rows = unit_rows("text", embed_texts(model, [NAMES[name][language] for name in asked])[1])
    codes = {name: number for number, name in enumerate(sorted(set(family)))}
    groups = np.array([codes[name] for name in family])
    relevance = Relevance.from_groups(np.array([codes[name] for name in asked]), groups)
    return {"n": len(asked), **_at(rows, cad, relevance)}


def _at(rows: Rows, cad: Rows, relevance: Relevance) -> dict[str, float]:
    counts = count_ranks(rows, cad, relevance)
    return {f"R_at_{k}": float(counts.hits(k).mean()) for k in KS}


def _print(
    rows: Mapping[str, Mapping[str, Any]], names: Mapping[str, Mapping[str, float]], gallery: int
) -> None:
    console.print(f"{gallery} validation parts; R@1 / R@5 / R@10 in per cent")
    for name, row in rows.items():
        console.print(
            f"  {name:34s} {row['n']:4d} captions  {_line(row.get('before'))}  "
            f"-> {_line(row['changed'])}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    for language, found in names.items():
        said = f"  names of families in {language:12s} {found['n']:4g} names     {_line(found)}"
        console.print(said, markup=False, highlight=False, soft_wrap=True)


def _line(row: Mapping[str, float] | None) -> str:
    if not row:
        return " " * 19
    return " / ".join(f"{100 * row[f'R_at_{k}']:5.1f}" for k in KS)


if __name__ == "__main__":
    sys.exit(main())
