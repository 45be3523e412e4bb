"""``brepfind search``, ``brepfind index`` and ``brepfind app``, as typer parses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brepfind.errors import InputError
from brepfind.log import console, printable

if TYPE_CHECKING:
    from brepfind.retrieval.additions import Added
    from brepfind.retrieval.parts import Filters
    from brepfind.retrieval.search import Hit, Searcher

_LENGTH = 70  # characters of a name from a file that a table shows
_REFUSED = 10  # files that did not come in, shown one by one

Model = Annotated[Path, typer.Option(help="The trained weights.")]
IndexFolder = Annotated[Path, typer.Option("--index", help="The index's folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="The same as JSON.")]
MinSize = Annotated[float | None, typer.Option(help="Longest side of the part at least, mm.")]
MaxSize = Annotated[float | None, typer.Option(help="Longest side of the part at most, mm.")]
MinFaces = Annotated[int | None, typer.Option(help="Faces at least.")]
MaxFaces = Annotated[int | None, typer.Option(help="Faces at most.")]

MODEL = Path("data/model/best.safetensors")
INDEX = Path("data/index")


def search(
    text: Annotated[str | None, typer.Argument(help="What the part looks like.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many parts.")] = 5,
    like: Annotated[
        str | None, typer.Option(help="Search by shape: a STEP file, or the id of a part.")
    ] = None,
    min_size: MinSize = None,
    max_size: MaxSize = None,
    min_faces: MinFaces = None,
    max_faces: MaxFaces = None,
    sheet: Annotated[
        Path | None, typer.Option(help="Write a page with pictures of what was found here (.html).")
    ] = None,
    browse: Annotated[
        bool, typer.Option("--open", help="Open that page in the browser, too.")
    ] = False,
    model: Model = MODEL,
    index: IndexFolder = INDEX,
    as_json: AsJson = False,
) -> None:
    """The parts that fit a sentence or a shape best, with score, size and path.

    A STEP file is read in a process of its own, with a limit of size, time and memory.
    """
    from brepfind.app.rows import hit_row
    from brepfind.retrieval.parts import Filters
    from brepfind.retrieval.search import Searcher

    if (text is None) == (like is None):
        raise InputError("say what the part looks like, or name one with --like; one of the two")
    filters = Filters(
        min_size=min_size, max_size=max_size, min_faces=min_faces, max_faces=max_faces
    )
    with console.status("loading the model"):
        searcher = Searcher.open(model, index)
    found = _found(searcher, text, like, k, filters)
    rows = [hit_row(hit, index) for hit in found]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, allow_nan=False))
    else:
        _print_rows(rows)
    if browse or sheet is not None:
        _sheet(found, index, text or f"like {like}", sheet, browse=browse)


def _found(
    searcher: Searcher, text: str | None, like: str | None, k: int, filters: Filters
) -> list[Hit]:
    if like is None:
        return searcher.search(text or "", k, filters)
    path = Path(like)
    if path.exists():
        return searcher.like_file(path, k, filters)
    try:
        return searcher.more_like(like, k, filters)
    except InputError as error:
        raise InputError(f"--like {like}: there is no such file, and {error}") from None


def _print_rows(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    if not rows:
        console.print("no part of the index passes these filters", markup=False)
        return
    table = Table("", "part", "score", "size, mm", "faces", "path")
    for column in (table.columns[1], table.columns[5]):
        column.overflow = "fold"  # whole, to be copied
    for place, row in enumerate(rows, start=1):
        size = row["size_mm"]
        gone = "" if row["there"] or row["path"] is None else " (gone)"
        table.add_row(
            str(place),
            _cell(row["model_id"]),
            f"{row['score']:.3f}",
            "?" if size is None else " x ".join(f"{side:.4g}" for side in size),
            "?" if row["faces"] is None else str(row["faces"]),
            "?" if row["path"] is None else _cell(row["path"]) + gone,
        )
    Console().print(table)


def _cell(text: str) -> str:
    from rich.markup import escape

    return escape(printable(text, _LENGTH))


def _sheet(found: list[Hit], index: Path, title: str, out: Path | None, *, browse: bool) -> None:
    from brepfind.app.sheet import open_page, write_sheet

    path = write_sheet(found, index, title, out)
    shown = browse and open_page(path)
    console.print(
        f"{'opened' if shown else 'page with pictures:'} {printable(str(path))}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def app(
    model: Model = MODEL,
    index: IndexFolder = INDEX,
    host: Annotated[
        str, typer.Option(help="Address to listen at; any but the loopback lets others in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8501,
    max_upload_mb: Annotated[
        float, typer.Option(min=0.001, max=1000, help="A dropped STEP file may have so many MB.")
    ] = 32.0,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds such a file may take.")] = 20.0,
    workers: Annotated[int, typer.Option(min=1, help="Processes that draw pictures.")] = 2,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Search in the browser: a page on this machine, with pictures and 3D views.

    Nothing is fetched from the network. STEP files are read in processes of their own.
    """
    from brepfind.app.serve import serve
    from brepfind.app.sheet import cache
    from brepfind.retrieval.shape import Limits

    serve(
        model,
        index,
        host=host,
        port=port,
        views=cache() / "views",
        workers=workers,
        limits=Limits(max_mb=max_upload_mb, timeout_s=timeout),
        browse=browse,
    )


# The index ---------------------------------------------------------------------------------------

index_app = typer.Typer(
    help="Add parts to an index without training, delete them, see what is in it.",
    no_args_is_help=True,
)


@index_app.command("add")
def index_add(
    paths: Annotated[list[Path], typer.Argument(help="STEP files and folders of them.")],
    model: Model = MODEL,
    index: IndexFolder = INDEX,
    prefix: Annotated[
        str, typer.Option(help="Put this before the ids, such as 'vendor/' of another folder.")
    ] = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="Take parts whose id is there with other content.")
    ] = False,
    allow_twins: Annotated[
        bool, typer.Option("--allow-twins", help="Take shapes that are there under another id.")
    ] = False,
    workers: Annotated[int, typer.Option(min=0, help="Processes; 0: one per core.")] = 0,
    timeout: Annotated[float, typer.Option(help="Seconds a file may take.")] = 60.0,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Neither read nor keep results of extraction.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Embed STEP files and add them; the index is made if there is none.

    A part's id is its path below the folder it was found in. The index changes once, at the end:
    Ctrl-C leaves the old one, and the same command goes on where it stopped.

    Exit code: 0 done, 1 nothing was added though something was asked for, 2 cannot be used.
    """
    from brepfind.graphs.extraction_cache import user_cache
    from brepfind.processes import cores
    from brepfind.retrieval.additions import LIMITS, add_files
    from brepfind.retrieval.shape import Limits

    outcome = add_files(
        model,
        index,
        paths,
        prefix=prefix,
        replace=replace,
        allow_twins=allow_twins,
        workers=workers or cores(),
        limits=Limits(max_mb=LIMITS.max_mb, timeout_s=timeout, memory_gb=LIMITS.memory_gb),
        cache=None if no_cache else user_cache(),
    )
    if as_json:
        typer.echo(json.dumps(_as_json(outcome), indent=2))
    else:
        _print_added(outcome, index)
    raise typer.Exit(1 if outcome.refused and not outcome.added else 0)


def _as_json(outcome: Added) -> dict[str, Any]:
    refused = [
        {"model_id": one.name, "reason": one.reason, "message": one.message}
        for one in outcome.refused
    ]
    return {
        "added": outcome.added,
        "replaced": outcome.replaced,
        "known": outcome.known,
        "refused": refused,
        "parts": outcome.total,
    }


def _print_added(outcome: Added, index: Path) -> None:
    for one in outcome.refused[:_REFUSED]:
        line = f"not added: {one.name}: {one.reason}: {one.message}"
        console.print(printable(line), markup=False, highlight=False, soft_wrap=True)
    if len(outcome.refused) > _REFUSED:
        console.print(f"and {len(outcome.refused) - _REFUSED} more (all of them with --json)")
    counts: dict[str, int] = {}
    for one in outcome.refused:
        counts[one.reason] = counts.get(one.reason, 0) + 1
    why = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
    replaced = f" ({len(outcome.replaced)} replaced)" if outcome.replaced else ""
    typer.echo(
        f"{len(outcome.added)} added{replaced}, {len(outcome.known)} there already, "
        f"{len(outcome.refused)} not added{f' ({why})' if why else ''}; "
        f"{outcome.total} parts in {printable(str(index))}"
    )


@index_app.command("delete")
def index_delete(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Parts to take out.")],
    index: IndexFolder = INDEX,
) -> None:
    """Take parts out of an index; all of those that are named, or none."""
    from brepfind.retrieval.additions import delete_parts

    left = delete_parts(index, ids)
    typer.echo(f"{len(set(ids))} deleted; {left} parts in {printable(str(index))}")


@index_app.command("show")
def index_show(
    index: IndexFolder = INDEX,
    model: Model = MODEL,
    ids: Annotated[bool, typer.Option("--ids", help="List the parts, one id a line.")] = False,
    as_json: AsJson = False,
) -> None:
    """What is in an index, which model made it, and how exact a search in it is."""
    from brepfind.files import sha256
    from brepfind.retrieval.index import EXACT_BELOW, read_index, read_stamp

    stamp = read_stamp(index)
    if ids:
        found = read_index(index).parts["model_id"].tolist()
        if as_json:
            typer.echo(json.dumps(found, indent=2))
        else:
            typer.echo("\n".join(printable(name) for name in found))
        return
    names = ("parts", "dim", "grid", "model", "exact", "recall_at_10")
    facts = {name: stamp[name] for name in names}
    facts["model_in_use"] = sha256(model) == stamp["model"] if model.is_file() else None
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    fits = {True: f"that is {model}", False: f"that is not {model}", None: f"{model} is not there"}
    how = (
        f"exact (it is below {EXACT_BELOW:,} parts)"
        if stamp["exact"]
        else f"approximate, {stamp['recall_at_10']:.1%} of the nearest ten are found"
    )
    typer.echo(
        f"{stamp['parts']} parts of {stamp['dim']} numbers, from graphs of grid {stamp['grid']}\n"
        f"model  {stamp['model'][:12]}, {printable(fits[facts['model_in_use']])}\n"
        f"search {how}"
    )
