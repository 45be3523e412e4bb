"""Charts as SVG for the run's page: drawn with the page's own colours, so that they follow it into
dark mode and onto paper, and with a sentence for those who do not see them.

Colours are classes of the page's style sheet: ``c1`` to ``c5`` for series, ``limit``, ``grid``.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from markupsafe import Markup
from matplotlib import colormaps
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from PIL import Image

_WIDTH, _HEIGHT = 360, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 36, 36
_MATRIX, _LABELS = 480, 96  # pixels of a side of the matrix, and of the room for its labels


@dataclass(frozen=True, kw_only=True)
class Series:
    """A line of a chart.

    Attributes:
        name: for the legend.
        x, y: of equal length; where ``y`` is not finite the line has a gap.
        tone: 1 to 5, a colour of the page.
        dashed: so that lines differ without colours, too.
    """

    name: str
    x: ArrayLike
    y: ArrayLike
    tone: int = 1
    dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A point of a map: where, what it looks like, and what is said when it is pointed at."""

    x: float
    y: float
    look: str
    said: str


class _Axes:
    """From numbers to places in the picture."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float]) -> None:
        (self.x0, self.x1), (self.y0, self.y1) = _room(*x), _room(*y)

    def across(self, value: float) -> float:
        share = (value - self.x0) / (self.x1 - self.x0)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def up(self, value: float) -> float:
        share = (value - self.y0) / (self.y1 - self.y0)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def lines(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    limit: tuple[float, str] | None = None,
    names: Sequence[str] = (),
    from_zero: bool = False,
) -> Markup:
    """A chart of lines over a common axis.

    Args:
        title: what the numbers are, and their unit.
        series: at least one; up to five.
        limit: a number that must not be passed, drawn across, and what is asked: ``>= 0.1``.
        names: of places 0, 1, 2... along ``x``, where it is not a number.
        from_zero: begin the upright axis at 0 at the latest.
    """
    xs = np.concatenate([np.asarray(one.x, float) for one in series])
    ys = np.concatenate([np.asarray(one.y, float) for one in series])
    seen = ys[np.isfinite(ys)]
    ends = [float(seen.min()), float(seen.max())] if len(seen) else [0.0, 1.0]
    ends += [0.0] if from_zero else []
    ends += [limit[0]] if limit else []
    low, high = min(ends), max(ends)
    if low == high == 0:  # nothing happened; of that nothing is half or negative
        high = 1.0
    axes = _Axes((float(xs.min()), float(xs.max())), (low, high + 0.03 * (high - low)))
    body = [_frame(axes, x_label, names=names)]
    if limit is not None:
        at = axes.up(limit[0])
        body.append(_line("limit", _LEFT, at, _WIDTH - _RIGHT, at))
        above = at - 4 if at > _TOP + 14 else at + 12
        body.append(_text(_WIDTH - _RIGHT, above, f"asked {limit[1]}", "end", "limit-text"))
    for one in series:
        dash = " dashed" if one.dashed else ""
        body.append(
            Markup('<path class="line c{}{}" d="{}"/>').format(one.tone, dash, _path(axes, one))
        )
        body.extend(_dots(axes, one, x_label, names))
    body.append(_legend(series))
    asked = f" Asked: {limit[1]}." if limit else ""
    said = f"{title}, over {x_label}. " + " ".join(_in_words(one) for one in series) + asked
    return _svg(title, said, body)


def histogram(title: str, values: ArrayLike, *, x_label: str, log: bool = False) -> Markup:
    """How many of the values lie where; over powers of ten if ``log``."""
    found = np.asarray(values, float)
    found = found[np.isfinite(found) & ((found > 0) | (not log))]
    shown = np.log10(found) if log else found
    whole = not log and len(found) and bool((found == np.rint(found)).all())
    low, high = (float(shown.min()), float(shown.max())) if len(shown) else (0.0, 1.0)
    bins = int(min(24, max(4, round(math.sqrt(max(len(found), 1)) * 1.5))))
    if whole:  # bars of equal numbers of whole numbers, or teeth appear that mean nothing
        step = max(1, math.ceil((high - low + 1) / bins))
        edges = np.arange(low - 0.5, high + 0.5 + step, step)
    else:
        edges = np.linspace(low, high if high > low else low + 1, bins + 1)
    counts, _ = np.histogram(shown, edges)
    axes = _Axes((float(edges[0]), float(edges[-1])), (0.0, float(counts.max(initial=1))))
    body = [_frame(axes, x_label, log=log)]
    for left, right, count in zip(edges, edges[1:], counts, strict=False):
        if count:
            ends = [10**left, 10**right] if log else [left, right]
            told = f"{_short(ends[0])} to {_short(ends[1])}: {count}"
            x, width = axes.across(left) + 0.5, axes.across(right) - axes.across(left) - 1
            y = axes.up(float(count))
            body.append(
                Markup(
                    '<rect class="bar" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
                    "<title>{}</title></rect>"
                ).format(x, y, max(width, 0.5), axes.up(0) - y, told)
            )
    said = title
    if len(found):
        ends = [_short(number) for number in (found.min(), np.median(found), found.max())]
        said += f": {len(found)} values from {ends[0]} to {ends[2]}, median {ends[1]}."
    return _svg(title, said, body)


def scatter(
    title: str, dots: Sequence[Dot], *, pairs: Sequence[tuple[int, int]], said: str
) -> Markup:
    """A map of dots without axes, the pairs of them joined."""
    side = 560
    xs, ys = (np.array([getattr(dot, name) for dot in dots]) for name in ("x", "y"))
    span = max(float(np.ptp(xs)), float(np.ptp(ys)), 1e-12)
    middle = (xs.min() + np.ptp(xs) / 2, ys.min() + np.ptp(ys) / 2)
    across = side / 2 + (xs - middle[0]) / span * (side - 24)
    down = side / 2 - (ys - middle[1]) / span * (side - 24)
    height = max(120.0, float(np.ptp(down)) + 24)
    down = down - (side - height) / 2
    body = [_line("pair", across[a], down[a], across[b], down[b]) for a, b in pairs]
    for x, y, dot in zip(across, down, dots, strict=True):
        if dot.look.startswith("text"):
            shape = Markup('<path class="{}" d="M{:.1f} {:.1f}h7m-3.5 -3.5v7">').format(
                dot.look, x - 3.5, y
            )
            end = Markup("</path>")
        else:
            shape = Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="4">').format(
                dot.look, x, y
            )
            end = Markup("</circle>")
        body.append(shape + Markup("<title>{}</title>").format(dot.said) + end)
    return Markup(
        '<svg class="map" viewBox="0 0 {} {:.0f}" role="img" aria-label="{}">{}</svg>'
    ).format(side, height, f"{title}. {said}", Markup("").join(body))


def matrix(
    title: str,
    values: NDArray[np.float64],
    groups: Sequence[tuple[str, int]],
    *,
    rows: str,
    columns: str,
    said: str,
) -> Markup:
    """A square matrix as colours, with the names of its groups of rows beside it.

    Args:
        values: (N, N), -1 to 1.
        groups: names and sizes, in the order of the rows; the sizes sum to N.
    """
    low, high = float(values.min()), float(values.max())
    scaled = (values - low) / ((high - low) or 1.0)
    colours = (colormaps["viridis"](scaled)[..., :3] * 255).round().astype(np.uint8)
    per_row = _MATRIX / len(values)
    body = [
        Markup(
            '<image x="{0}" y="0" width="{1}" height="{1}" preserveAspectRatio="none" '
            'style="image-rendering:pixelated" href="{2}"/>'
        ).format(_LABELS, _MATRIX, data_uri(_png(colours), "image/png"))
    ]
    start, free = 0.0, -99.0
    for name, size in groups:
        middle = (start + size / 2) * per_row
        if middle - free >= 11:  # a name where there is room for it
            body.append(_text(_LABELS - 5, middle + 3.5, name[:15], "end", "small"))
            free = middle
        start += size
        if start < len(values):
            at = start * per_row
            body.append(_line("border", _LABELS, at, _LABELS + _MATRIX, at))
            body.append(_line("border", _LABELS + at, 0, _LABELS + at, _MATRIX))
    body.append(_text(_LABELS + _MATRIX / 2, _MATRIX + 15, columns, "middle", "small"))
    body.append(_text(_LABELS - 5, _MATRIX + 15, rows, "end", "small"))
    body.append(_scale(low, high))
    return Markup(
        '<svg class="matrix" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    ).format(_LABELS + _MATRIX, _MATRIX + 52, f"{title}. {said}", Markup("").join(body))


def share_bar(shares: Sequence[float]) -> Markup:
    """One bar cut in shares of 1; the numbers stand beside it, so that it says nothing aloud."""
    body, at = [], 0.0
    for step, share in enumerate(shares):
        if share > 0:
            body.append(
                Markup('<rect class="s{}" x="{:.2f}" width="{:.2f}" height="12"/>').format(
                    step, 100 * at, 100 * share
                )
            )
        at += share
    return Markup(
        '<svg class="shares" viewBox="0 0 100 12" preserveAspectRatio="none" '
        'aria-hidden="true">{}</svg>'
    ).format(Markup("").join(body))


def data_uri(content: bytes, kind: str) -> str:
    """Bytes as an address that needs no network."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _png(colours: NDArray[np.uint8]) -> bytes:
    out = BytesIO()
    Image.fromarray(colours).quantize(256).save(out, format="png", optimize=True)
    return out.getvalue()


def _scale(low: float, high: float) -> Markup:
    ramp = (colormaps["viridis"](np.linspace(0, 1, 64))[None, :, :3] * 255).round()
    left, top, width = _LABELS + _MATRIX - 200, _MATRIX + 26, 200
    return Markup(
        '<image x="{}" y="{}" width="{}" height="8" preserveAspectRatio="none" href="{}"/>{}{}{}'
    ).format(
        left,
        top,
        width,
        data_uri(_png(ramp.astype(np.uint8)), "image/png"),
        _text(left, top + 20, f"{low:.2f}", "start", "small"),
        _text(left + width, top + 20, f"{high:.2f}", "end", "small"),
        _text(left - 6, top + 8, "cosine", "end", "small"),
    )


def _svg(title: str, said: str, body: Sequence[Markup]) -> Markup:
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}</svg>'
    ).format(_WIDTH, _HEIGHT, said, _text(4, 12, title, "start", "title"), Markup("").join(body))


def _frame(axes: _Axes, x_label: str, *, log: bool = False, names: Sequence[str] = ()) -> Markup:
    parts = []
    for value in _ticks(axes.y0, axes.y1, 4):
        at = axes.up(value)
        parts.append(_line("grid", _LEFT, at, _WIDTH - _RIGHT, at))
        parts.append(_text(_LEFT - 6, at + 4, _short(value), "end"))
    foot = _HEIGHT - _BOTTOM
    for value, name in _marks(axes, log, names):
        at = axes.across(value)
        parts.append(_line("grid", at, foot, at, foot + 4))
        parts.append(_text(at, foot + 16, name, "middle"))
    parts.append(_text(_WIDTH - _RIGHT, _HEIGHT - 5, x_label, "end"))
    return Markup("").join(parts)


def _marks(axes: _Axes, log: bool, names: Sequence[str]) -> list[tuple[float, str]]:
    """Where the lower axis is marked, and with what."""
    if names:
        return list(enumerate(names))
    powers = range(math.ceil(axes.x0), math.floor(axes.x1) + 1) if log else ()
    if len(powers) > 1:
        return [(float(power), _short(10.0**power)) for power in powers]
    return [(value, _short(10.0**value if log else value)) for value in _ticks(axes.x0, axes.x1, 5)]


def _legend(series: Sequence[Series]) -> Markup:
    if len(series) < 2:
        return Markup("")
    parts, at = [], float(_LEFT)
    for one in series:
        dash = " dashed" if one.dashed else ""
        parts.append(_line(f"line c{one.tone}{dash}", at, 21, at + 18, 21))
        parts.append(_text(at + 22, 25, one.name, "start"))
        at += 34 + 6.2 * len(one.name)
    return Markup("").join(parts)


def _path(axes: _Axes, one: Series) -> str:
    steps, pen_down = [], False
    for x, y in zip(np.asarray(one.x, float), np.asarray(one.y, float), strict=True):
        if not math.isfinite(y):
            pen_down = False
            continue
        steps.append(f"{'L' if pen_down else 'M'}{axes.across(x):.1f} {axes.up(y):.1f}")
        pen_down = True
    return "".join(steps)


def _dots(axes: _Axes, one: Series, x_label: str, names: Sequence[str]) -> list[Markup]:
    """A dot per number, which says it when it is pointed at."""
    points = [
        (x, y)
        for x, y in zip(np.asarray(one.x, float), np.asarray(one.y, float), strict=True)
        if math.isfinite(y)
    ]
    if len(points) > 80:
        return []
    return [
        Markup(
            '<circle class="dot c{}" cx="{:.1f}" cy="{:.1f}" r="2"><title>{}</title></circle>'
        ).format(one.tone, axes.across(x), axes.up(y), f"{one.name}, {x_label} {x:g}: {_short(y)}")
        for x, y in points
    ]


def _in_words(one: Series) -> str:
    y = np.asarray(one.y, float)
    y = y[np.isfinite(y)]
    if not len(y):
        return f"{one.name}: no number."
    return f"{one.name}: from {_short(y[0])} to {_short(y[-1])}."


def _text(x: float, y: float, text: str, anchor: str, kind: str = "plain") -> Markup:
    return Markup('<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(
        kind, x, y, anchor, text
    )


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return Markup('<path class="{}" d="M{:.1f} {:.1f}L{:.1f} {:.1f}"/>').format(
        kind, x1, y1, x2, y2
    )


def _ticks(low: float, high: float, count: int, *, whole: bool = False) -> list[float]:
    locator = MaxNLocator(nbins=count, steps=[1, 2, 2.5, 5, 10], integer=whole, min_n_ticks=1)
    found = locator.tick_values(low, high)
    edge = (high - low) * 1e-6
    return [float(value) for value in found if low - edge <= value <= high + edge]


def _room(low: float, high: float) -> tuple[float, float]:
    """Ends of an axis that are apart."""
    if high > low:
        return low, high
    return (low - 0.5, low + 0.5) if low == 0 else (low - abs(low) / 2, low + abs(low) / 2)


def _short(value: float) -> str:
    value = float(value)
    if value != 0 and abs(value) < 0.001:
        return f"{value:.1e}".replace("e-0", "e-")
    if abs(value) >= 10_000:
        return f"{value:,.0f}".replace(",", "\u202f")
    return f"{value:.4g}"
