"""What ``brepfind extract`` does; the command line only parses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from brepfind.cad.extract import ExtractConfig
from brepfind.graphs.extraction import Tally, extract_store, find_step_files
from brepfind.graphs.extraction_cache import ExtractionCache
from brepfind.graphs.store import GraphStore
from brepfind.graphs.store_layout import REJECTS
from brepfind.log import printable

_SHOWN = 3  # rejected files that the table names for each reason
_LENGTH = 40  # characters of a name that it shows


def run_extract(
    paths: Sequence[Path], out: Path, config: ExtractConfig, workers: int, cache: Path | None
) -> int:
    """Extract STEP files below ``paths`` into a graph store and say what became of them.

    Args:
        out: folder of the store.
        config: its ``max_reject_rate`` decides the exit code.
        workers: processes on this machine.
        cache: folder of results known by content, or None for none.

    Returns:
        The exit code: 0, or 1 where nothing was accepted or too much rejected. The store is
        written all the same.
    """
    known = None if cache is None else ExtractionCache(cache, config)
    tally = extract_store(find_step_files(paths), out, config, workers, known)
    console = Console()
    if tally.rejected:
        console.print(_rejects(out))
    console.print(_said(tally, out), markup=False, highlight=False, soft_wrap=True)
    few_enough = tally.rejected <= config.max_reject_rate * tally.files
    return 0 if tally.accepted and few_enough else 1


def _said(tally: Tally, out: Path) -> str:
    known = f", {tally.cached} known from before" if tally.cached else ""
    damaged = f", {tally.damaged} damaged in the cache" if tally.damaged else ""
    rejected = f" (see {printable(str(out / REJECTS))})" if tally.rejected else ""
    return (
        f"{tally.graphs} graphs in {printable(str(out))} from {tally.accepted} of {tally.files} "
        f"files ({tally.extracted} extracted{known}{damaged}), {tally.rejected} files "
        f"rejected{rejected}"
    )


def _rejects(out: Path) -> Table:
    table = Table("rejected", "files", "such as", title="Rejected files")
    for reason, rows in GraphStore(out).rejects.groupby("reason"):
        names = [escape(printable(path, _LENGTH)) for path in rows["path"][:_SHOWN]]
        more = f", and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        table.add_row(escape(str(reason)), str(len(rows)), ", ".join(names) + more)
    return table
