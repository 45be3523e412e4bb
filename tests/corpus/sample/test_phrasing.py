"""Captions: levels say more and more, phrasings differ, numbers are right."""

from dataclasses import replace
from random import Random

import pytest

from brepfind.corpus.sample.family import Dim, Words
from brepfind.corpus.sample.numbers import fraction, plain, quantity, spelled
from brepfind.corpus.sample.phrasing import PHRASINGS, Content, captions_of, choose, say

BOLT = Words(
    names=("hex bolt",),
    broad=("bolt",),
    looks=("rod with a six-sided head",),
    uses=("steelwork",),
    traits=(("fully threaded",),),
    size=("M8 x 40",),
    standards=("ISO 4017",),
    dims=(
        Dim.length(40, "shank length", "long", "L"),
        Dim.length(13, "width across flats", "across flats", "S"),
        Dim.diameter(8, "thread diameter", "thread", "D"),
        Dim.count(6, "flats"),
    ),
    longest=45.3,
)

CONTENT = Content(
    name="hex bolt",
    looks="rod with a six-sided head",
    use="",
    bulk="",
    traits=("fully threaded",),
    size="M8 x 40",
    standard="ISO 4017",
    dims=BOLT.dims[:1],
    inch=False,
)


@pytest.mark.parametrize(
    ("phrasing", "endings"),
    [
        ("catalogue", ("Hex bolt ISO 4017, M8 x 40, fully threaded, 40 mm long",)),
        ("drawing", ("M8 X 40, FULLY THD, L=40, ISO 4017",)),
        ("figures_first", ("40 mm long, fully threaded, M8 x 40 hex bolt ISO 4017",)),
        ("inches", ("hex bolt, M8 x 40, 1.575 in long, fully threaded, ISO 4017",)),
        ("looks", ("a rod with a six-sided head, fully threaded, M8 x 40, 40 mm long",)),
        ("purpose", ("hex bolt (M8 x 40) by ISO 4017, fully threaded, a shank length of 40 mm",)),
        ("question", ("M8 x 40 to ISO 4017, fully threaded and 40 mm long?",)),
        ("request", ("a hex bolt M8 x 40, fully threaded (ISO 4017)", "40 mm long")),
        ("sentence", ("hex bolt of size M8 x 40, fully threaded", "a shank length of 40 mm.")),
        ("spoken", ("a hex bolt, size M8 x 40, fully threaded, forty",)),
    ],
)
def test_each_phrasing_says_the_same(phrasing: str, endings: tuple[str, ...]) -> None:
    texts = [say(CONTENT, phrasing, Random(seed)) for seed in range(60)]
    for ending in endings:
        assert any(ending.lower() in text.lower() for text in texts), texts[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hex bolt", "a hex bolt"),
        ("angle bracket", "an angle bracket"),
        ("U-bracket", "a U-bracket"),
        ("L-bracket", "an L-bracket"),
        ("90 degree elbow", "is 90 degree elbow"),
    ],
)
def test_articles_go_by_sound(name: str, text: str) -> None:
    content = replace(CONTENT, name=name, size="", traits=(), standard="", dims=())
    assert any(text in say(content, "sentence", Random(seed)) for seed in range(30))


@pytest.mark.parametrize("phrasing", sorted(PHRASINGS))
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_every_phrasing_is_clean_text_at_every_level(phrasing: str, level: int) -> None:
    for seed in range(20):
        text = say(choose(BOLT, level, Random(seed)), phrasing, Random(seed))
        assert text == " ".join(text.split())
        assert len(text) >= 4
        assert len(text.split()) <= 60
        for wrong in (" ,", ",,", " .", "()", "  ", ": ;", "a a ", "of of"):
            assert wrong not in text


def test_levels_say_more_and_more() -> None:
    said = [choose(BOLT, level, Random(1)) for level in range(4)]
    assert [content.name for content in said] == ["bolt", "hex bolt", "hex bolt", "hex bolt"]
    assert [len(content.dims) for content in said] == [0, 0, 1, 4]
    assert [bool(content.size) for content in said] == [False, False, True, True]
    assert said[3].traits == ("fully threaded",)


def test_captions_of_a_part_are_of_four_levels_and_four_phrasings() -> None:
    captions = captions_of(BOLT, 4, Random(0))
    assert [caption.level for caption in captions] == [0, 1, 2, 3]
    assert len({caption.phrasing for caption in captions}) == 4
    assert captions == captions_of(BOLT, 4, Random(0))
    assert captions != captions_of(BOLT, 4, Random(1))


@pytest.mark.parametrize(
    ("count", "levels"),
    [(1, [3]), (2, [2, 3]), (5, [0, 1, 2, 3, 3]), (12, sorted([*range(4)] * 3))],
)
def test_other_numbers_of_captions_keep_the_exact_ones(count: int, levels: list[int]) -> None:
    assert [caption.level for caption in captions_of(BOLT, count, Random(0))] == levels


@pytest.mark.parametrize(
    ("value", "text"), [(8, "8"), (6.4, "6.4"), (4.571999, "4.57"), (0.3, "0.3"), (100, "100")]
)
def test_numbers_have_no_idle_zeros(value: float, text: str) -> None:
    assert plain(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (21.5, "twenty-one point five"),
        (101, "one hundred and one"),
        (1200, "one thousand two hundred"),
        (0.35, "zero point three five"),
    ],
)
def test_numbers_are_spelled_as_spoken(value: float, text: str) -> None:
    assert spelled(value) == text


@pytest.mark.parametrize(
    ("inches", "text"),
    [
        (0.5, "1/2"),
        (1.25, "1-1/4"),
        (2, "2"),
        (0.015625, "1/64"),
        (0.334, "0.334"),
        (1 / 3, "0.333"),
    ],
)
def test_inches_are_fractions_where_they_are(inches: float, text: str) -> None:
    assert fraction(inches) == text


@pytest.mark.parametrize(
    ("dim", "units", "inch", "texts"),
    [
        (Dim.length(40, "length"), "mm", False, {"40 mm", "40 millimetres"}),
        (Dim.length(40, "length"), "tight", False, {"40mm"}),
        (Dim.length(40, "length"), "bare", False, {"40"}),
        (
            Dim.diameter(8, "bore"),
            "mm",
            False,
            {"8 mm", "Ø8 mm", "8 millimetres", "Ø8 millimetres"},
        ),
        (Dim.length(25.4, "length"), "inch", False, {"1 in", "1 inch", '1"'}),
        (Dim.length(31.75, "length"), "mm", True, {"1-1/4 in", "1-1/4 inch", '1-1/4"'}),
        (Dim.length(31.75, "length"), "bare", True, {"1-1/4"}),
        (Dim.count(4, "holes"), "inch", True, {"4"}),
        (Dim.count(4, "holes"), "words", False, {"four"}),
        (Dim.angle(45, "angle"), "mm", False, {"45°"}),
        (Dim.angle(45, "angle"), "words", False, {"forty-five degrees"}),
    ],
)
def test_quantities(dim: Dim, units: str, inch: bool, texts: set[str]) -> None:
    written = {quantity(dim, units, Random(seed), inch) for seed in range(80)}  # type: ignore[arg-type]
    assert written == texts
