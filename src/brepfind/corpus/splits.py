"""Train, validation and test: no shape on two sides, and stable when parts come or go.

The unit that moves is the *twin group*: parts that are the same shape, wherever they lie and
whatever unit they are written in. Which side a group falls on is decided by a hash of its own
smallest id, in the order of that hash within its family, so that adding parts moves few others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field

from brepfind.corpus.manifest import SPLITS
from brepfind.errors import CheckFailed, InputError
from brepfind.findings import Finding, at_least, at_most
from brepfind.params import Section


class SplitConfig(Section):
    """How the accepted parts are divided."""

    test: float = Field(gt=0, lt=1, description="share of parts in the test split")
    validation: float = Field(gt=0, lt=1, description="share of parts in the validation split")
    seed: int = Field(ge=0, description="another seed, another division")
    min_parts: int = Field(ge=1, description="each split has at least this many parts")
    allow_leaks: bool = Field(
        description="keep a user's split although twins stand on two of its sides"
    )


def make_split(
    ids: Sequence[str],
    families: Sequence[str],
    twin_groups: NDArray[np.int64],
    user_split: Sequence[str] | None,
    config: SplitConfig,
    known: Collection[str] = (),
) -> pd.DataFrame:
    """Assign each part to a side.

    Args:
        ids: N model ids, each once.
        families: N family names, empty where unknown. Shares hold within each family.
        twin_groups: (N,) group of each part; parts of one group are the same shape.
        user_split: N of ``train``, ``validation``, ``test`` or empty, as the user asked for; None
            where they asked for nothing. Parts left empty join their twins' side where these have
            one, else they are divided as if there were no user's split.
        config: shares and limits.
        known: ids of parts whose shape pretraining has seen. With their twins they are for train,
            unless the user asked otherwise.

    Returns:
        Columns ``model_id`` and ``split``, sorted by ``model_id``.

    Raises:
        InputError: if ids stand twice, or the shares leave nothing to train on.
        CheckFailed: if a side has too few parts, or a user's split has twins on two sides and
            ``allow_leaks`` is false.
    """
    if not config.test + config.validation < 1:
        raise InputError(
            f"split.test {config.test:g} and split.validation {config.validation:g} leave no part "
            "to train on; their sum must be below 1"
        )
    table = pd.DataFrame(
        {
            "model_id": list(ids),
            "family": list(families),
            "group": np.asarray(twin_groups),
            "split": list(user_split) if user_split is not None else [""] * len(ids),
        }
    )
    if table["model_id"].duplicated().any():
        twice = table["model_id"][table["model_id"].duplicated()].iloc[0]
        raise InputError(f"part {twice!r} stands twice in what is to be split")
    table = table.sort_values("model_id", ignore_index=True)
    leaks = leaking_parts(table["group"].to_numpy(), list(table["split"]))
    table["split"] = _fill(table, config, set(known))
    result = table[["model_id", "split"]]
    findings = split_findings(
        {side: list(table["split"]).count(side) for side in SPLITS}, len(leaks), config
    )
    bad = [finding for finding in findings if finding.verdict == "failed"]
    if bad:
        names = ", ".join(table["model_id"].iloc[leaks[:4]])
        twins = f" ({names}{', ...' if len(leaks) > 4 else ''})" if leaks else ""
        raise CheckFailed(
            f"split: {bad[0].name} is {bad[0].value}{twins}: {bad[0].advice}", findings
        )
    return result


def split_findings(counts: dict[str, int], leaks: int, config: SplitConfig) -> list[Finding]:
    """What is asked of a split, as findings.

    Args:
        counts: parts on each side.
        leaks: parts of the user's split that have a twin on another side.
        config: limits.
    """
    findings = [
        at_least(
            f"split.{side}.parts",
            counts.get(side, 0),
            config.min_parts,
            advice="too few parts were accepted for this division; give more parts, change the "
            "shares, or lower split.min_parts",
        )
        for side in SPLITS
    ]
    findings.append(
        at_most(
            "split.leaking_parts",
            leaks,
            0,
            advice="the user's split has the same shape on two sides, so that test results would "
            "be too good; move the twins to one side, or set split.allow_leaks",
            otherwise="warning" if config.allow_leaks else "failed",
        )
    )
    return findings


def leaking_parts(twin_groups: NDArray[np.int64], sides: Sequence[str]) -> list[int]:
    """Positions of parts that have a twin on another named side; empty sides do not count."""
    table = pd.DataFrame({"group": np.asarray(twin_groups), "side": list(sides)})
    named = table[table["side"] != ""]
    sides_of = named.groupby("group")["side"].nunique()
    leaking = set(sides_of.index[sides_of > 1])
    return [int(i) for i in named.index[named["group"].isin(leaking)]]


def _fill(table: pd.DataFrame, config: SplitConfig, known: set[str]) -> list[str]:
    """The side of each row, those without one filled in; rows are sorted by id."""
    side_of_group: dict[int, str] = {}
    for group, side in zip(table["group"], table["split"], strict=True):
        if side:
            side_of_group.setdefault(group, side)
    free = table[~table["group"].isin(side_of_group)]
    # A group's family is that of its smallest id: twins of two families exist (a spacer and a
    # bushing), and must not be parted.
    heads = free.drop_duplicates("group")
    sizes = free["group"].value_counts()
    for name, family in heads.groupby("family", sort=True):
        groups = [
            (str(head), int(group), int(sizes[group]))
            for head, group in zip(family["model_id"], family["group"], strict=True)
        ]
        side_of_group |= divide(str(name), groups, config)
    # Only now, so that no other group's side depends on what pretraining has seen.
    side_of_group |= dict.fromkeys(free["group"][free["model_id"].isin(known)], "train")
    return [
        side or side_of_group[group]
        for group, side in zip(table["group"], table["split"], strict=True)
    ]


def divide(
    family: str, groups: Sequence[tuple[str, int, int]], config: SplitConfig
) -> dict[int, str]:
    """The side of each twin group of one family.

    The groups are lined up by a hash of their heads' ids; the line is cut at the two shares. A new
    part enters somewhere in the line and moves at most the groups at the two cuts. Each cut is
    rounded by a hash of the family's name, so that over many small families the shares come out
    right, and no family's cut depends on another's.

    Args:
        family: the family's name.
        groups: for each group its head's id, its number, and how many parts it holds.
        config: shares and seed.
    """
    line = sorted(groups, key=lambda group: uniform(config.seed, "part", group[0]))
    parts = sum(size for _, _, size in line)
    offset = uniform(config.seed, "family", family)
    cut_test = int(parts * config.test + offset)
    cut_validation = int(parts * (config.test + config.validation) + offset)
    sides: dict[int, str] = {}
    start = 0
    for _, group, size in line:
        middle = start + size / 2
        if middle < cut_test:
            sides[group] = "test"
        elif middle < cut_validation:
            sides[group] = "validation"
        else:
            sides[group] = "train"
        start += size
    return sides


def uniform(*key: object) -> float:
    """A number in [0, 1) that only depends on ``key``; the same on every machine."""
    text = "/".join(map(str, key)).encode("utf-8")
    return int.from_bytes(hashlib.sha256(text).digest()[:7], "big") / 2**56
