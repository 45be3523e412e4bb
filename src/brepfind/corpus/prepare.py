"""Prepare a corpus: generate the sample, or take over the user's STEP folder and captions, or a
manifest that ``brepfind corpus`` made of a data set.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Literal

import pandas as pd
from pydantic import Field, model_validator

from brepfind.corpus.manifest import CAPTION_COLUMNS, PART_COLUMNS, read_corpus, write_corpus
from brepfind.corpus.tables import Matched, match_captions, read_captions, step_files
from brepfind.errors import CheckFailed, InputError
from brepfind.files import unicode_text
from brepfind.findings import Finding, at_most, failed, require
from brepfind.log import get_logger
from brepfind.params import Section

logger = get_logger(__name__)

# How many names a message gives before it says how many more there are.
SHOWN = 5


class PrepareConfig(Section):
    """What the corpus is made of."""

    source: Literal["sample", "folder", "manifest"] = Field(
        description="generate parts, use one's own, or what `brepfind corpus` wrote"
    )
    parts: int = Field(ge=1, le=100_000, description="sample: how many parts")
    seed: int = Field(ge=0, description="sample: another seed, other parts and captions")
    captions_per_part: int = Field(ge=1, le=12, description="sample: from vague to exact")
    step_dir: str | None = Field(description="folder, manifest: where the files lie")
    captions: str | None = Field(
        description="folder: CSV, Parquet or JSON Lines table of model_id, caption and, if "
        "wanted, split; manifest: the folder that `brepfind corpus` wrote"
    )
    max_orphan_rate: float = Field(
        ge=0,
        le=1,
        description="folder: highest share of captions without a part, and of parts without one; "
        "manifest: of parts whose file is gone",
    )

    @model_validator(mode="after")
    def _folder_is_named(self) -> PrepareConfig:
        if self.source != "sample" and not (self.step_dir and self.captions):
            raise ValueError(f"source {self.source!r} needs both step_dir and captions")
        return self


def prepare(config: PrepareConfig, out: Path, workers: int) -> list[Finding]:
    """Write the corpus that ``config`` asks for into ``out``.

    Returns:
        The findings of its checks, all passed or warnings.
    """
    if config.source == "sample":
        prepare_sample(config, out, workers)
        return []
    if config.source == "manifest":
        return prepare_manifest(config, out)
    return prepare_folder(config, out)


def prepare_sample(config: PrepareConfig, out: Path, workers: int) -> None:
    """Generate the sample: ``out/step/<family>/<id>.step`` and the manifest beside it.

    The same config gives the same bytes, whatever the number of workers. STEP files that an
    earlier sample left in ``out/step`` are removed.

    Raises:
        InputError: if the tables do not hold that many different parts.
    """
    # build123d takes seconds to import, and a folder of one's own does not need it.
    from brepfind.corpus.sample.draw import draw_parts
    from brepfind.corpus.sample.families import FAMILIES, FAMILY_BY_NAME
    from brepfind.corpus.sample.generate import build_parts
    from brepfind.corpus.sample.phrasing import captions_of

    specs = draw_parts(FAMILIES, config.parts, config.seed)
    paths = {spec.model_id: f"{spec.family}/{spec.model_id}.step" for spec in specs}
    root = out / "step"
    wanted = {root / path for path in paths.values()}
    for stale in set(root.rglob("*.step")) - wanted:
        stale.unlink()
    build_parts([(spec, root / paths[spec.model_id]) for spec in specs], workers)
    captions = []
    for spec in specs:
        words = FAMILY_BY_NAME[spec.family].words(spec.facts)
        rng = Random(f"{config.seed}/{spec.model_id}/captions")
        for index, caption in enumerate(captions_of(words, config.captions_per_part, rng)):
            captions.append((spec.model_id, caption.text, caption.level, index, caption.phrasing))
    write_corpus(
        out,
        pd.DataFrame(
            [(s.model_id, paths[s.model_id], s.family, "") for s in specs], columns=PART_COLUMNS
        ),
        pd.DataFrame(captions, columns=CAPTION_COLUMNS),
        root="step",
        source="sample",
        notes={"seed": config.seed},
    )
    logger.info("%d parts with %d captions made", len(specs), len(captions))


def prepare_folder(config: PrepareConfig, out: Path) -> list[Finding]:
    """Take over the user's STEP folder and caption table; neither is changed.

    A part's id is its path below the folder, suffix included, so that equal file names in two
    folders never meet. Its family is the folder it lies in.

    Returns:
        The findings: rates of captions without a part and of parts without a caption.

    Raises:
        InputError: if the folder or the table cannot be used; see :mod:`brepfind.corpus.tables`.
            Also if a STEP file's name is not UTF-8, which no manifest can hold.
        CheckFailed: if either rate is above ``max_orphan_rate``.
    """
    assert config.step_dir is not None
    assert config.captions is not None
    folder = Path(config.step_dir)
    files = step_files(folder)
    _require_utf8(folder, files)
    guessed: list[str] = []
    rows = read_captions(Path(config.captions), note=guessed.append)
    for sentence in guessed:
        logger.warning("%s", sentence)
    matched = match_captions(files, rows)
    bare = [file for file in files if not matched.captions.get(file)]
    findings = orphan_findings(matched, bare, len(files), len(rows), config.max_orphan_rate)
    for finding in findings:
        if finding.verdict == "warning":
            logger.warning("%s", finding.line())
    if failed(findings):
        bad = failed(findings)[0]
        raise CheckFailed(
            f"prepare: {bad.name} is {bad.value:.4g}, asked is {bad.limit}: {bad.advice}", findings
        )
    write_corpus(
        out,
        pd.DataFrame(
            [(f, f, f.rpartition("/")[0], matched.splits.get(f, "")) for f in files],
            columns=PART_COLUMNS,
        ),
        pd.DataFrame(
            [
                (file, text, -1, index, "")
                for file in files
                for index, text in enumerate(matched.captions.get(file, []))
            ],
            columns=CAPTION_COLUMNS,
        ),
        root=str(folder) if folder.is_absolute() else os.path.relpath(folder, out),
        source="folder",
        notes={
            "rows": len(rows),
            "rows_without_part": len(matched.without_part),
            "rows_without_part_first": matched.without_part[:SHOWN],
            "rows_without_caption": len(matched.empty),
            "rows_repeated": len(matched.repeated),
            "parts_without_caption": len(bare),
            "parts_without_caption_first": bare[:SHOWN],
            **({"encoding_guessed": guessed} if guessed else {}),
        },
    )
    return findings


def _require_utf8(folder: Path, files: Sequence[str]) -> None:
    for file in files:
        if unicode_text(file) != file:  # bytes of the name that Python holds as lone surrogates
            raise InputError(f"{folder}: the name {file!a} is not UTF-8; rename it")


def prepare_manifest(config: PrepareConfig, out: Path) -> list[Finding]:
    """Take over what ``brepfind corpus`` wrote, with its notes of licence and origin.

    Parts whose file is gone since are left out with their captions.

    Returns:
        The finding: the rate of parts whose file is gone.

    Raises:
        InputError: if the manifest cannot be read, or its files lie outside ``step_dir``.
        CheckFailed: if the rate is above ``max_orphan_rate``.
    """
    assert config.step_dir is not None
    assert config.captions is not None
    manifest, folder = Path(config.captions), Path(config.step_dir)
    if not (manifest / "corpus.json").is_file():
        raise InputError(
            f"{manifest}: holds no corpus.json; set prepare.captions to the folder that "
            "`brepfind corpus` wrote"
        )
    corpus = read_corpus(manifest)
    root = corpus.root.resolve()
    if not root.is_relative_to(folder.resolve()):
        raise InputError(
            f"{manifest}: its files lie in {root}, not in {folder}; set prepare.step_dir to where "
            "they are"
        )
    there = corpus.parts["path"].map(lambda path: corpus.step_path(path).is_file())
    gone = corpus.parts["path"][~there].tolist()
    advice = f"{len(gone)} of {len(there)}: {shown(gone)}"
    finding = at_most(
        "prepare.parts_without_file",
        len(gone) / max(len(there), 1),
        config.max_orphan_rate,
        advice=f"{advice}; unpack the data set again, or raise prepare.max_orphan_rate",
    )
    require("prepare", [finding])
    if gone:
        logger.warning("parts without file, left out: %s", advice)
    parts = corpus.parts[there]
    write_corpus(
        out,
        parts,
        corpus.captions[corpus.captions["model_id"].isin(parts["model_id"])],
        root=str(root) if folder.is_absolute() else os.path.relpath(root, out.resolve()),
        source=corpus.source,
        notes={**corpus.notes, "parts_without_file": len(gone)},
    )
    return [finding]


def orphan_findings(
    matched: Matched, bare: Sequence[str], parts: int, rows: int, limit: float
) -> list[Finding]:
    """What is asked of the match between a table and a folder, as findings.

    Args:
        matched: what came of it.
        bare: parts without a caption.
        parts: how many STEP files there are.
        rows: how many rows the table has.
        limit: ``max_orphan_rate``.
    """
    found = [
        ("prepare.captions_without_part", matched.without_part, rows),
        ("prepare.parts_without_caption", bare, parts),
    ]
    findings = []
    for name, names, total in found:
        rate = len(names) / total
        advice = f"{len(names)} of {total}: {shown(names)}"
        finding = at_most(
            name,
            rate,
            limit,
            advice=f"{advice}; mend the table or the folder, or raise prepare.max_orphan_rate",
        )
        if finding.verdict == "ok" and names:
            finding = at_most(name, rate, 0.0, advice=advice, otherwise="warning")
        findings.append(finding)
    for name, names in (
        ("prepare.rows_without_caption", matched.empty),
        ("prepare.rows_repeated", matched.repeated),
    ):
        advice = f"left out: {shown(names)}" if names else ""
        findings.append(at_most(name, len(names), 0, advice=advice, otherwise="warning"))
    return findings


def shown(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
