import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from brepfind.errors import InputError, VersionMismatch
from brepfind.retrieval.embed import embed
from brepfind.retrieval.index import make_index
from brepfind.retrieval.parts import Filters, part_table
from brepfind.retrieval.search import Searcher


@pytest.fixture(scope="module")
def searcher(dual, world):
    found = embed(dual, world.reader, world.corpus, world.ids, twins=world.twins, digest="d" * 64)
    parts = part_table(world.reader.store, found.parts["model_id"].tolist(), "../step")
    return Searcher(dual, make_index(found.cad, parts, found.model, grid=3), "d" * 64)


def test_a_sentence_finds_parts_best_first(searcher):
    hits = searcher.search("a plate", k=5)
    assert len(hits) == 5
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert {"path", "faces", "sha256", "root"} <= set(hits[0].facts)
    assert hits[0].size[2] == 1.0
    assert searcher.search("A  plate ", k=1)[0].score <= 1.0


def test_a_part_finds_itself(searcher, world):
    (hit,) = searcher.like(world.reader.store.load("bracket-3"), k=1)
    assert hit.model_id == "bracket-3"
    assert hit.score == pytest.approx(1.0, abs=1e-5)


def test_more_like_a_part_is_without_itself(searcher):
    hits = searcher.more_like("bracket-3", k=4)
    assert len(hits) == 4
    assert "bracket-3" not in {hit.model_id for hit in hits}
    every = searcher.more_like("bracket-3", k=50)
    assert len(every) == 17
    assert every[:4] == hits
    far = searcher.more_like("bracket-3", k=2, filters=Filters(max_size=15))
    assert {hit.size[0] for hit in far} == {10.0}
    with pytest.raises(InputError, match="holds no part 'absent'"):
        searcher.more_like("absent")


def test_filters_hold(searcher):
    hits = searcher.search("a plate", k=50, filters=Filters(min_size=35, max_faces=4))
    assert {hit.model_id for hit in hits} == {
        f"{kind}-{seed}" for kind in ("plate", "shaft") for seed in (3, 4, 5)
    }
    assert searcher.search("a plate", filters=Filters(min_size=1000)) == []


def test_a_sentence_that_is_cut_is_said(searcher, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("brepfind"), "propagate", True)
    searcher.search("a plate")
    assert caplog.text == ""
    searcher.search("a plate 5 mm 5 mm 5 mm 5 mm")
    assert "longer than the model reads" in caplog.text


def test_many_may_ask_at_once(searcher):
    texts = [f"{kind} {seed} mm" for kind in ("plate", "shaft", "bracket") for seed in range(6)]
    alone = [searcher.search(text, 3) for text in texts]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda text: searcher.search(text, 3), texts)) == alone


def test_an_empty_sentence_is_refused(searcher):
    with pytest.raises(InputError, match="search text is empty"):
        searcher.search(" \n")


def test_another_models_index_is_refused(dual, searcher):
    with pytest.raises(VersionMismatch, match="made by model dddddddddddd"):
        Searcher(dual, searcher.index, "e" * 64)
