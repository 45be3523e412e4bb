"""Captions: what is said at each level, and a dozen ways of saying it.

Two choices are kept apart. *What* is said (:func:`choose`) depends on the level: 0 is a vague
remark, 3 names every dimension. *How* it is said is a phrasing, one function each; it arranges the
same content in another order, with other words and units. A model that has learned one phrasing has
learned nothing of another, which can be tested by holding one out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from brepfind.corpus.sample.family import Dim, Words
from brepfind.corpus.sample.numbers import Units, quantity

LEVELS = (0, 1, 2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caption:
    """One caption and where it comes from."""

    text: str
    level: int
    phrasing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What one caption says, in no words yet; texts may be empty.

    Attributes:
        name: what the thing is called, without an article.
        looks: what it looks like, for phrasings that give no name.
        use: what it is for, after "for".
        bulk: a rough size word: ``small``.
        traits: qualities, to stand after the noun.
        size, standard: as in :class:`~brepfind.corpus.sample.family.Words`.
        dims: dimensions in the order they are told.
        inch: whether the part is made in inches.
    """

    name: str
    looks: str
    use: str
    bulk: str
    traits: tuple[str, ...]
    size: str
    standard: str
    dims: tuple[Dim, ...]
    inch: bool


def choose(words: Words, level: int, rng: Random) -> Content:
    """What a caption of this level says.

    Level 0 is a broad word, perhaps with one quality or a rough size; level 1 names the thing and
    a quality; level 2 adds its designation or its main dimensions; level 3 tells all there is.
    """
    traits = [rng.choice(ways) for ways in words.traits]
    dims = list(words.dims)
    if level == 0:
        traits = rng.sample(traits, min(len(traits), rng.randint(0, 1)))
        dims = []
    elif level == 1:
        traits = rng.sample(traits, min(len(traits), rng.randint(1, 2)))
        dims = []
    elif level == 2:
        traits = rng.sample(traits, min(len(traits), 1))
        dims = dims[: 1 if words.size else 2]
    elif rng.random() < 0.5:
        rng.shuffle(dims)
    says_bulk = rng.random() < (0.6, 0.4, 0.0, 0.0)[level]
    says_use = rng.random() < (0.3, 0.3, 0.1, 0.1)[level]
    says_standard = words.standards and rng.random() < (0.0, 0.1, 0.4, 0.6)[level]
    return Content(
        name=rng.choice(words.broad if level == 0 else words.names),
        looks=rng.choice(words.looks),
        use=rng.choice(words.uses) if says_use else "",
        bulk=_bulk(words.longest, rng) if says_bulk else "",
        traits=tuple(traits),
        size=rng.choice(words.size) if words.size and level >= 2 else "",
        standard=rng.choice(words.standards) if says_standard else "",
        dims=tuple(dims),
        inch=words.inch,
    )


def captions_of(words: Words, count: int, rng: Random) -> list[Caption]:
    """``count`` captions, from vague to exact, each in another phrasing.

    Four captions are one of each level; fewer leave out the vague ones, more go round again.

    Raises:
        AssertionError: if ``count`` is above the number of phrasings.
    """
    assert 0 < count <= len(PHRASINGS)
    levels = sorted(LEVELS[-1] - i % len(LEVELS) for i in range(count))
    phrasings = rng.sample(sorted(PHRASINGS), count)
    return [
        Caption(text=say(choose(words, level, rng), phrasing, rng), level=level, phrasing=phrasing)
        for level, phrasing in zip(levels, phrasings, strict=True)
    ]


def say(content: Content, phrasing: str, rng: Random) -> str:
    """The content in one phrasing, with single blanks and no space before a comma."""
    text = " ".join(PHRASINGS[phrasing](content, rng).split())
    for mark in ",;.?":
        text = text.replace(f" {mark}", mark)
    return text.replace(",,", ",").strip(" ,;")


def _bulk(longest: float, rng: Random) -> str:
    for limit, words in (
        (12, ("tiny", "miniature", "very small")),
        (40, ("small", "little", "compact")),
        (120, ("medium-sized", "mid-size", "hand-sized")),
        (300, ("large", "big", "sizeable")),
    ):
        if longest < limit:
            return rng.choice(words)
    return rng.choice(("very large", "huge", "heavy-duty"))


def _article(text: str) -> str:
    """``text`` with its indefinite article; texts that begin with a number or plural have none.

    It goes by sound: "a U-bracket", "an L-bracket", "an O-ring", "a UPN profile".
    """
    first = text.split()[0].lower() if text.split() else ""
    if not first or first[0].isdigit() or first in ("two", "three", "four", "a", "an"):
        return text
    consonant = first.startswith(("u-", "upn", "uni", "use", "one"))
    spelled = first.startswith(("l-", "m-", "s-", "x-", "h-", "n-", "f-")) or first == "shcs"
    return f"{'an' if spelled or (first[0] in 'aeiou' and not consonant) else 'a'} {text}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _noun(content: Content) -> str:
    return f"{content.bulk} {content.name}"


def _after(dim: Dim, units: Units, rng: Random, inch: bool) -> str:
    """``40 mm long``, ``6 holes``, ``8 mm bore``."""
    return f"{quantity(dim, units, rng, inch)} {dim.after or dim.noun}"


def _of(dim: Dim, units: Units, rng: Random, inch: bool) -> str:
    """``a length of 40 mm``, ``6 holes``."""
    if dim.kind == "count":
        return _after(dim, units, rng, inch)
    return f"{_article(dim.noun)} of {quantity(dim, units, rng, inch)}"


def _listed(items: list[str]) -> str:
    """``a, b and c``."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def _catalogue(content: Content, rng: Random) -> str:
    """Hex bolt ISO 4014, M8 x 40, partly threaded, 13 mm across flats."""
    units: Units = rng.choice(("mm", "tight"))
    dims = [_after(dim, units, rng, content.inch) for dim in content.dims]
    head = _capital(f"{_noun(content)} {content.standard}".strip())
    use = f"for {content.use}" if content.use else ""
    return ", ".join(filter(None, [head, content.size, *content.traits, *dims, use]))


def _sentence(content: Content, rng: Random) -> str:
    """The part is a hex bolt, partly threaded, of size M8 x 40. It has a length of 40 mm."""
    opening = rng.choice(("", "this is ", "the part is ", "the model shows "))
    size = f"of size {content.size}" if content.size else ""
    standard = rng.choice(("according to", "as in", "to")) + f" {content.standard}"
    first = ", ".join(
        filter(
            None,
            [
                f"{_article(_noun(content).strip())} {size}",
                *content.traits,
                standard if content.standard else "",
                f"made for {content.use}" if content.use else "",
            ],
        )
    )
    dims = [_of(dim, "mm", rng, content.inch) for dim in content.dims]
    second = f" It has {_listed(dims)}." if dims else ""
    return _capital(f"{opening}{first}.") + second


def _request(content: Content, rng: Random) -> str:
    """Looking for a hex bolt M8 x 40, partly threaded; it must be 40 mm long."""
    opening = rng.choice(
        ("i need", "looking for", "please find me", "show me", "i am after", "searching for")
    )
    dims = [_after(dim, rng.choice(("mm", "tight")), rng, content.inch) for dim in content.dims]
    noun = _article(f"{_noun(content)} {content.size}".strip())
    middle = ", ".join([noun, *content.traits])
    use = (
        f" {rng.choice(('for', 'to be used for', 'meant for'))} {content.use}"
        if content.use
        else ""
    )
    end = (
        f", {rng.choice(('about', 'with', 'it should be', 'must be'))} {_listed(dims)}"
        if dims
        else ""
    )
    standard = f" ({content.standard})" if content.standard else ""
    return f"{opening} {middle}{use}{standard}{end}"


def _question(content: Content, rng: Random) -> str:
    """Do you have a hex bolt in M8 x 40 that is partly threaded and 40 mm long?"""
    opening = rng.choice(
        ("do you have", "is there", "which part is", "where can I find", "have we got")
    )
    size = f"{rng.choice(('in', 'size'))} {content.size}" if content.size else ""
    dims = [_after(dim, "mm", rng, content.inch) for dim in content.dims]
    details = _listed([*content.traits, *dims])
    use = f"for {content.use}" if content.use else ""
    standard = f"to {content.standard}" if content.standard else ""
    text = f"{opening} {_article(_noun(content).strip())} {size} {standard} {use}".strip()
    return _capital(f"{text}, {details}?" if details else f"{text}?")


_STOP_WORDS = frozenset(
    (
        "a", "an", "the", "with", "of", "for", "and", "to", "in", "on", "at", "one", "each",
        "that", "by", "is", "its", "it", "from", "up", "all", "into", "as",
    )
)  # fmt: skip

_ABBREVIATIONS = (
    ("HEXAGON", "HEX"),
    ("DIAMETER", "DIA"),
    ("COUNTERSUNK", "CSK"),
    ("THICKNESS", "THK"),
    ("SOCKET HEAD", "SKT HD"),
    ("WITH ", "W/ "),
    ("THREADED", "THD"),
    ("STAINLESS", "SS"),
    ("MOUNTING", "MTG"),
    ("RECTANGULAR", "RECT"),
    ("ASSEMBLY", "ASSY"),
    ("BRACKET", "BRKT"),
    ("BEARING", "BRG"),
    ("PLATE", "PL"),
    ("FLANGE", "FLG"),
    ("HOLES", "HLS"),
)


def _drawing(content: Content, rng: Random) -> str:
    """BOLT, HEX, M8 X 40, PARTLY THD, L=40 S=13."""
    dims = []
    for dim in content.dims:
        value = quantity(dim, "bare", rng, content.inch)
        if dim.kind == "count":
            dims.append(f"{value}X {dim.noun}")
        elif dim.kind == "diameter":
            dims.append(f"Ø{value} {dim.noun if not dim.symbol else ''}".strip())
        else:
            dims.append(f"{dim.symbol or dim.noun}={value}")
    *before, last = content.name.split()
    if before and not _STOP_WORDS & set(before) and rng.random() < 0.7:
        head = ", ".join(filter(None, [last, " ".join(before), content.bulk]))
    else:
        head = _noun(content)
    items = [head, content.size, *content.traits, " ".join(dims), content.standard]
    text = ", ".join(filter(None, items)).upper()
    for word, short in _ABBREVIATIONS:
        text = text.replace(word, short)
    return text


def _keywords(content: Content, rng: Random) -> str:
    """``hex bolt m8 x 40 40mm partly threaded``"""
    dims = [
        quantity(dim, "tight", rng, content.inch)
        + (f" {dim.noun}" if dim.kind == "count" or rng.random() < 0.6 else "")
        for dim in content.dims
    ]
    chunks = [_noun(content), content.size, *content.traits, *dims, content.use, content.standard]
    if rng.random() < 0.5:
        rng.shuffle(chunks)
    words = " ".join(chunks).replace(",", " ").lower().split()
    return " ".join(word for word in words if word not in _STOP_WORDS)


def _looks(content: Content, rng: Random) -> str:
    """A round shank with a six-sided head, about 40 mm long."""
    opening = rng.choice(("", "it looks like ", "something like ", "picture ", "what I have is "))
    dims = [_after(dim, "mm", rng, content.inch) for dim in content.dims]
    bulk = f", {content.bulk}" if content.bulk else ""
    details = ", ".join([*content.traits, content.size, *dims]).replace(", ,", ",")
    return _capital(f"{opening}{_article(content.looks)}{bulk}, {details}")


def _purpose(content: Content, rng: Random) -> str:
    """For clamping two plates: hex bolt M8 x 40."""
    use = content.use or "this job"
    opening = rng.choice(("for {}:", "used for {}:", "it serves for {}:", "made for {}:")).format(
        use
    )
    if not content.use:
        opening = rng.choice(("wanted:", "part in question:", "on the list:", "spare part:"))
    dims = [_of(dim, "mm", rng, content.inch) for dim in content.dims]
    size = f"({content.size})" if content.size else ""
    details = ", ".join([*content.traits, *dims])
    standard = f"by {content.standard}" if content.standard else ""
    return f"{_capital(opening)} {_noun(content)} {size} {standard}, {details}"


def _inches(content: Content, rng: Random) -> str:
    """Hex bolt, M8 x 40, 1.575 in long."""
    dims = [_after(dim, "inch", rng, True) for dim in content.dims]
    head = _article(_noun(content).strip()) if rng.random() < 0.5 else _noun(content).strip()
    items = [head, content.size, *(dims + list(content.traits)), content.standard]
    use = f" for {content.use}" if content.use else ""
    return ", ".join(filter(None, items)) + use


def _spoken(content: Content, rng: Random) -> str:
    """So it's a hex bolt, about forty millimetres long, thirteen across the flats."""
    opening = rng.choice(
        ("so it's", "you know,", "that's", "basically", "what we call", "could be", "it's just")
    )
    dims = [_after(dim, "words", rng, content.inch) for dim in content.dims]
    size = f", size {content.size}" if content.size else ""
    use = f", you use it for {content.use}" if content.use else ""
    details = ", ".join([*content.traits, *dims])
    return f"{opening} {_article(_noun(content).strip())}{size}, {details}{use}"


def _record(content: Content, rng: Random) -> str:
    """type: hex bolt; size: M8 x 40; length: 40 mm."""
    items = []
    for dim in content.dims:
        items.append(f"{dim.noun}: {quantity(dim, 'mm', rng, content.inch)}")
    items.extend(f"{rng.choice(('feature', 'note'))}: {trait}" for trait in content.traits)
    if content.use:
        items.append(f"application: {content.use}")
    if content.size:
        items.insert(0, f"size: {content.size}")
    if content.standard:
        items.append(f"standard: {content.standard}")
    kind = f"{rng.choice(('type', 'part', 'item', 'description'))}: {_noun(content).strip()}"
    items.insert(0 if rng.random() < 0.7 else len(items), kind)
    return "; ".join(items)


def _figures_first(content: Content, rng: Random) -> str:
    """40 mm long, 13 mm across flats, partly threaded M8 x 40 hex bolt."""
    dims = [_after(dim, rng.choice(("mm", "tight")), rng, content.inch) for dim in content.dims]
    head = f"{content.size} {_noun(content)} {content.standard}"
    use = f"for {content.use}" if content.use else ""
    return ", ".join(filter(None, [*dims, *content.traits, f"{head} {use}".strip()]))


PHRASINGS: dict[str, Callable[[Content, Random], str]] = {
    "catalogue": _catalogue,
    "drawing": _drawing,
    "figures_first": _figures_first,
    "inches": _inches,
    "keywords": _keywords,
    "looks": _looks,
    "purpose": _purpose,
    "question": _question,
    "record": _record,
    "request": _request,
    "sentence": _sentence,
    "spoken": _spoken,
}
