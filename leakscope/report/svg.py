"""matplotlib figures as inline SVG whose colours, type and width belong to the page.

Figures are drawn in stand-in colours that become CSS variables afterwards, so that one drawing
serves light and dark. Identifiers carry the drawing's key, so that several drawings can share a
page; no date is written, so that equal reports give equal files.
"""

from __future__ import annotations

import html
import io
import re
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

SHADES = (
    "ink", "muted", "grid", "limit", "area", "fit", "band", "before", "after", "point",
    "series-1", "series-2", "series-3", "series-4", "series-5", "series-6",
    "phase-1", "phase-2", "phase-3", "phase-4", "phase-5",
)  # fmt: skip
"""CSS variables of the stylesheet that a drawing may use, as ``shade("ink")``."""
_STAND_INS = {name: f"#0d{number:02x}fb" for number, name in enumerate(SHADES, 17)}
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "leakscope",
    "font.size": 11.0,
    "font.family": ["DejaVu Sans"],
    "text.parse_math": False,
    "axes.unicode_minus": True,
    "path.simplify": True,
    "path.simplify_threshold": 0.3,
    "agg.path.chunksize": 0,
}
_POINTS_PER_INCH = 72
"""SVG files of matplotlib count in points, whatever the figure's resolution."""


@dataclass(frozen=True)
class Frame:
    """Where a drawing shows its data: shares of the picture, and the values at the edges."""

    left: float
    right: float
    top: float
    bottom: float
    x: tuple[float, float]
    y: tuple[float, float]


@dataclass(frozen=True)
class Drawing:
    """A finished picture: ``svg`` is markup of our own making."""

    svg: str
    frame: Frame


@dataclass(frozen=True)
class Canvas:
    """An empty figure of a size in CSS pixels, with margins for the labels."""

    figure: Figure
    axes: Any
    margins: tuple[float, float, float, float]

    def finish(self, key: str, title: str) -> Drawing:
        """Return the drawing; ``title`` is what a screen reader says."""
        left, right, top, bottom = self.margins
        (x0, x1), (y0, y1) = self.axes.get_xlim(), self.axes.get_ylim()
        frame = Frame(left, right, top, bottom, (float(x0), float(x1)), (float(y0), float(y1)))
        return Drawing(_inline(_svg_text(self.figure), key, title), frame)


def shade(name: str) -> str:
    """Return the stand-in colour for a CSS variable."""
    return _STAND_INS[name]


def canvas(width: int, height: int, *, left: int, right: int, top: int, bottom: int) -> Canvas:
    """Return axes without a box, margins in pixels."""
    with rc_context(_SETTINGS):
        figure = Figure(figsize=(width / _POINTS_PER_INCH, height / _POINTS_PER_INCH))
        box = (left / width, 1 - right / width, top / height, 1 - bottom / height)
        axes = figure.add_axes((box[0], 1 - box[3], box[1] - box[0], box[3] - box[2]))
    figure.patch.set_visible(False)
    axes.patch.set_visible(False)
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.spines["bottom"].set_color(shade("muted"))
    axes.spines["bottom"].set_linewidth(0.8)
    axes.tick_params(colors=shade("muted"), length=0, pad=6, labelsize=11)
    axes.tick_params(axis="x", length=3, width=0.8)
    axes.grid(axis="y", color=shade("grid"), linewidth=0.8)
    axes.set_axisbelow(True)
    return Canvas(figure, axes, box)


def _svg_text(figure: Figure) -> str:
    target = io.StringIO()
    with rc_context(_SETTINGS):
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return target.getvalue()


def _inline(text: str, key: str, title: str) -> str:
    body = text[text.index("<svg") :]
    view_box = re.search(r'viewBox="([^"]+)"', body)
    body = body[body.index(">") + 1 : body.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    body = _named_apart(body.replace("xlink:href", "href"), key)
    body = re.sub(r" ?font: ([\d.]+)px [^;\"]+", r"font-size: \1px", body)
    body = re.sub(r" ?font-family: [^;\"]+;?", "", body)
    for name, stand_in in _STAND_INS.items():
        body = body.replace(stand_in, f"var(--{name})")
    body = re.sub(r' transform="rotate\(-0 [^"]*"', "", body)
    body = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number.group()):.2f}", body)
    body = re.sub(r"\s*\n\s*", "\n", body)
    box = view_box.group(1) if view_box else "0 0 1 1"
    label = html.escape(title)
    return (
        f'<svg viewBox="{box}" role="img" aria-labelledby="{key}-title" class="drawing">'
        f'<title id="{key}-title">{label}</title>{body}</svg>'
    )


def _named_apart(body: str, key: str) -> str:
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', body))

    def rename(match: re.Match[str]) -> str:
        return f' id="{key}-{match.group(1)}"' if match.group(1) in used else ""

    body = re.sub(r' id="([^"]+)"', rename, body)
    return re.sub(r'(url\(|href=")#', rf"\g<1>#{key}-", body)
