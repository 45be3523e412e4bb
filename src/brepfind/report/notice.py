"""A page that stands where the run's page cannot be made, or not yet; needs nothing to be made."""

from __future__ import annotations

from html import escape
from pathlib import Path

from brepfind.files import write_text

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1rem/1.55 system-ui, sans-serif; max-width: 46rem; margin: 3rem auto;
  padding: 0 1rem; }}
p {{ overflow-wrap: anywhere; }}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
{paragraphs}
</main>
</body>
</html>
"""


def write_notice(path: Path, title: str, *paragraphs: str) -> None:
    """Write a page of plain text, whole or not at all; everything is escaped."""
    text = "\n".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)
    write_text(path, _PAGE.format(title=escape(title), paragraphs=text))
