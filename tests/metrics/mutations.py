"""Rules whose breaking must make a test fail: the kept list, and the script that breaks them.

    python tests/metrics/mutations.py            every mutation, one line each; exit 1 if one lives
    python tests/metrics/mutations.py ties       those whose name holds "ties"

Each mutation is one replacement in one file of a copy of ``src`` and runs the tests named beside
it. The text to replace must be there exactly once, so the list cannot go stale unseen
(``test_mutations.py`` checks that in every run; the mutations themselves take minutes).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
METRICS, RETRIEVAL = "src/brepfind/metrics", "src/brepfind/retrieval"
LEAKS, HOSTILE, RECORDED, CHECKPOINT = (
    f"tests/retrieval/test_{name}.py"
    for name in ("leaks", "hostile", "recorded", "checkpoint_gate")
)
RANKS, COUNTING, GATE, VITALS, EVALUATE = (
    "tests/metrics/test_ranks.py",
    "tests/metrics/test_counting.py",
    "tests/metrics/test_gate.py",
    "tests/metrics/test_vitals.py",
    "tests/retrieval/test_evaluate.py",
)


@dataclass(frozen=True)
class Mutation:
    """One broken rule: where, what becomes what, and the tests that must notice."""

    name: str
    file: str
    old: str
    new: str
    tests: str


def _m(name: str, file: str, old: str, new: str, tests: str) -> Mutation:
    return Mutation(name, file, old, new, tests)


_ranks, _counting, _blocks = (f"{METRICS}/{name}.py" for name in ("ranks", "counting", "blocks"))
_rows, _vitals, _gate = (f"{METRICS}/{name}.py" for name in ("rows", "vitals", "gate"))
_relevance, _intervals = f"{METRICS}/relevance.py", f"{METRICS}/intervals.py"
_neighbours, _relevant = f"{METRICS}/neighbours.py", f"{RETRIEVAL}/relevant.py"
_evaluate, _ridge, _index = (f"{RETRIEVAL}/{name}.py" for name in ("evaluate", "ridge", "index"))
_leaks, _health, _recorded = (f"{RETRIEVAL}/{name}.py" for name in ("leaks", "health", "recorded"))
_foreign, _pairs = f"{RETRIEVAL}/foreign.py", f"{RETRIEVAL}/foreign_pairs.py"
_contrast, _stage = f"{METRICS}/contrast.py", "src/brepfind/pipeline/health.py"

MUTATIONS = [
    # ties: by expectation, not as a sort happens to leave them
    _m("ties optimistic", _ranks, "(orders - math.comb(tied, places)) / orders", "1.0", RANKS),
    _m("ties pessimistic", _ranks, "if places <= 0 or relevant == 0:",
       "if places <= tied or relevant == 0:", RANKS),
    _m("ties by rank of the mean", _ranks,
       "(self.tied + self.tied_relevant + 1) / (self.tied_relevant + 1)",
       "(self.tied + 2) / 2", RANKS),
    _m("ties in MRR", _ranks, "(tied - place[1:] + 2)", "(tied - place[1:] + 1)", RANKS),
    _m("ties: mean not exact", _ranks, "return float(total / len(values))",
       "return float(np.mean(values)) + 1e-17 * len(values)", RANKS),
    _m("ties: extremes swapped", _ranks, "return self.better + self.tied + 1",
       "return self.better + 1", RANKS),
    _m("ties: tolerance only below", _counting, "exact > side.best[line] + self._tie)",
       "exact > side.best[line])", COUNTING),
    _m("ties: tolerance only above", _counting, "exact >= side.best[line] - self._tie)",
       "exact >= side.best[line])", COUNTING),
    _m("ties: upper edge exclusive", _counting, "exact > limit if strict else",
       "exact >= limit if strict else", COUNTING),
    _m("ties: lower edge exclusive", _counting, "else exact >= limit)", "else exact > limit)",
       COUNTING),
    _m("ties: relevant ones counted as tied", _counting,
       "reached[side.inverse] - better - tied_relevant", "reached[side.inverse] - better",
       COUNTING),
    _m("ties: own tolerance ignored", _counting, "scores >= best[line] - tie,",
       "scores >= best[line],", COUNTING),
    # identical rows: merged with their multiplicity
    _m("copies lose their weight forward", _counting,
       "None if d <= self._i.singles else self._i.weights[c:d]", "None", COUNTING),
    _m("copies lose their weight backward", _counting,
       "None if b <= self._q.singles else self._q.weights[a:b]", "None", COUNTING),
    _m("copies merged whatever their threshold", _counting, "merge_identical(rows, best)",
       "merge_identical(rows)", COUNTING),
    _m("copies: the first of a block is taken for single", _counting,
       "None if d <= self._i.singles else", "None if d <= self._i.singles + 1 else", COUNTING),
    _m("copies: minus zero is another number", _rows, "part + 0.0 if part", "part if part",
       "tests/metrics/test_rows.py"),
    # twins and captions
    _m("twins: first relevant only", _counting, "np.maximum.at(best, line, scores)",
       "best[line] = scores", COUNTING),
    _m("twins not relevant", _relevant, "zip(captions.tolist(), twins[caption_part].tolist()",
       "zip(captions.tolist(), caption_part.tolist()", "tests/retrieval/test_relevant.py"),
    _m("twins: equal captions not shared", _relevant, "tuple(said_of[caption]) for caption",
       "tuple(list(said_of[caption])[:1]) for caption", "tests/retrieval/test_relevant.py"),
    _m("twins: captions compared by case", _relevant, ".casefold()", "",
       "tests/retrieval/test_relevant.py"),
    _m("twins: Unicode forms differ", _relevant, 'unicodedata.normalize("NFC", caption)', "caption",
       "tests/retrieval/test_relevant.py"),
    _m("twins: chance forgets them", _ranks, "relevance.n_items - relevant, 0)",
       "relevance.n_items - 1, 0)", RANKS),
    _m("twins are their own neighbours", _neighbours,
       "scores[groups[rows, None] == groups[None, :]] = -np.inf",
       "np.fill_diagonal(scores[:, a:], -np.inf)", "tests/metrics/test_neighbours.py"),
    _m("twins: self-retrieval without them", _evaluate,
       'summarise(_self_counts(embeddings, embeddings.twins))["R_at_1"]',
       'summarise(_self_counts(embeddings, np.arange(len(embeddings.cad))))["R_at_1"]', EVALUATE),
    _m("twins: the table without them", _evaluate,
       "counts = _self_counts(embeddings, embeddings.twins)",
       "counts = _self_counts(embeddings, np.arange(len(embeddings.cad)))", EVALUATE),
    _m("twins: own part only counts them", _evaluate,
       "summarise(_self_counts(embeddings, parts))",
       "summarise(_self_counts(embeddings, embeddings.twins))", EVALUATE),
    _m("twins: a leak is not counted", _leaks, "set(groups[len(signatures) :].tolist())",
       "set(groups[: 0].tolist())", LEAKS),
    _m("twins: those within test are leaks", _leaks, "set(groups[len(signatures) :].tolist())",
       "set(groups.tolist())", LEAKS),
    _m("twins: a leak is no failure", _leaks, "                otherwise=otherwise,",
       '                otherwise="warning",', LEAKS),
    _m("twins: signatures of another version", _leaks,
       "version != str(FACTS_VERSION) or rows", "rows", LEAKS),
    _m("twins: too few inputs with them", _health, "len(np.unique(embeddings.twins))",
       "len(embeddings.twins)", "tests/retrieval/test_health.py"),
    _m("twins: a pair counts twice", _relevance, "keys = np.unique(", "keys = np.sort(",
       "tests/metrics/test_relevance.py"),
    # blocks: the same counts however the work is cut
    _m("blocks: no margin", _counting, "margin = self._tie + self._error_32",
       "margin = self._tie", COUNTING),
    _m("blocks: no margin in float64", _counting,
       "self._error_64 = 2.0 *", "self._error_64 = -1e-13 *", COUNTING),
    _m("blocks: the block decides", _counting, "self._count_pairs(side, q, i, rows, columns)",
       "side.reached[:] += 0", COUNTING),
    _m("blocks: last word cut off", _blocks, "whole = -(-size // 8) * 8", "whole = size // 8 * 8",
       COUNTING),
    _m("blocks: last block's rest seen", _blocks, "mask[size:whole] = False", "pass", COUNTING),
    _m("blocks: bytes overflow in rows", _blocks, "m > 8 * 255", "m > 8 * 2550", COUNTING),
    _m("blocks: bytes overflow in columns", _blocks, "range(0, n, 255)", "range(0, n, 510)",
       COUNTING),
    _m("blocks: lower bound rounded up", _blocks,
       "np.where(near > values, np.nextafter(near, np.float32(-np.inf)), near)", "near",
       "tests/metrics/test_blocks.py"),
    _m("blocks: upper bound rounded down", _blocks,
       "np.where(near < values, np.nextafter(near, np.float32(np.inf)), near)", "near",
       "tests/metrics/test_blocks.py"),
    _m("blocks: directions swapped", _counting, "return forward, backward",
       "return backward, forward", COUNTING),
    _m("blocks: parts overlap", _counting, "self.query_blocks[part::parts]",
       "self.query_blocks[part:]", COUNTING),
    _m("blocks: threads overlap", _counting, "blocks[k::workers]", "blocks[k:]", COUNTING),
    _m("blocks: threads lose a share", _counting, "return sum(rest, start=first)", "return first",
       COUNTING),
    _m("blocks: neighbours' labels shifted", _neighbours, "labels[rows, None] == labels[None, :]",
       "labels[: len(scores), None] == labels[None, :]", "tests/metrics/test_neighbours.py"),
    # finiteness: an error or a failed limit, never a rank
    _m("finite: rows not looked at", _counting, 'check_finite("items", items)', "pass", COUNTING),
    _m("finite: queries not looked at", _counting, 'check_finite("queries", queries)', "pass",
       COUNTING),
    _m("finite: NaN only", _rows, "~np.isfinite(rows)", "np.isnan(rows)", COUNTING),
    _m("finite: overflow not looked at", _counting, "if not reach < limit:", "if False:", COUNTING),
    _m("finite: zero rows pass", _rows, "if len(zero):", "if False:", "tests/metrics/test_rows.py"),
    _m("finite: vitals of the finite rows", _rows, ".all(axis=1)] = np.nan", ".all(axis=1)] = 0.0",
       VITALS),
    _m("finite: a sample of finite rows", _vitals, "sampled if not broken", "sampled if True",
       VITALS),
    _m("finite: a constant has a rank", _vitals, "if not math.sqrt(variances.sum()) > _NOTHING:",
       "if False:", VITALS),
    _m("finite: NaN passes at_least", "src/brepfind/findings.py", "ok = value >= limit",
       "ok = not value < limit", GATE),
    _m("finite: NaN passes at_most", "src/brepfind/findings.py", "ok = value <= limit",
       "ok = not value > limit", GATE),
    _m("finite: index of NaN", _index, 'unit = unit_rows("CAD", cad, parts["model_id"].tolist())',
       "unit = cad", "tests/retrieval/test_index.py"),
    _m("finite: loss of NaN rows", _contrast, 'check_finite("items", items)', "pass",
       "tests/metrics/test_contrast.py"),
    _m("finite: null self-retrieval passes", _evaluate,
       "return math.nan if value is None else value", "return 1.0 if value is None else value",
       EVALUATE),
    _m("finite: nothing measured passes", _evaluate, 'for what in ("queries", "items"):',
       "for what in ():", EVALUATE),
    _m("finite: a NaN beside its part's row", _pairs,
       "same = (own == cad) | (np.isnan(own) & np.isnan(cad))",
       "same = (own == cad) | np.isnan(cad)", HOSTILE),
    _m("finite: range of float32 lost", _pairs, "if out.any():", "if False:", HOSTILE),
    _m("finite: pickles are opened", _foreign, "allow_pickle=False", "allow_pickle=True", HOSTILE),
    _m("finite: a list missing is passed over", _foreign, "if len(missing):", "if False:", HOSTILE),
    _m("finite: half a pointer", _pairs, "and value % 1 == 0", "and value == value", HOSTILE),
    # what was loaded is what was trained
    _m("record: none is fine", _recorded, 'recorded.get(name, "nan")',
       'recorded.get(name, {"held_out_loss": found.loss, "recall": found.recall}[name])',
       RECORDED),
    _m("record: the loss is not asked", _recorded, "abs(found.loss - loss) / max(loss, 0.1)", "0.0",
       RECORDED),
    _m("record: the recall is not asked", _recorded, "abs(found.recall - recall)", "0.0",
       RECORDED),
    _m("record: one direction of the loss", _contrast,
       "(forward + _one_direction(items, queries, relevance.transpose(), scale, block)) / 2",
       "forward", "tests/metrics/test_contrast.py"),
    _m("blocks: the loss of the first", _contrast, "for a in range(0, len(rows), block)",
       "for a in [0] * len(range(0, len(rows), block))", "tests/metrics/test_contrast.py"),
    _m("blocks: the sum of the last", _vitals, "total += unit.sum", "total = unit.sum", VITALS),
    _m("blocks: the spread of the last", _vitals, "spread += unit.T", "spread = unit.T", VITALS),
    # the gate: a conjunction
    _m("gate: too few pass", _gate, "if not vitals.inputs >= limits.min_rows:", "if False:", GATE),
    _m("gate: rows for inputs", _gate, "if not vitals.inputs >= limits.min_rows:",
       "if not vitals.n >= limits.min_rows:", GATE),
    _m("gate: a warning stops", _gate, 'if "failed" in verdicts', "if verdicts != {'ok'}", GATE),
    _m("gate: centred rank alone", _gate,
       "*_rank(name, tower, vitals, limits, centred=False),", "", GATE),
    _m("gate: raw rank alone", _gate, "*_rank(name, tower, vitals, limits, centred=True),", "",
       GATE),
    _m("gate: no copies", _gate, "*_copies(name, tower, vitals, limits),", "", GATE),
    _m("gate: no spread", _gate, "*_spread(name, tower, vitals, limits, step0),", "", GATE),
    _m("gate: units are not asked", _stage, "*self.unit_findings, *self.record]", "*self.record]",
       CHECKPOINT),
    _m("gate: the record is not asked", _stage, '"the checkpoint is not what was trained": '
       "self.record,", "", CHECKPOINT),
    _m("gate: one tower for both", _health, "findings.append(_same_rows(embeddings, prefix))",
       "pass", HOSTILE),
    _m("gate: few parts, full rank", f"{METRICS}/history.py", "rank = min(rank, attainable / 2)",
       "rank = rank", "tests/metrics/test_history.py"),
    _m("rollback to a sick one", "src/brepfind/pipeline/rollback.py",
       'complaint = complaint_of(gate, LAST) if last.is_file() else "it is not there"',
       'complaint = ""', CHECKPOINT),
    _m("gate: twins must differ", _vitals, "cosine[inputs[:, None] == inputs[None, :]] = -1.0",
       "np.fill_diagonal(cosine, -1.0)", VITALS),
    # chosen on validation, read once on test
    _m("ridge tuned on test", _ridge, 'fit.rows("validation", alpha)',
       'fit.rows("test", alpha)', "tests/retrieval/test_ridge.py"),
    _m("ridge fitted on test", _ridge, 'data.split[data.caption_part] == "train")',
       'data.split[data.caption_part] != "validation")', "tests/retrieval/test_ridge.py"),
    _m("bootstrap by query", _intervals, "np.unique(units, return_inverse=True)",
       "np.unique(np.arange(len(units)), return_inverse=True)", "tests/metrics/test_intervals.py"),
    _m("levels share one gallery", _evaluate, "kept = chosen[items]",
       "kept = np.ones_like(items, bool)", EVALUATE),
    _m("self-retrieval in float32", _evaluate,
       'unit = unit_rows("CAD", embeddings.cad, ids, np.float64)\n    return',
       'unit = unit_rows("CAD", embeddings.cad, ids)\n    return', EVALUATE),
    _m("index: any model", _index, "if index_model != model:", "if False:",
       "tests/retrieval/test_index.py"),
]  # fmt: skip


def lives(mutation: Mutation, copy: Path) -> bool:
    """Whether all tests still pass with the rule broken."""
    path = copy / mutation.file
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", mutation.tests],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            check=False,
        )
    finally:
        path.write_text(whole, encoding="utf-8")
    return done.returncode == 0


def main() -> int:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "params.yaml"):
            shutil.copy(ROOT / name, copy)
        for mutation in MUTATIONS:
            if wanted in mutation.name:
                alive = lives(mutation, copy)
                survivors += alive
                print("LIVES" if alive else "dies ", mutation.name, flush=True)
    print(f"{survivors} of {len(MUTATIONS)} live")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
