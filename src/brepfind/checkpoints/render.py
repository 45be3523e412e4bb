"""A diagnosis for people: a coloured table on a terminal, plain lines when piped."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from brepfind.checkpoints.doctor import Diagnosis
from brepfind.checkpoints.verdicts import Symptom
from brepfind.log import printable

_ROWS = 25
_COLOUR = {"healthy": "green", "sick": "red", "unreadable": "red"}


def render(diagnosis: Diagnosis, console: Console, *, everything: bool = False) -> None:
    """Print one diagnosis, the worst first, the verdict in the last line.

    Args:
        diagnosis: what to print.
        console: where to.
        everything: all rows, however many.
    """
    shown = _shown(diagnosis, everything)
    if console.is_terminal:
        _table(diagnosis, shown, console)
    else:
        for symptom in shown:
            _plain(f"{_word(symptom)}  {symptom.line()}{_first(symptom, '  first at ')}", console)
    left = len(diagnosis.symptoms) - len(shown)
    if left:
        _plain(f"... and {left:,} more; --all shows them, --json holds them", console)
    for kind, advice in _advice(shown):
        _plain(f"{kind}: {advice}", console)
    colour = _COLOUR[diagnosis.verdict]
    console.print(
        f"[bold {colour}]{escape(printable(diagnosis.headline()))}[/]",
        soft_wrap=True,
        highlight=False,
    )


def _table(diagnosis: Diagnosis, shown: Iterable[Symptom], console: Console) -> None:
    where = f", weights under {diagnosis.where!r}" if diagnosis.where else ""
    against = f", against {diagnosis.like}" if diagnosis.like else ""
    title = f"{diagnosis.path}  ({diagnosis.layout}{where}{against}; checksums: "
    title += f"{diagnosis.checksums})"
    rows = list(shown)
    if not rows:
        return
    console.print(escape(printable(title)), style="dim", highlight=False)
    table = Table(show_edge=False, pad_edge=False, expand=True)
    table.add_column("")
    table.add_column("tensor", overflow="fold", ratio=3)
    table.add_column("what", overflow="fold", ratio=2)
    table.add_column("first at", overflow="fold")
    for symptom in rows:
        colour = "red" if symptom.severity == "sick" else "yellow"
        table.add_row(
            f"[{colour}]{_word(symptom)}[/]",
            escape(symptom.shown_name),
            escape(printable(symptom.text)),
            escape(_first(symptom)),
        )
    console.print(table)


def _shown(diagnosis: Diagnosis, everything: bool) -> list[Symptom]:
    if everything:
        return list(diagnosis.symptoms)
    looks = max(5, _ROWS - len(diagnosis.sick))
    return [*diagnosis.sick[:_ROWS], *diagnosis.looks[:looks]]


def _word(symptom: Symptom) -> str:
    return "SICK" if symptom.severity == "sick" else "look"


def _first(symptom: Symptom, before: str = "") -> str:
    if symptom.first is None:
        return ""
    return f"{before}[{', '.join(map(str, symptom.first))}]"


def _advice(shown: Iterable[Symptom]) -> list[tuple[str, str]]:
    """Each piece of advice once, in order."""
    given = {(symptom.kind, symptom.advice): None for symptom in shown if symptom.advice}
    return list(given)


def _plain(text: str, console: Console) -> None:
    console.print(escape(printable(text)), soft_wrap=True, highlight=False)
