"""KiCad's 3D models of electronic parts, with the words of the footprints that use them.

A share folder of KiCad holds ``3dmodels/LIBRARY.3dshapes/NAME.step`` and
``footprints/LIBRARY.pretty/NAME.kicad_mod``. A footprint names its models (the ``.wrl`` that the
board view draws; the ``.step`` of the same name lies beside it) and has a description and tags.
Several footprints may use one model: it has the words of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from brepfind.corpus.importers.gathered import DataSet, Gathered
from brepfind.errors import InputError
from brepfind.log import progress

DATA_SET = DataSet(
    name="kicad",
    title="KiCad packages3D and footprints",
    licence="CC-BY-SA-4.0 with KiCad's exception: article 3 is waived for electronic designs that "
    "use the libraries, and for files generated for them; some models made by scripts are GPL-3+, "
    "see the Debian package's copyright file",
    origin="https://gitlab.com/kicad/libraries; Debian packages kicad-packages3d, kicad-footprints",
)

MODELS, FOOTPRINTS = "3dmodels", "footprints"

_VARIABLE = re.compile(r"\$[{(]\w+[)}]/")  # ${KICAD6_3DMODEL_DIR}/
# A link may hold brackets of its own, and stand in brackets that are not.
_URL = r"(?:https?://|ftp://|www\.)(?:[^\s()\[\]<>\"]|\([^\s()]*\))+"
_LINK = re.compile(rf"{_URL}(?:\s*(?:,|;|and|or)\s*{_URL})*", re.IGNORECASE)
# "(Script generated with StandardBox.py)", ", generated with kicad-footprint-generator ipc_x.py",
# ", script-generated using https://...", "[StepUp generated footprint]", "(from Kicad 4.0.7)".
_SCRIPT = re.compile(
    rf"""(?:script[ -])?generated[ ](?:with|using|by|from)[ ,]*
            (?:{_URL}|(?:kicad-|\w+\.py)[\w.-]*)?(?:\s+\w+\.py)?
        |script[ -]generated
        |StepUp[ ]generated(?:[ ]footprint)?
        |\(from[ ]kicad[ ][\d.]+\)""",
    re.IGNORECASE | re.VERBOSE,
)
# What is left of brackets, of "see" and of commas once what they were for is gone.
_EMPTY = re.compile(r"[(\[][\s,;:&]*(?:\b(?:and|or)\b[\s,;:&]*)?[)\]]", re.IGNORECASE)
_SEE = re.compile(r"\b(?:see(?: also| e\.g\.)?|source|datasheet|from):?\s*(?=[,;)\]]|$)", re.I)
_COMMAS = re.compile(r"\s*[,;|](?=[\s,;|]*(?:[,;|)\]]|$))|(?<=[(\[])[\s,;]+|\s+(?=[,;)\]])")
_ENDS = " ,;|:-"


@dataclass(frozen=True, slots=True)
class Footprint:
    """What is read of a footprint file.

    Attributes:
        description: as it stands, or empty.
        tags: as they stand, or empty.
        models: paths without the variable in front, POSIX, as they stand.
    """

    description: str
    tags: str
    models: tuple[str, ...]


def gather(share: Path) -> Gathered:
    """Read a share folder of KiCad.

    Raises:
        InputError: if one of the two folders is not in it.
    """
    for name in (MODELS, FOOTPRINTS):
        if not (share / name).is_dir():
            raise InputError(
                f"{share}: holds no folder {name!r}; give KiCad's share folder (such as "
                "/usr/share/kicad), or run `make data-kicad`"
            )
    gathered = Gathered(share / MODELS)
    for path in gathered.files():
        gathered.part(path, family=PurePosixPath(path).parent.name.removesuffix(".3dshapes"))
    by_stem = {path.rpartition(".")[0]: path for path in gathered.parts}
    folder = share / FOOTPRINTS
    files = sorted(folder.rglob("*.kicad_mod"))
    gathered.counts["models"] = len(gathered.parts)
    gathered.counts["footprints"] = len(files)
    with progress("reading footprints", len(files)) as bar:
        for file in files:
            _take(gathered, file, file.relative_to(folder).as_posix(), by_stem)
            bar.advance()
    return gathered


def _take(gathered: Gathered, file: Path, name: str, by_stem: dict[str, str]) -> None:
    try:
        footprint = read_footprint(file)
    except InputError as error:
        gathered.leave_out("footprint_unreadable", str(error))
        return
    if not footprint.models:
        gathered.leave_out("footprint_without_model", name)
    for model in footprint.models:
        path = by_stem.get(model.rpartition(".")[0])
        if path is None:
            gathered.leave_out("footprint_model_not_there", f"{name}: {model}")
            continue
        for kind, raw in (("description", footprint.description), ("tags", footprint.tags)):
            gathered.caption(path, plain_words(raw), f"{name}: {kind}")


def read_footprint(file: Path) -> Footprint:
    """Read a ``.kicad_mod`` file of KiCad 5 (``module``) or later (``footprint``).

    Raises:
        InputError: if it is no footprint.
    """
    import sexpdata

    try:
        parser = sexpdata.Parser(file.read_text(encoding="utf-8"))
        # As written: its own would make 402 of KiCad 5's (descr 0402), and True of (descr t).
        parser.atom = sexpdata.Symbol
        expressions = parser.parse()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file.name}: cannot be read ({error})") from None
    # The last two are what the library raises where a text or an escape is cut off.
    except (
        *(sexpdata.ExpectClosingBracket, sexpdata.ExpectNothing, sexpdata.ExpectSExp),
        *(ValueError, RecursionError, AttributeError, IndexError),
    ):
        raise InputError(f"{file.name}: is not a whole S-expression") from None
    tree = expressions[0] if len(expressions) == 1 else None
    head = tree[0] if isinstance(tree, list) and tree else None
    if not isinstance(tree, list) or str(head) not in ("footprint", "module"):
        raise InputError(f"{file.name}: is no footprint")
    return Footprint(
        description=next(_values(tree, "descr"), ""),
        tags=next(_values(tree, "tags"), ""),
        models=tuple(_VARIABLE.sub("", name, count=1) for name in _values(tree, "model")),
    )


def _values(tree: list[Any], key: str) -> Iterator[str]:
    """The first value of each child with that key; KiCad 5 leaves out quotes where it can."""
    for child in tree:
        if isinstance(child, list) and len(child) > 1 and str(child[0]) == key:
            yield str(child[1])


def plain_words(text: str) -> str:
    """A description without links, and without remarks on the script that drew the footprint."""
    text = _LINK.sub(" ", _SCRIPT.sub(" ", text))
    before = ""
    while text != before:
        before = text
        for left in (_EMPTY, _SEE, _COMMAS):
            text = left.sub("", text)
    return " ".join(text.split()).strip(_ENDS)
