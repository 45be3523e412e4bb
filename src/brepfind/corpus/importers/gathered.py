"""What an importer gathers: parts, their captions, and what it leaves out, each with its reason.

An imported folder holds a corpus (see :mod:`brepfind.corpus.manifest`), whose notes tell licence,
origin and counts and go on into every corpus made of it, and ``left_out.csv``, a row for each thing
that was left out. The data set's own files are only read.
"""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from brepfind.corpus.manifest import CAPTION_COLUMNS, PART_COLUMNS, write_corpus
from brepfind.corpus.tables import STEP_SUFFIXES, step_files
from brepfind.errors import InputError
from brepfind.files import unicode_text, write_text
from brepfind.log import get_logger

logger = get_logger(__name__)

LEFT_OUT = "left_out.csv"
# How many names of each reason, and guesses, stand in the notes; the table has all names.
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A data set and what one must know to use it.

    Attributes:
        name: of the command and of the corpus.
        title: for people.
        licence: of the parts and, if another, of the words.
        origin: where it comes from.
        warning: what its words or parts are not; empty if nothing need be said.
    """

    name: str
    title: str
    licence: str
    origin: str
    warning: str = ""


@dataclass(slots=True)
class Gathered:
    """Parts and captions on their way into a manifest.

    Attributes:
        root: the folder that part paths are relative to.
        parts: rows of ``model_id, path, family, split`` by ``model_id``.
        captions: texts with their levels, by ``model_id``, in the order they came.
        left_out: pairs of a reason (a short code) and what was left out for it.
        guessed: a sentence for each of the first files whose encoding was guessed.
        counts: whatever else the importer counted.
    """

    root: Path
    parts: dict[str, tuple[str, str, str, str]] = field(default_factory=dict)
    captions: dict[str, dict[str, int]] = field(default_factory=dict)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    guessed: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def files(self, suffixes: Collection[str] = STEP_SUFFIXES) -> list[str]:
        """Files below the root; see :func:`brepfind.corpus.tables.step_files`.

        A name that is not UTF-8 can stand in no manifest: that file is left out.
        """
        advice = "give the folder that the data set was unpacked into"
        readable = []
        for path in step_files(self.root, tuple(suffixes), advice):
            if unicode_text(path) == path:
                readable.append(path)
            else:
                self.leave_out("file_name_not_utf8", path)
        return readable

    def part(self, path: str, *, family: str | None = None, split: str = "") -> None:
        """Take a part in; its id is its path below the root, its family the folder it lies in."""
        if family is None:
            family = path.rpartition("/")[0]
        self.parts[path] = (path, path, family, split)

    def caption(self, model_id: str, text: str, where: str, level: int = -1) -> None:
        """Take a caption of a part in, white space evened out; a part has each text once.

        Args:
            where: what to call it if it is left out.
        """
        assert model_id in self.parts, model_id
        text = " ".join(text.split())
        known = self.captions.setdefault(model_id, {})
        if not text:
            self.leave_out("caption_empty", where)
        elif text in known:
            self.leave_out("caption_repeated", where)
        else:
            known[text] = level

    def leave_out(self, reason: str, what: str) -> None:
        """Count something that is not taken in; what of its name is no text becomes escapes."""
        self.left_out.append((reason, unicode_text(what)))

    def guess(self, sentence: str) -> None:
        """Count a file whose encoding was guessed; the first few are also said and noted."""
        self.counts["encoding_guessed"] += 1
        if len(self.guessed) < _SHOWN:
            self.guessed.append(sentence)
            logger.warning("%s", sentence)

    def split_of(self, model_id: str, split: str, where: str) -> None:
        """Put a part on a side.

        Raises:
            InputError: if it is already on another.
        """
        *row, before = self.parts[model_id]
        if before and before != split:
            raise InputError(f"{where}: puts {model_id!r} into {split!r}, before it was {before!r}")
        self.parts[model_id] = (row[0], row[1], row[2], split)


def write_gathered(gathered: Gathered, data_set: DataSet, out: Path) -> dict[str, Any]:
    """Write the manifest of everything gathered; parts without a caption are left out.

    The same input gives the same bytes.

    Returns:
        The notes: licence, origin and counts, as ``corpus.json`` has them.

    Raises:
        InputError: if no pair of a part and a caption is left, or ``out`` lies in the data.
    """
    root, out = gathered.root.resolve(), out.resolve()
    if out == root or out.is_relative_to(root):
        raise InputError(
            f"{out}: lies in the data set's own folder, which is never written to; give another "
            "with --out"
        )
    paired = {name: texts for name, texts in sorted(gathered.captions.items()) if texts}
    for name in sorted(set(gathered.parts) - set(paired)):
        gathered.leave_out("part_without_caption", name)
    left_out = sorted(gathered.left_out)
    if not paired:
        reasons = ", ".join(f"{n} {reason}" for reason, n in _by_reason(left_out).items())
        raise InputError(
            f"{gathered.root}: no part has a caption ({reasons or 'nothing was found'}); "
            "do the ids of the table fit the files?"
        )
    captions = [
        (name, text, level, index, "")
        for name, texts in paired.items()
        for index, (text, level) in enumerate(texts.items())
    ]
    notes = {
        "title": data_set.title,
        "licence": data_set.licence,
        "origin": data_set.origin,
        **({"warning": data_set.warning} if data_set.warning else {}),
        **({"encoding_guessed": gathered.guessed} if gathered.guessed else {}),
        "counted": dict(sorted(gathered.counts.items())),
        "left_out": _by_reason(left_out),
        "left_out_first": _first(left_out),
    }
    write_text(out / LEFT_OUT, _csv(left_out))
    write_corpus(
        out,
        pd.DataFrame([gathered.parts[name] for name in paired], columns=PART_COLUMNS),
        pd.DataFrame(captions, columns=CAPTION_COLUMNS),
        root=os.path.relpath(root, out),
        source=data_set.name,
        notes=notes,
    )
    return {"parts": len(paired), "captions": len(captions), **notes}


def _by_reason(left_out: list[tuple[str, str]]) -> dict[str, int]:
    return dict(sorted(Counter(reason for reason, _ in left_out).items()))


def _first(left_out: list[tuple[str, str]]) -> dict[str, list[str]]:
    first: dict[str, list[str]] = {}
    for reason, what in left_out:
        names = first.setdefault(reason, [])
        if len(names) < _SHOWN:
            names.append(what)
    return first


def _csv(left_out: list[tuple[str, str]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([("reason", "what"), *left_out])
    return text.getvalue()
