"""Embedding with a real, tiny dual encoder."""

import numpy as np
import pytest
import torch

from brepfind.graphs.collate import collate
from brepfind.models.numbers import sentence_numbers
from brepfind.retrieval import embed as module
from brepfind.retrieval.embed import embed, embed_texts, sentence_vectors


def test_rows_are_what_the_model_gives_for_a_part_and_a_caption_alone(dual, world):
    found = embed(dual, world.reader, world.corpus, world.ids, twins=world.twins, digest="d")
    assert found.parts["model_id"].tolist() == sorted(world.ids)
    assert (found.cad.shape, found.cad_before.shape) == ((18, 8), (18, 16))
    assert (found.text.shape, found.text_before.shape) == ((37, 8), (37, 16))
    assert found.model == "d"
    dual.eval()
    with torch.inference_mode():
        alone = dual.embed_parts(collate(*world.reader.read(["shaft-2"])))
        tokens = dual.text.tokenize(["shaft 2 mm"])
        lengths = sentence_numbers(["shaft 2 mm"])
        said = dual.embed_texts(dual.text.lower(tokens), tokens.mask, lengths)
    row = found.parts["model_id"].tolist().index("shaft-2")
    assert found.cad[row] == pytest.approx(alone.projected[0].numpy(), abs=1e-5)
    assert found.cad_before[row] == pytest.approx(alone.graph[0].numpy(), abs=1e-5)
    row = found.captions["caption"].tolist().index("shaft 2 mm")
    assert found.text[row] == pytest.approx(said.projected[0].numpy(), abs=1e-5)
    assert found.text_before[row] == pytest.approx(said.pooled[0].numpy(), abs=1e-5)


def test_the_same_bits_whatever_the_order_and_the_mode(dual, world):
    dual.train()
    first = embed(dual, world.reader, world.corpus, world.ids, twins=world.twins)
    assert dual.training
    again = embed(dual, world.reader, world.corpus, world.ids[::-1], twins=world.twins)
    assert (first.cad == again.cad).all() and (first.text == again.text).all()
    dual.eval()


def test_empty_captions_are_left_out_and_counted_and_long_ones_marked(dual, world):
    found = embed(dual, world.reader, world.corpus, ["plate-4", "plate-5"], twins=world.twins)
    assert found.notes == {"captions_empty": 1}
    assert found.captions["truncated"].tolist() == [False, False, False, False, True]
    assert found.captions["level"].tolist() == [0, 1, 0, 1, 3]
    assert found.parts["family"].tolist() == ["plate", "plate"]


@pytest.mark.parametrize(("name", "limit"), [("_PARTS", 2), ("_FACES", 7), ("_PAIRS", 1)])
def test_batches_keep_their_limits(dual, world, monkeypatch, name, limit):
    ids = sorted(world.ids)
    whole, _ = module.embed_parts(dual.eval(), world.reader, ids)
    monkeypatch.setattr(module, name, limit)
    groups = list(module._groups(world.reader, ids))
    assert [one for group in groups for one in group] == ids
    assert max(map(len, groups)) <= 2
    cut, _ = module.embed_parts(dual, world.reader, ids)
    assert cut == pytest.approx(whole, abs=1e-5)


def test_nothing_to_embed(dual):
    before, after, truncated = embed_texts(dual.eval(), [])
    assert (before.shape, after.shape, truncated.shape) == ((0, 16), (0, 8), (0,))


def test_sentence_vectors_are_the_towers_own(dual):
    texts = ["a plate", "shaft 3 mm"]
    alone = sentence_vectors(dual.text, texts)
    before, _, _ = embed_texts(dual.eval(), texts)
    assert alone == pytest.approx(before, abs=1e-6)
    assert alone.dtype == np.float32
