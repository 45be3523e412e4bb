import numpy as np

from brepfind.retrieval.relevant import (
    caption_ids,
    own_part_relevance,
    plain_caption,
    text_to_cad_relevance,
)


def as_lists(table):
    return [table.items[a:b].tolist() for a, b in zip(table.starts, table.starts[1:], strict=False)]


def test_captions_are_the_very_same_but_for_case_and_white_space():
    ids = caption_ids(["A  hex bolt", "a hex\tbolt ", "a hex bolt.", "caf\u00e9", "cafe\u0301"])
    assert ids.tolist() == [0, 0, 1, 2, 2]


def test_what_says_nothing_is_empty():
    assert plain_caption(" \n\t ") == ""


def test_own_part_twins_and_carriers_of_the_same_words():
    """Parts 0 and 1 are twins; parts 0 and 2 share caption "x"; part 3 has a caption of its own."""
    captions = caption_ids(["x", "y", "x", "z", "w"])
    part = np.array([0, 1, 2, 3, 0])
    table = text_to_cad_relevance(captions, part, np.array([5, 5, 6, 7]))
    assert as_lists(table) == [[0, 1, 2], [0, 1], [0, 1, 2], [3], [0, 1]]
    # the other direction is the same table: a part is answered by whatever it answers
    assert as_lists(table.transpose()) == [[0, 1, 2, 4], [0, 1, 2, 4], [0, 2], [3]]
    assert as_lists(own_part_relevance(part, 4)) == [[0], [1], [2], [3], [0]]
