"""The captions written by hand fit the default sample and share no phrase with a template."""

from random import Random

from brepfind.corpus.sample.draw import draw_parts
from brepfind.corpus.sample.families import FAMILIES, FAMILY_BY_NAME
from brepfind.corpus.sample.handwritten import handwritten_captions
from brepfind.corpus.sample.phrasing import captions_of

SEED = 20  # prepare.seed in params.yaml


def phrases(text: str, length: int) -> set[tuple[str, ...]]:
    words = text.lower().replace(",", " ").replace(":", " ").split()
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


def test_there_are_enough_and_each_is_for_a_part_of_the_sample() -> None:
    table = handwritten_captions()
    specs = {spec.model_id for spec in draw_parts(FAMILIES, 400, SEED)}
    assert len(table) >= 100
    assert set(table["model_id"]) <= specs
    assert table["caption"].is_unique
    assert table["model_id"].nunique() >= 100
    assert len({name.rsplit("_", 1)[0] for name in table["model_id"]}) == len(FAMILIES)


def test_no_template_has_their_words() -> None:
    said: set[tuple[str, ...]] = set()
    for spec in draw_parts(FAMILIES, 400, SEED):
        words = FAMILY_BY_NAME[spec.family].words(spec.facts)
        for seed in range(3):
            for caption in captions_of(words, 12, Random(seed)):
                said |= phrases(caption.text, 4)
    shared = {text for text in handwritten_captions()["caption"] if phrases(text, 4) & said}
    assert not shared


def test_they_name_the_right_family() -> None:
    # A few by hand, so that ids and captions cannot slip against each other.
    captions = handwritten_captions().drop_duplicates("model_id").set_index("model_id")["caption"]
    for model_id, word in [
        ("bearing_00000", "6305"),
        ("hex_bolt_00005", "M30"),
        ("pipe_fitting_00004", "three way"),
        ("v_pulley_00008", "224"),
    ]:
        assert word in captions[model_id]


def test_the_facts_they_were_written_from_still_hold() -> None:
    facts = {spec.model_id: spec.facts for spec in draw_parts(FAMILIES, 400, SEED)}
    assert facts["bearing_00000"]["code"] == "6305"
    assert facts["hex_bolt_00005"]["d"] == 30
    assert facts["v_pulley_00008"]["datum"] == 224
