"""The descriptors by hand, and a baseline that learns what can be learned from them."""

from dataclasses import replace

import numpy as np
import pytest

from brepfind.errors import InputError
from brepfind.graphs.descriptors import DESCRIPTORS, describe, describe_all
from brepfind.retrieval.ridge import ALPHAS, RidgeData, ridge_baseline, ridge_data


def described(part):
    return dict(zip(DESCRIPTORS, describe(part), strict=True))


def test_descriptors_by_hand(make_part):
    """A ring of 4 cylinders, 4 straight convex edges, box 20 x 10 x 1 mm, one hole a face."""
    found = described(make_part(1, 1))
    assert len(found) == 31
    assert found["log_faces_cylinder"] == found["log_faces"] == pytest.approx(np.log(5))
    assert found["log_edges_straight"] == found["log_edges_convex"] == pytest.approx(np.log(5))
    assert found["log_edges"] == found["log_inner_loops"] == pytest.approx(np.log(5))
    assert found["log_faces_plane"] == found["log_edges_circular"] == 0.0
    assert np.exp([found[f"log_box_{end}"] for end in ("min", "mid", "max")]) == pytest.approx(
        [1, 10, 20]
    )
    assert (found["box_mid_over_max"], found["box_min_over_max"]) == (0.5, 0.05)
    assert np.exp([found["log_volume"], found["log_area"]]) == pytest.approx([100, 400])
    assert found["fill"] == pytest.approx(0.5)
    assert np.exp(found["log_compactness"]) == pytest.approx(80)
    assert found["curved_area_share"] == 1.0


def test_descriptors_of_a_flat_or_unfinished_part_are_finite(make_part):
    part = make_part(0, 0)
    facts = replace(part.facts, box_max=(1.0, 1.0, 0.0), volume=0.0, area=0.0)
    empty = replace(
        part, facts=facts, face_loops=np.zeros_like(part.face_loops), face_area=0 * part.face_area
    )
    assert np.isfinite(describe(empty)).all()
    assert describe_all([]).shape == (0, len(DESCRIPTORS))


def learnable(n=120, noise=0.1):
    """Parts whose text is a linear map of their descriptors."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 6))
    text = x @ rng.standard_normal((6, 12)) + 3.0 + noise * rng.standard_normal((n, 12))
    split = np.array(["train"] * (n - 40) + ["validation"] * 20 + ["test"] * 20)
    return RidgeData(
        split=split,
        descriptors=np.hstack([x * 100.0, np.ones((n, 1))]),
        text=text.astype(np.float32),
        captions=np.arange(n),
        caption_part=np.arange(n),
        twins=np.arange(n),
    )


def test_it_finds_what_is_linear():
    table = ridge_baseline(learnable())
    assert (table["n_queries"], table["n_items"]) == (20.0, 20.0)
    assert table["R_at_1"] > 0.9
    assert table["alpha"] in ALPHAS and table["validation_MRR"] > 0.9


def test_alpha_is_chosen_on_validation_alone():
    data = learnable(noise=3.0)
    spoiled = np.where((data.split == "test")[:, None], -data.text, data.text)
    assert ridge_baseline(replace(data, text=spoiled))["alpha"] == ridge_baseline(data)["alpha"]


def test_test_parts_do_not_reach_the_fit():
    data = learnable()
    test = data.split == "test"
    moved = replace(data, descriptors=data.descriptors * np.where(test, 50.0, 1.0)[:, None])
    assert ridge_baseline(moved)["validation_MRR"] == ridge_baseline(data)["validation_MRR"]


def test_descriptors_that_say_nothing_are_chance():
    data = learnable()
    table = ridge_baseline(replace(data, descriptors=np.zeros_like(data.descriptors)))
    assert table["R_at_1"] == 1 / 20


def test_every_split_needs_a_caption():
    data = learnable()
    with pytest.raises(InputError, match="no validation part has a caption"):
        ridge_baseline(replace(data, split=np.where(data.split == "test", "test", "train")))


def test_from_a_store(dual, world):
    data = ridge_data(world.reader.store, world.corpus, world.split, world.twins, dual.text)
    assert data.descriptors.shape == (18, len(DESCRIPTORS))
    assert data.text.shape == (37, 16)  # the caption of blanks is out
    table = ridge_baseline(data)
    assert (table["n_queries"], table["n_items"]) == (13.0, 6.0)
    assert 0.0 <= table["R_at_1"] <= 1.0
