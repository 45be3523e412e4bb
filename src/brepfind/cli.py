"""The ``brepfind`` command. Each subcommand imports what it needs when it runs, so that ``--help``
comes at once and ``brepfind doctor`` works with the bare install.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from brepfind import __version__
from brepfind.app import commands as searching
from brepfind.corpus.commands import app as corpus_app
from brepfind.errors import BrepfindError, InputError, Interrupted
from brepfind.log import console, printable, setup_logging

app = typer.Typer(
    name="brepfind",
    help="Find 3D CAD parts from a sentence, and look after the files that this takes. "
    "The pipeline itself runs through DVC: see `make help`.",
    epilog="For example, after `make repro`: "
    '[bold]brepfind search "hex bolt, M8, 40 mm long" --max-size 60[/bold], '
    "or [bold]brepfind app[/bold] for the same in the browser. "
    "[bold]brepfind COMMAND --help[/bold] tells more.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# The help page lists panels in the order of their first command.
app.command(rich_help_panel="Search", short_help="Parts that fit a sentence or a shape.")(
    searching.search
)
app.command(rich_help_panel="Search", short_help="Search in the browser, with 3D views.")(
    searching.app
)
app.add_typer(
    searching.index_app,
    name="index",
    rich_help_panel="Search",
    short_help="Add parts without training, delete them, show them.",
)
app.add_typer(
    corpus_app,
    name="corpus",
    rich_help_panel="Corpora",
    short_help="Public data sets as manifests for the pipeline.",
)

_LENGTH = 70  # characters of a name from a file that a table shows


def main() -> None:
    """The entry point: errors of the tree end in one line and the tree's exit code."""
    setup_logging()
    arguments, wants_traceback = _without_traceback(sys.argv[1:])
    try:
        app(arguments)
    except SystemExit as end:
        if end.code == Interrupted.exit_code:  # what typer makes of Ctrl-C, without a word
            _say("stopped by Ctrl-C")
        raise
    except BrepfindError as error:
        if wants_traceback:
            traceback.print_exc()
        _say(str(error))
        sys.exit(error.exit_code)
    except OSError as error:  # a full disk, a folder that may not be written
        if wants_traceback or error.strerror is None:
            traceback.print_exc()
        _say(f"{error.filename or 'the system says'}: {error.strerror or error}")
        sys.exit(BrepfindError.exit_code)


def _without_traceback(arguments: list[str]) -> tuple[list[str], bool]:
    """The arguments without ``--traceback``, which may stand anywhere, and whether it was there."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = [word for word in arguments[:end] if word != "--traceback"]
    return options + arguments[end:], len(options) < end


def _say(text: str) -> None:
    console.print(
        f"brepfind: {printable(text)}", style="red", markup=False, highlight=False, soft_wrap=True
    )


def _version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version.")
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where an error comes from.")
    ] = False,
) -> None:
    """Options that every command takes stand before its name."""


# Checkpoints -------------------------------------------------------------------------------------

Like = Annotated[
    str | None,
    typer.Option(help="Compare with an architecture (brepformer) or with another checkpoint."),
]
Drop = Annotated[list[str] | None, typer.Option(help="Leave out this tensor; may be repeated.")]
Prefix = Annotated[
    str | None, typer.Option(help="What stands before the names; found by itself if not given.")
]


@app.command(
    rich_help_panel="Checkpoints",
    short_help="Is a checkpoint sound? NaN, Inf, complex, missing tensors.",
)
def doctor(
    checkpoint: Annotated[list[Path], typer.Argument(help="Any checkpoint: torch or safetensors.")],
    like: Like = None,
    drop: Drop = None,
    prefix: Prefix = None,
    as_json: Annotated[bool, typer.Option("--json", help="All findings as JSON.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="All rows, however many.")] = False,
) -> None:
    """Is a checkpoint sound? NaN, Inf, complex, missing and mis-shaped tensors, worst first.

    Nothing in it is run. Exit code: 0 healthy, 1 sick, 2 not readable.
    """
    from brepfind.checkpoints.commands import run_doctor

    code = run_doctor(
        checkpoint,
        like=_architecture(like),
        like_name=like or "",
        drop=drop or (),
        prefix=prefix,
        as_json=as_json,
        everything=everything,
    )
    raise typer.Exit(code)


@app.command(rich_help_panel="Checkpoints", short_help="Clean weights from any checkpoint.")
def sanitize(
    source: Annotated[Path, typer.Argument(metavar="IN", help="The checkpoint.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The safetensors to write.")],
    like: Like = None,
    drop: Drop = None,
    prefix: Prefix = None,
    min_coverage: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the architecture that must be filled.")
    ] = 1.0,
    restore: Annotated[
        bool, typer.Option("--restore", help="The other way: the authors' layout, complex again.")
    ] = False,
) -> None:
    """Clean weights from any checkpoint: plain keys, real tensors, every key accounted for.

    What cannot be repaired honestly is refused: a NaN is never replaced.
    """
    from brepfind.checkpoints.commands import run_sanitize

    run_sanitize(
        source,
        target,
        like=_architecture(like),
        drop=drop or (),
        prefix=prefix,
        min_coverage=min_coverage,
        restore=restore,
    )


def _architecture(name: str | None) -> Any:
    """``--like`` as a table; models and checkpoints do not know each other, so they meet here."""
    if name is None:
        return None
    from brepfind.checkpoints.commands import like

    def brepformer() -> Any:
        from brepfind.models.encoder import EncoderConfig, architecture

        return lambda shapes: architecture(EncoderConfig.from_shapes(shapes))

    return like(name, {"brepformer": brepformer})


@app.command(
    rich_help_panel="Checkpoints", short_help="The encoder alone: embeddings of graph files."
)
def encode(
    weights: Annotated[Path, typer.Argument(help="BRepFormer weights in any layout.")],
    graphs: Annotated[list[Path], typer.Argument(metavar="GRAPH", help="Graph files (.bin).")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The safetensors to write.")],
    max_faces: Annotated[
        int, typer.Option(min=1, max=4095, help="A graph with more faces is refused.")
    ] = 512,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Do not read the pairwise matrices in the files.")
    ] = False,
    authors_angles: Annotated[
        bool, typer.Option("--authors-angles", help="Compute angles by the authors' own rule.")
    ] = False,
) -> None:
    """The encoder alone: graph_embedding (graphs x dim) and face_tokens_0, 1, ... of graph files.

    Compare them with what other code gives for the same weights.
    """
    from brepfind.retrieval.encode import encode_files

    rows, dim = encode_files(
        weights,
        graphs,
        out,
        max_faces=max_faces,
        recompute=recompute,
        angle_rule="authors" if authors_angles else "inside",
    )
    typer.echo(f"{rows} graphs, {dim} numbers each, in {out}")


# STEP files --------------------------------------------------------------------------------------


@app.command(rich_help_panel="STEP files", short_help="What is in a STEP file.")
def inspect(
    file: Annotated[Path, typer.Argument(help="A STEP file.")],
    faces: Annotated[bool, typer.Option("--faces", help="List every face.")] = False,
    picture: Annotated[
        Path | None, typer.Option(help="Draw it, faces coloured by type: a PNG to write.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds the file may take.")] = 60.0,
) -> None:
    """What is in a STEP file: solids, faces and edges by type, box, volume, signature, warnings.

    It is read in a process of its own, so that a bad file cannot hurt.
    """
    from brepfind.cad.extract import ExtractConfig, extract_file
    from brepfind.cad.pool import work_on
    from brepfind.cad.summary import face_rows, summary

    config = ExtractConfig(
        grid=10,
        max_faces=4095,
        multi_solid="merge",
        timeout_s=timeout,
        memory_gb=8,
        max_reject_rate=0,
        shards=1,
    )

    def isolated(work: Any) -> Any:
        (outcome,) = work_on([("file", file)], work, config, workers=1)
        if outcome.reject is not None:
            raise InputError(f"{file}: {outcome.reject}")
        return outcome.parts[0]

    part = isolated(extract_file)
    facts = summary(part)
    if picture is not None:
        from brepfind.cad.mesh import mesh_file
        from brepfind.report.picture import draw_part

        draw_part(isolated(mesh_file), picture)
    if as_json:
        typer.echo(json.dumps(facts | ({"faces": face_rows(part)} if faces else {}), indent=2))
        return
    out = Console()
    table = Table(title=_cell(file.name), show_header=False)
    for name, value in facts.items():
        shown = value if name == "signature" else _text(value)  # all nine numbers
        table.add_row(name.replace("_", " "), shown)
    out.print(table)
    if faces:
        listed = Table("face", *(name for name in face_rows(part)[0]))
        for number, row in enumerate(face_rows(part)):
            listed.add_row(str(number), *(_text(value) for value in row.values()))
        out.print(listed)


def _cell(text: str) -> str:
    """A name from outside for a table: printable, not too long, and not taken for markup."""
    return escape(printable(text, _LENGTH))


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} {name}" for name, count in value.items()) or "none"
    if isinstance(value, list):
        between = "; " if value and isinstance(value[0], str) else " x "
        return between.join(_text(item) for item in value) or "none"
    return f"{value:.6g}" if isinstance(value, float) else _cell(str(value))


@app.command(rich_help_panel="STEP files", short_help="STEP files to a graph store, without DVC.")
def extract(
    paths: Annotated[list[Path], typer.Argument(help="STEP files and folders of them.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the graph store.")],
    workers: Annotated[int, typer.Option(min=0, help="Processes; 0: one per core.")] = 0,
    grid: Annotated[int, typer.Option(min=4, help="Samples along u, v and edges.")] = 10,
    max_faces: Annotated[int, typer.Option(min=1, help="Parts with more are rejected.")] = 4095,
    multi_solid: Annotated[str, typer.Option(help="merge, split or reject.")] = "merge",
    timeout: Annotated[float, typer.Option(help="Seconds a file may take.")] = 60.0,
    memory_gb: Annotated[float, typer.Option(help="Memory a worker may take.")] = 4.0,
    max_reject_rate: Annotated[
        float, typer.Option(min=0, max=1, help="More rejected files than this is exit code 1.")
    ] = 1.0,
    shards: Annotated[int, typer.Option(min=1, help="Files of the store.")] = 16,
    cluster: Annotated[
        str, typer.Option(help="local, or a Dask scheduler such as tcp://host:8786.")
    ] = "local",
    cache: Annotated[
        Path | None,
        typer.Option(help="Where results are kept; ~/.cache/brepfind/extracted if not given."),
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Neither read nor keep results.")
    ] = False,
) -> None:
    """STEP files to a graph store, without DVC: manifest.parquet, rejects.csv and the shards.

    A part's id is its path below the folder it was found in. A rejected file is listed with its
    reason and costs nobody else anything. Files whose content was seen before, under whatever name,
    are not extracted again; after Ctrl-C the same command goes on where it stopped.

    Exit code: 0 done, 1 nothing accepted or too much rejected, 2 cannot be used, 130 stopped.
    """
    from brepfind.cad.extract import ExtractConfig
    from brepfind.graphs.commands import run_extract
    from brepfind.graphs.extraction_cache import user_cache
    from brepfind.params import check_section
    from brepfind.processes import cores

    config = check_section(
        {
            "grid": grid,
            "max_faces": max_faces,
            "multi_solid": multi_solid,
            "timeout_s": timeout,
            "memory_gb": memory_gb,
            "max_reject_rate": max_reject_rate,
            "shards": shards,
            "cluster": cluster,
        },
        "extract",
        ExtractConfig,
        source="brepfind extract",
    )
    kept = None if no_cache else cache or user_cache()
    raise typer.Exit(run_extract(paths, out, config, workers or cores(), kept))


# Embeddings --------------------------------------------------------------------------------------


@app.command(
    rich_help_panel="Embeddings", short_help="Embeddings of parts and captions, with their ids."
)
def embed(
    source: Annotated[
        list[Path], typer.Argument(help="A graph store; or STEP files and folders of them.")
    ],
    out: Annotated[
        Path,
        typer.Option("-o", "--out", help="A folder, or a .parquet, .safetensors or .npy file."),
    ],
    model: Annotated[Path, typer.Option(help="The trained weights.")] = searching.MODEL,
    corpus: Annotated[
        Path | None, typer.Option(help="A corpus that says what the parts are; see prepare.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that read STEP files.")] = 2,
) -> None:
    """Embeddings of parts, and of their captions if a corpus is given, with their ids.

    `brepfind evaluate` reads what it writes, and `brepfind vitals` the files.
    """
    import tempfile

    from brepfind.retrieval.commands import embed_store

    with tempfile.TemporaryDirectory() as folder:
        graphs = source[0]
        if len(source) > 1 or not (graphs / "manifest.parquet").is_file():
            graphs = Path(folder) / "graphs"
            try:
                extract(source, graphs, workers)
            except typer.Exit as ended:  # as a command does; only a refusal ends this one too
                if ended.exit_code:
                    raise
        found = embed_store(model, graphs, out, cache=Path(folder) / "pairs", corpus=corpus)
    typer.echo(f"{len(found.parts)} parts and {len(found.captions)} captions in {out}")


@app.command(rich_help_panel="Embeddings", short_help="Have embeddings collapsed? Anyone's.")
def vitals(
    file: Annotated[Path, typer.Argument(help="Embeddings: .npy, .parquet or .safetensors.")],
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
) -> None:
    """Have embeddings collapsed? Anyone's, from any model.

    Exit code: 0 healthy (a warning is that too), 1 sick, 2 not readable or too few to say.
    """
    from brepfind.retrieval.commands import vitals_of

    _end(vitals_of(file), as_json)


@app.command(
    rich_help_panel="Embeddings", short_help="R@K of a pair of towers; anyone's embeddings."
)
def evaluate(
    embeddings: Annotated[Path, typer.Argument(help="A pair of towers: a folder or a file.")],
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
) -> None:
    """R@K of a pair of towers in three directions, after its vital signs; anyone's embeddings.

    Exit code: as for vitals. A collapsed pair gets no R@K.
    """
    from brepfind.retrieval.commands import evaluate_of

    _end(evaluate_of(embeddings), as_json)


def _end(outcome: Any, as_json: bool) -> None:
    typer.echo(json.dumps(outcome.data, indent=2, allow_nan=False) if as_json else outcome.text)
    raise typer.Exit(outcome.code)


# Training ----------------------------------------------------------------------------------------


@app.command(
    rich_help_panel="Training", short_help="Lend this machine to a training that another began."
)
def join(
    rendezvous: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="Where node 0 runs the train stage.")
    ],
    nodes: Annotated[int, typer.Option(min=2, help="Machines in all.")],
    node: Annotated[int, typer.Option(min=1, help="Which of them this is, from 1 on.")],
    project: Annotated[Path, typer.Option(help="The project's root, shared by all.")] = Path(),
) -> None:
    """Be one of several machines of a training; node 0 runs the train stage itself.

    Exit code: 0 the training ended well. docs/machines.md tells the whole.
    """
    from brepfind.distributed.nodes import Nodes
    from brepfind.pipeline.join import join as run

    run(project, Nodes.at(rendezvous, nodes), node)


@app.command(
    rich_help_panel="Training", short_help="Make the last sound checkpoint the current one."
)
def rollback(
    project: Annotated[Path, typer.Argument(help="The project's root.")] = Path(),
) -> None:
    """Make the last sound checkpoint that training kept the current one.

    Exit code: 0 the current model is sound now, 1 none that was kept is, 2 nothing to judge.
    """
    from brepfind.pipeline.rollback import rollback as run

    outcome = run(project)
    typer.echo(outcome.text)
    raise typer.Exit(outcome.code)


@app.command(rich_help_panel="Training", short_help="Show again where training met its first NaN.")
def replay(
    postmortem: Annotated[Path, typer.Argument(help="The folder a stopped training left.")],
    rank: Annotated[int | None, typer.Option(min=0, help="Of which rank.")] = None,
) -> None:
    """Show the step in which training met its first NaN or infinity again, on one process."""
    from brepfind.training.replay import main as run

    raise typer.Exit(run([str(postmortem), *([str(rank)] if rank is not None else [])]))


if __name__ == "__main__":
    main()
