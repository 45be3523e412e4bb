"""The gate's verdict as a block of text, printed before any R@K."""

from __future__ import annotations

from collections.abc import Sequence

from brepfind.findings import Finding
from brepfind.metrics.gate import Judgement


def diagnostic(judgements: Sequence[Judgement], n: int) -> str:
    """The block: a line per tower, and below a tower that is not well, what it usually means.

    Args:
        n: what was embedded, such as the number of test parts.
    """
    lines = [f"[Diagnostic] embeddings (n={n})"]
    width = max((len(judged.tower) for judged in judgements), default=0)
    for judged in judgements:
        lines.append(_line(judged, width))
        if judged.state in ("collapsed", "too few"):
            lines += [f"         {finding.line()}" for finding in _not_ok(judged)]
    return "\n".join(lines)


def _line(judged: Judgement, width: int) -> str:
    v = judged.vitals
    numbers = (
        f"NaN={v.nonfinite_rows > 0} mean_col_std={v.mean_col_std:.3f} "
        f"pairwise_cos={v.mean_cosine:.3f} eff_rank={v.rank_share_centred:.2f} "
        f"distinct={v.distinct:.2f}"
    )
    return f"  [{judged.tower:{width}}] {numbers}  {_verdict(judged)}"


def _verdict(judged: Judgement) -> str:
    bad = _not_ok(judged)
    if judged.state == "ok":
        return "ok"
    if judged.state == "warning":
        return f"WARNING: {'; '.join(dict.fromkeys(finding.advice for finding in bad))}"
    if judged.state == "too few":
        return f"TOO FEW: {judged.vitals.inputs} distinct inputs, nothing can be said"
    names = ", ".join(finding.name.rpartition(".")[2] for finding in bad)
    return f"COLLAPSED: {names}"


def _not_ok(judged: Judgement) -> list[Finding]:
    wanted = "warning" if judged.state == "warning" else "failed"
    return [finding for finding in judged.findings if finding.verdict == wanted]
