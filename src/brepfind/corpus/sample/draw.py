"""Which parts a sample of a given size and seed holds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

from brepfind.corpus.sample.family import Family, Spec
from brepfind.errors import InputError
from brepfind.files import digest

if TYPE_CHECKING:
    from collections.abc import Iterator

# A family that gives this many known parts in a row is taken to be used up: its tables are finite.
USED_UP = 400


def draw_parts(families: Sequence[Family], parts: int, seed: int) -> list[Spec]:
    """The first ``parts`` parts of a sample, each of other facts, families taking turns.

    A smaller sample of the same seed is the beginning of a larger one. A family whose tables are
    used up leaves its turns to the others.

    Raises:
        InputError: if all families together do not have that many parts.
    """
    specs = list(islice(_all_parts(families, seed), parts))
    if len(specs) < parts:
        raise InputError(
            f"prepare.parts is {parts}, but the sample's tables give {len(specs)} different parts"
        )
    return specs


def _all_parts(families: Sequence[Family], seed: int) -> Iterator[Spec]:
    streams = [_parts_of(family, seed) for family in families]
    while streams:
        alive = []
        for stream in streams:
            spec = next(stream, None)
            if spec is not None:
                alive.append(stream)
                yield spec
        streams = alive


def _parts_of(family: Family, seed: int) -> Iterator[Spec]:
    # Seeding by text goes through SHA-512 and does not depend on the process's hash seed.
    rng = Random(f"{seed}/{family.name}/facts")
    seen: set[str] = set()
    in_vain = 0
    while in_vain < USED_UP:
        facts = family.draw(rng)
        key = digest(dict(facts))
        if key in seen:
            in_vain += 1
            continue
        in_vain = 0
        seen.add(key)
        yield Spec(model_id=f"{family.name}_{len(seen) - 1:05d}", family=family.name, facts=facts)
