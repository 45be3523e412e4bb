"""Embedding a corpus, evaluating it, and searching it."""
