"""A contact sheet: one HTML file with pictures of what a search found."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brepfind.app.rows import hit_row
from brepfind.errors import InputError
from brepfind.files import digest, write_text
from brepfind.graphs.extraction_cache import user_cache
from brepfind.log import printable
from brepfind.retrieval.parts import step_file
from brepfind.retrieval.search import Hit

_WORKERS = 2


def cache() -> Path:
    """Where pictures and pages are kept between calls."""
    return user_cache().parent


def write_sheet(found: Sequence[Hit], folder: Path, title: str, out: Path | None = None) -> Path:
    """Write the page; returns its path.

    Args:
        folder: of the index. title: what was asked for.
        out: where to; by default a file in the user's cache, named by the question.

    Raises:
        InputError: if the name does not end in ``.html``.
    """
    if out is None:
        out = cache() / "sheets" / f"search-{digest(title)[:12]}.html"
    elif out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{out}: a page is HTML; name it something.html")
    pictures = _pictures(found, folder)
    parts = [_shown(hit_row(hit, folder), pictures.get(hit.model_id)) for hit in found]
    from jinja2 import Environment, PackageLoader

    pages = Environment(loader=PackageLoader("brepfind.app"), autoescape=True)
    page = pages.get_template("sheet.html").render(title=printable(title, 300), parts=parts)
    write_text(out, page)
    return out.resolve()


def _pictures(found: Sequence[Hit], folder: Path) -> dict[str, Path]:
    """The PNG of each part whose STEP file is there, by id."""
    from brepfind.report.part_pictures import part_pictures, picture_key

    files = {hit.model_id: step_file(folder, hit.facts) for hit in found}
    keys = {name: picture_key(file) for name, file in files.items() if file and file.is_file()}
    items = [(key, files[name]) for name, key in keys.items()]
    made = part_pictures([(k, f) for k, f in items if f], cache() / "views", _WORKERS)
    return {name: made.paths[key] for name, key in keys.items()}


def _shown(row: dict[str, Any], picture: Path | None) -> dict[str, str]:
    """What the template shows of a part, as text; it escapes all of it."""
    sides = row["size_mm"]
    return {
        "name": row["name"],
        "size": "size unknown" if sides is None else " × ".join(f"{s:.4g}" for s in sides) + " mm",
        "faces": "?" if row["faces"] is None else str(row["faces"]),
        "score": f"{row['score']:.3f}",
        "path": row["path"] or "",
        "picture": base64.b64encode(picture.read_bytes()).decode("ascii") if picture else "",
    }


def open_page(path: Path) -> bool:
    """Open a page in the browser; False where there is no screen for one."""
    import webbrowser

    # Without a screen webbrowser would start one that fills the terminal.
    screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    return screen and webbrowser.open(path.as_uri())
