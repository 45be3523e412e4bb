"""Pure numbers: vital signs of weights and embeddings, tie-aware ranks, guard verdicts."""
