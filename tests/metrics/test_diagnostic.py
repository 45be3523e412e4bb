import numpy as np

from brepfind.metrics.diagnostic import diagnostic
from brepfind.metrics.gate import STANDARD_LIMITS, judge
from brepfind.metrics.vitals import vitals


def test_the_block_has_the_users_form():
    rng = np.random.default_rng(0)
    cad, text = rng.standard_normal((100, 64)), rng.standard_normal((100, 64)) + 3.0
    block = diagnostic(
        [
            judge("CAD", vitals(cad), STANDARD_LIMITS),
            judge("Text", vitals(text), STANDARD_LIMITS, step0=vitals(text + 1.0)),
        ],
        100,
    )
    assert block == (
        "[Diagnostic] embeddings (n=100)\n"
        "  [CAD ] NaN=False mean_col_std=0.124 pairwise_cos=-0.001 eff_rank=0.90 distinct=1.00"
        "  ok\n"
        "  [Text] NaN=False mean_col_std=0.039 pairwise_cos=0.902 eff_rank=0.89 distinct=1.00  "
        "WARNING: nearly all text embeddings point one way (0.94 at step 0)"
    )


def test_a_collapse_says_which_limits_and_what_it_means():
    block = diagnostic([judge("CAD", vitals(np.ones((64, 8))), STANDARD_LIMITS)], 64)
    head, *reasons = block.splitlines()[1:]
    assert head.endswith("COLLAPSED: column_std, mean_cosine, effective_rank, "
                         "effective_rank_centred, effective_rank_share_centred, participation, "
                         "distinct, near_copies")  # fmt: skip
    assert "FAILED  health.cad.column_std = " in reasons[0]
    assert "the tower is constant" in reasons[0]


def test_nan_is_seen_in_the_line():
    rows = np.random.default_rng(0).standard_normal((64, 8))
    rows[5] = np.nan
    block = diagnostic([judge("Text", vitals(rows), STANDARD_LIMITS)], 64)
    assert "[Text] NaN=True mean_col_std=nan" in block
    assert "1 of 64 Text embeddings hold NaN or infinity" in block


def test_too_few_says_so():
    block = diagnostic([judge("CAD", vitals(np.ones((5, 8))), STANDARD_LIMITS)], 5)
    assert "TOO FEW: 5 distinct inputs, nothing can be said" in block
