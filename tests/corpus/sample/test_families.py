"""Every family builds real solids, writes what it built, and says what it wrote."""

from pathlib import Path
from random import Random

import pytest
from build123d import Pos, import_step

from brepfind.corpus.sample.draw import draw_parts
from brepfind.corpus.sample.families import FAMILIES, FAMILY_BY_NAME
from brepfind.corpus.sample.family import Family, Spec
from brepfind.corpus.sample.generate import build_parts
from brepfind.corpus.sample.phrasing import choose, say
from brepfind.corpus.sample.shapes import write_step
from brepfind.errors import InputError

DEFAULT = 400  # parts


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_what_is_written_is_what_was_built(family: Family, tmp_path: Path) -> None:
    slow = family.name in ("sprocket", "spur_gear", "pipe_flange")
    for spec in draw_parts([family], 1 if slow else 2, seed=0):
        words = family.words(spec.facts)
        shape = family.build(spec.facts)
        built = shape.solids()
        assert len(built) == 1
        assert built[0].is_valid
        path = tmp_path / f"{spec.model_id}.step"
        write_step(shape, path, spec.model_id, inch=words.inch)
        text = path.read_bytes()
        assert (b"'INCH'" in text) == words.inch
        assert b"NEXT_ASSEMBLY_USAGE" not in text  # its number would count up with every part
        read = import_step(path).solids()
        assert len(read) == 1
        assert read[0].volume == pytest.approx(built[0].volume, rel=1e-5)
        assert read[0].area == pytest.approx(built[0].area, rel=1e-5)
        assert words.longest == pytest.approx(max(read[0].bounding_box().size), rel=0.35)


def test_a_part_made_in_inches_is_written_in_inches_at_its_true_size(tmp_path: Path) -> None:
    washer = FAMILY_BY_NAME["plain_washer"]
    shape = washer.build({"series": "inch", "size": "1/2"})
    for inch in (True, False, True):
        write_step(shape, tmp_path / "x.step", "x", inch=inch)
        assert (b"'INCH'" in (tmp_path / "x.step").read_bytes()) == inch
        box = import_step(tmp_path / "x.step").bounding_box().size
        assert max(box) == pytest.approx(1.375 * 25.4)  # ASME B18.21.1


def test_there_are_twenty_families_or_more_and_their_names_differ() -> None:
    assert len(FAMILY_BY_NAME) == len(FAMILIES) >= 20


def test_words_are_complete() -> None:
    for spec in draw_parts(FAMILIES, 4 * len(FAMILIES), seed=1):
        words = FAMILY_BY_NAME[spec.family].words(spec.facts)
        assert words.names and words.broad and words.looks and words.uses and words.dims
        assert all(words.traits)
        assert all(dim.value > 0 and dim.noun for dim in words.dims)


def test_the_exact_words_tell_any_two_parts_apart() -> None:
    seen: dict[str, Spec] = {}
    for spec in draw_parts(FAMILIES, 2000, seed=0):
        words = FAMILY_BY_NAME[spec.family].words(spec.facts)
        # The same random state for all, so that only facts can make a difference.
        text = say(choose(words, 3, Random(0)), "record", Random(0))
        assert text not in seen, f"{spec} and {seen.get(text)}"
        seen[text] = spec


def test_families_share_broad_words() -> None:
    users: dict[str, set[str]] = {}
    for spec in draw_parts(FAMILIES, 4 * len(FAMILIES), seed=0):
        for word in FAMILY_BY_NAME[spec.family].words(spec.facts).broad:
            users.setdefault(word, set()).add(spec.family)
    assert sum(len(families) > 1 for families in users.values()) >= 15


def test_a_larger_sample_begins_with_the_smaller_one() -> None:
    assert draw_parts(FAMILIES, 50, seed=3) == draw_parts(FAMILIES, 500, seed=3)[:50]
    assert draw_parts(FAMILIES, 50, seed=3) != draw_parts(FAMILIES, 50, seed=4)


def test_ten_thousand_different_parts_can_be_drawn() -> None:
    specs = draw_parts(FAMILIES, 10_000, seed=0)
    assert len({spec.model_id for spec in specs}) == 10_000


def test_used_up_tables_are_an_error_that_says_how_far_they_go() -> None:
    cap_nut = FAMILY_BY_NAME["cap_nut"]
    with pytest.raises(InputError, match=r"prepare\.parts is 100, .* give 21 different parts"):
        draw_parts([cap_nut], 100, seed=0)


def test_a_part_that_cannot_be_built_is_named(tmp_path: Path) -> None:
    spec = Spec(model_id="hex_bolt_1", family="hex_bolt", facts={"d": 7, "length": 10})
    with pytest.raises(RuntimeError, match=r"hex_bolt_1 with .*'d': 7"):
        build_parts([(spec, tmp_path / "x.step")], workers=1)
    assert list(tmp_path.iterdir()) == []


def test_a_shape_of_two_solids_is_a_programming_error(tmp_path: Path) -> None:
    bolt = FAMILY_BY_NAME["hex_bolt"]
    two = [bolt.build(spec.facts) for spec in draw_parts([bolt], 2, seed=0)]
    with pytest.raises(AssertionError, match="is one solid, this has 2"):
        write_step(Pos(500, 0, 0) * two[0] + two[1], tmp_path / "x.step", "x")


@pytest.mark.slow
def test_no_two_parts_of_the_default_sample_have_the_same_shape() -> None:
    seen: dict[tuple[float, ...], str] = {}
    faces = []
    for spec in draw_parts(FAMILIES, DEFAULT, seed=20):
        solid = FAMILY_BY_NAME[spec.family].build(spec.facts).solid()
        sides = sorted(round(side, 2) for side in solid.bounding_box().size)
        key = (round(solid.volume, 3), round(solid.area, 3), *sides)
        assert key not in seen, f"{spec.model_id} and {seen.get(key)}"
        seen[key] = spec.model_id
        faces.append(len(solid.faces()))
    assert 0 < sum(count > 120 for count in faces) < 0.05 * DEFAULT
