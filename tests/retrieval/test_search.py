import pytest

from brepfind.errors import InputError, VersionMismatch
from brepfind.retrieval.embed import embed
from brepfind.retrieval.index import make_index
from brepfind.retrieval.search import Searcher


@pytest.fixture(scope="module")
def searcher(dual, world):
    found = embed(dual, world.reader, world.corpus, world.ids, twins=world.twins, digest="d" * 64)
    return Searcher(dual, make_index(found.cad, found.parts, found.model), "d" * 64)


def test_a_sentence_finds_parts_best_first(searcher):
    hits = searcher.search("a plate", k=5)
    assert len(hits) == 5
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert set(hits[0].facts) == {"family", "twin"}
    assert searcher.search("A  plate ", k=1)[0].score <= 1.0


def test_a_part_finds_itself(searcher, world):
    (hit,) = searcher.like(world.reader.store.load("bracket-3"), k=1)
    assert hit.model_id == "bracket-3"
    assert hit.score == pytest.approx(1.0, abs=1e-5)


def test_an_empty_sentence_is_refused(searcher):
    with pytest.raises(InputError, match="search text is empty"):
        searcher.search(" \n")


def test_another_models_index_is_refused(dual, searcher):
    with pytest.raises(VersionMismatch, match="made by model dddddddddddd"):
        Searcher(dual, searcher._index, "e" * 64)
