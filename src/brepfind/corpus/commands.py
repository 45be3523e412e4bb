"""``brepfind corpus NAME``: data sets that people have, as manifests that ``prepare`` reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from brepfind.corpus.importers.gathered import DataSet, Gathered
    from brepfind.corpus.importers.words import Columns

app = typer.Typer(
    help="A data set's parts and captions as a manifest that the pipeline's prepare stage reads. "
    "The data set's own files are only read.",
    no_args_is_help=True,
)

Steps = Annotated[Path, typer.Argument(help="The folder of STEP files, at any depth.")]
Table = Annotated[
    Path, typer.Option("--captions", help="The caption table: CSV, Parquet or JSON Lines.")
]
Out = Annotated[Path, typer.Option("-o", "--out", help="The folder for the manifest.")]
IdColumn = Annotated[str, typer.Option(help="What the table calls the part.")]
CaptionColumn = Annotated[str, typer.Option(help="What the table calls the caption.")]
SplitColumn = Annotated[str, typer.Option(help="What the table calls the split, if it has one.")]

_LENGTH = 70  # characters of a name from a file that the table shows


@app.command()
def kicad(
    share: Annotated[
        Path, typer.Argument(help="KiCad's share folder, with 3dmodels/ and footprints/ in it.")
    ],
    out: Out,
) -> None:
    """KiCad's models of electronic parts with their footprints' descriptions and tags.

    `make data-kicad` fetches them and calls this.
    """
    from brepfind.corpus.importers import kicad as importer

    _write(importer.gather(share), importer.DATA_SET, out)


@app.command()
def text2cad(
    steps: Steps,
    captions: Table,
    out: Out,
    levels: Annotated[
        str, typer.Option(help="Which columns, with commas: abstract,beginner,intermediate,expert.")
    ] = "abstract,beginner,intermediate,expert",
    scale: Annotated[
        float | None,
        typer.Option(
            min=1e-6,
            help="Millimetres that one unit of the captions is in these STEP files; writes "
            '"0.75 units" as millimetres. Not given: the words stay as they are.',
        ),
    ] = None,
) -> None:
    """Text2CAD's caption table (uid and four levels) with STEP files named after the uids.

    Its lengths are in normalised units. STEP files made from its own JSON have 1 unit = 1 mm
    (--scale 1); files of the original models have another scale each, and none fits.
    """
    from brepfind.corpus.importers import text2cad as importer

    wanted = [level.strip() for level in levels.split(",")]
    _write(importer.gather(steps, captions, wanted, scale), importer.DATA_SET, out)


@app.command()
def abc(
    steps: Steps,
    captions: Table,
    out: Out,
    id_column: IdColumn = "model_id",
    caption_column: CaptionColumn = "caption",
    split_column: SplitColumn = "split",
) -> None:
    """Chunks of the ABC data set with any caption table.

    Unpack them first: 7z x abc_0000_step_v00.7z -oabc/
    """
    from brepfind.corpus.importers import abc as importer

    columns = _columns(id_column, caption_column, split_column)
    _write(importer.gather(steps, captions, columns), importer.DATA_SET, out)


@app.command()
def fusion360(
    steps: Steps,
    captions: Table,
    out: Out,
    official_split: Annotated[
        Path | None, typer.Option(help="The data set's train_test.json, to keep its split.")
    ] = None,
    id_column: IdColumn = "model_id",
    caption_column: CaptionColumn = "caption",
    split_column: SplitColumn = "split",
) -> None:
    """The Fusion 360 Gallery's STEP files with any caption table.

    Unpack it first: unzip r1.0.1.zip -d fusion360/
    """
    from brepfind.corpus.importers import fusion360 as importer

    columns = _columns(id_column, caption_column, split_column)
    _write(importer.gather(steps, captions, columns, official_split), importer.DATA_SET, out)


@app.command()
def folder(
    steps: Steps,
    out: Out,
    captions: Annotated[
        Path | None,
        typer.Option(help="CSV, Parquet or JSON Lines; none: a text file beside each STEP file."),
    ] = None,
    id_column: IdColumn = "model_id",
    caption_column: CaptionColumn = "caption",
    split_column: SplitColumn = "split",
) -> None:
    """Any folder of STEP files with a caption table, or with a text file beside each."""
    from brepfind.corpus.importers import folder as importer

    columns = _columns(id_column, caption_column, split_column)
    _write(importer.gather(steps, captions, columns), importer.DATA_SET, out)


@app.command()
def bins(
    graphs: Annotated[Path, typer.Argument(help="The folder of .bin graph files, at any depth.")],
    captions: Table,
    out: Out,
    id_column: IdColumn = "model_id",
    caption_column: CaptionColumn = "caption",
    split_column: SplitColumn = "split",
) -> None:
    """Graph files of BRepFormer, UV-Net or BrepMFR with a caption table; no STEP files needed.

    The extract stage takes the graphs as they are; extract.grid must be theirs.
    """
    from brepfind.corpus.importers import bins as importer

    columns = _columns(id_column, caption_column, split_column)
    _write(importer.gather(graphs, captions, columns), importer.DATA_SET, out)


def _columns(model_id: str, caption: str, split: str) -> Columns:
    from brepfind.corpus.importers.words import Columns

    return Columns(model_id=model_id, caption=caption, split=split)


def _write(gathered: Gathered, data_set: DataSet, out: Path) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from brepfind.corpus.importers.gathered import LEFT_OUT, write_gathered
    from brepfind.log import printable

    notes = write_gathered(gathered, data_set, out)
    console = Console()

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    if notes["left_out"]:
        table = Table("left out", "how many", "such as")
        for reason, count in notes["left_out"].items():
            first = escape(printable(notes["left_out_first"][reason][0], _LENGTH))
            table.add_row(reason.replace("_", " "), str(count), first)
        console.print(table)
        say(f"each of them is in {out / LEFT_OUT}")
    say(f"{notes['parts']} parts with {notes['captions']} captions in {out}")
    say(f"licence: {data_set.licence}")
    if data_set.warning:
        say(f"note: {data_set.warning}")
    say("\nFor the pipeline, in params.yaml:\n\nprepare:\n  source: manifest")
    say(f"  step_dir: {_here(gathered.root)}\n  captions: {_here(out)}")


def _here(path: Path) -> str:
    """As one would write it in the project: relative where it lies below the current folder."""
    absolute = path.resolve()
    return os.path.relpath(absolute) if absolute.is_relative_to(Path.cwd()) else str(absolute)
