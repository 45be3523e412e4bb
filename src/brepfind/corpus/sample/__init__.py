"""The sample corpus: real things with real dimensions, generated, each with captions.

A family (:mod:`~brepfind.corpus.sample.family`) draws plain facts, builds a solid from them and
says what there is to say; :mod:`~brepfind.corpus.sample.phrasing` turns that into sentences.
"""
