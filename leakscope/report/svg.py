"""Charts as inline SVG, and round numbers for their axes.

What is drawn has the classes and CSS variables of the stylesheet, so that one drawing serves light
and dark, and looks as one that the page's script draws. Data lies in a plane of its own, which cuts
off what is outside the axes. The script chooses its ticks by the same rules.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from leakscope.report.text import clock, scale_of, unit_name

COLUMNS_PER_PIXEL = 2
"""Of points in one column the first, lowest, highest and last are drawn: no picture shows more."""
CHARACTER = 6.2
"""Pixels that a digit takes at most, in the type of labels."""
FARTHEST = 20_000.0
"""Pixels from the plane's corner: what is farther off is cut off anyhow."""
LABEL_GAP = 8

Points = Sequence[tuple[float, float]]
Mark = Literal["dots", "squares", "crosses"]


@dataclass(frozen=True)
class PlotFrame:
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
    frame: PlotFrame


@dataclass(frozen=True)
class Margins:
    """Room around the plane for labels, in pixels."""

    left: int
    right: int
    top: int
    bottom: int


class Canvas:
    """A chart in the making; what is drawn later lies above.

    ``x`` are the values at the left and right edge of the plane, ``y`` those at its foot and top.
    """

    def __init__(
        self,
        size: tuple[int, int],
        margins: Margins,
        x: tuple[float, float],
        y: tuple[float, float],
    ) -> None:
        self.x, self.y = x, y
        self.width = size[0] - margins.left - margins.right
        self.height = size[1] - margins.top - margins.bottom
        self._size, self._margins = size, margins
        self._behind: list[str] = []
        self._plane: list[str] = []
        self._above: list[str] = []

    def levels(self, ticks: Iterable[Tick]) -> None:
        """Draw a line across at each amount, and name it."""
        left, top = self._margins.left, self._margins.top
        drawn = [(self._up(tick.at) + top, tick.text) for tick in ticks]
        steps = "".join(f"M{left} {_px(y)}h{self.width}" for y, _ in drawn)
        self._behind.append(f'<path class="level" d="{steps}"/>')
        self._behind += [_text("amount", left - LABEL_GAP, y + 4, text) for y, text in drawn]

    def moments(self, ticks: Iterable[Tick]) -> None:
        """Mark places below the plane, and name those whose names have room."""
        left, foot = self._margins.left, self._margins.top + self.height
        drawn = [(self._across(tick.at) + left, tick.text) for tick in ticks]
        steps = "".join(f"M{_px(x)} {foot}v4" for x, _ in drawn)
        self._above.append(f'<path class="tick" d="M{left} {foot}h{self.width}{steps}"/>')
        free_from = -math.inf
        for x, text in drawn:
            half = len(text) * CHARACTER / 2
            middle = min(max(x, half), self._size[0] - half)
            if middle - half >= free_from:
                self._above.append(_text("moment", middle, foot + 18, text))
                free_from = middle + half + LABEL_GAP

    def begins(self, places: Sequence[tuple[float, str]], room: float) -> None:
        """Draw a line up at each place, and name those that have so many pixels to themselves."""
        self.uprights((x for x, _ in places), "epoch")
        free_from = 0.0
        for x, text in places:
            at, needed = self._across(x), len(text) * CHARACTER
            fits = at + needed <= self.width + self._margins.right
            if at >= free_from and fits:
                self._behind.append(
                    _text("epoch-name", at + self._margins.left, self._margins.top - 5, text)
                )
                free_from = at + max(room, needed + LABEL_GAP)

    def uprights(self, places: Iterable[float], kind: str, share: float = 1.0) -> None:
        """Draw lines up from the foot, as high as this share of the plane."""
        length = _px(self.height * share)
        steps = "".join(f"M{_px(self._across(x))} {self.height}v-{length}" for x in places)
        if steps:
            self._plane.append(f'<path class="{kind}" d="{steps}"/>')

    def blocks(self, stretches: Iterable[tuple[float, float]], shade: str) -> None:
        """Shade stretches of the plane from foot to top."""
        edges = ((self._across(start), self._across(end)) for start, end in stretches)
        steps = "".join(f"M{_px(a)} 0H{_px(b)}V{self.height}H{_px(a)}Z" for a, b in edges)
        if steps:
            self._plane.append(f'<path class="phase"{_keyed(shade)} d="{steps}"/>')

    def line(self, points: Points, shade: str, dash: str = "", *, area: bool = False) -> None:
        """Join points, and fill what is below them."""
        steps = _joined(self._placed(points))
        if area and len(points) > 1:
            first, last = (self._across(points[i][0]) for i in (0, -1))
            self._plane.append(
                f'<path class="area" d="M{_px(first)} {self.height}L{steps}'
                f'L{_px(last)} {self.height}Z"/>'
            )
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._plane.append(f'<path class="line"{_keyed(shade)}{dashed} d="M{steps}"/>')

    def band(self, low: Points, high: Points) -> None:
        """Fill what lies between two lines."""
        outline = [*self._placed(low), *reversed(self._placed(high))]
        self._plane.append(f'<path class="band-of-rates" d="M{_joined(outline)}Z"/>')

    def marks(self, points: Points, shade: str, mark: Mark = "dots") -> None:
        """Mark points, also those at the edges, whole."""
        left, top = self._margins.left, self._margins.top
        places = [(self._across(x) + left, self._up(y) + top) for x, y in points]
        stroke = "m-3-3l6 6m0-6l-6 6" if mark == "crosses" else "h0"
        steps = "".join(f"M{_px(x)} {_px(y)}{stroke}" for x, y in places)
        if steps:
            self._above.append(f'<path class="{mark}"{_keyed(shade)} d="{steps}"/>')

    def ceiling(self, at: float, text: str) -> None:
        """Draw a line across that is a limit, and name it below, or above where it is low."""
        y = self._up(at)
        name_at = y + 14 if y + 18 <= self.height else y - 5
        self._plane.append(f'<path class="limit" d="M0 {_px(y)}h{self.width}"/>')
        self._plane.append(_text("limit-name", 6, name_at, text))

    def finish(self, key: str, title: str) -> Drawing:
        """Return the drawing; ``title`` is what a screen reader says."""
        (width, height), margins = self._size, self._margins
        plane = (
            f'<svg x="{margins.left}" y="{margins.top}" width="{self.width}" '
            f'height="{self.height}">{"".join(self._plane)}</svg>'
        )
        svg = (
            f'<svg viewBox="0 0 {width} {height}" role="img" aria-labelledby="{key}-title" '
            f'class="drawing chart"><title id="{key}-title">{html.escape(title)}</title>'
            f"{''.join(self._behind)}{plane}{''.join(self._above)}</svg>"
        )
        frame = PlotFrame(
            margins.left / width,
            1 - margins.right / width,
            margins.top / height,
            1 - margins.bottom / height,
            self.x,
            self.y,
        )
        return Drawing(svg, frame)

    def _placed(self, points: Points) -> list[tuple[float, float]]:
        places = [(self._across(x), self._up(y)) for x, y in points]
        return places if len(places) <= self.width else _thinned(places)

    def _across(self, x: float) -> float:
        return self._share(x, self.x) * self.width

    def _up(self, y: float) -> float:
        return (1 - self._share(y, self.y)) * self.height

    def _share(self, value: float, ends: tuple[float, float]) -> float:
        low, high = ends
        span = high / 2 - low / 2  # halves, whose difference is finite
        share = (value / 2 - low / 2) / span if span else 0.0
        farthest = FARTHEST / min(self.width, self.height)
        return min(max(share, -farthest), farthest)


def _thinned(places: Points) -> list[tuple[float, float]]:
    """Return the first, lowest, highest and last point of each column of pixels, in order."""
    kept: list[tuple[float, float]] = []
    for _, column in groupby(places, key=lambda place: int(place[0] * COLUMNS_PER_PIXEL)):
        inside = list(column)
        heights = [y for _, y in inside]
        ends = {0, heights.index(min(heights)), heights.index(max(heights)), len(inside) - 1}
        kept += [inside[i] for i in sorted(ends)]
    return kept


def _joined(places: Points) -> str:
    """Return places as the steps of a path, without those that repeat the one before."""
    steps = [f"{_px(x)} {_px(y)}" for x, y in places]
    shown = [step for i, step in enumerate(steps) if i == 0 or step != steps[i - 1]]
    return "L".join(shown)


def _text(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{_px(x)}" y="{_px(y)}">{html.escape(text)}</text>'


def _keyed(shade: str) -> str:
    return f' style="--key:var(--{shade})"'


def _px(pixels: float) -> str:
    return f"{round(pixels, 1) + 0.0:.7g}"


FACTORS = (1.0, 2.0, 2.5, 5.0, 10.0)
"""A step is one of these times a power of ten."""
WHOLE_FACTORS = (1.0, 2.0, 5.0, 10.0)
"""Of what is counted: a quarter of ten is none of it."""
LEVELS = 4.5
"""So many steps reach the highest value, about."""
HEADROOM = 1.04
"""The axis ends above so many times the highest value."""
MOST_DECIMALS = 3
"""Of a moment: beyond milliseconds nothing is measured."""
DAY = 86_400
_CLOCK_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, DAY)
_HIGHEST = 1e290
"""Nothing is that high, and sums of it stay finite."""
_SLIP = 1e-9
"""A tick that lies so small a part of a step outside of the axis is at its end."""


@dataclass(frozen=True)
class Tick:
    """A place on an axis and what is written there."""

    at: float
    text: str


@dataclass(frozen=True)
class Levels:
    """The axis of amounts: from zero to ``ceiling``, which is a tick."""

    ceiling: float
    ticks: list[Tick]


def byte_levels(top: float) -> Levels:
    """Return the axis for amounts of memory up to ``top``."""
    top = min(top, _HIGHEST) if top > 0 else 0.0
    scale = scale_of(top)
    step = round_step(top / scale / LEVELS) if top else 1.0
    if scale == 1:
        step = max(1.0, step)
    step *= scale
    count = max(1, math.ceil(top * HEADROOM / step))
    amounts = (f"{step * i / scale:,g} {unit_name(scale)}" if i else "0" for i in range(count + 1))
    return Levels(step * count, [Tick(step * i, text) for i, text in enumerate(amounts)])


def clock_ticks(shown: tuple[float, float], most: int) -> list[Tick]:
    """Return moments of a run, at most about so many."""
    rough = (shown[1] - shown[0]) / most
    if rough < 1:
        step = round_step(rough)
    elif rough > DAY:
        step = round_step(rough / DAY) * DAY
    else:
        step = next(known for known in _CLOCK_STEPS if known >= rough)
    decimals = decimals_of(step)
    return [Tick(at, _moment(at, decimals)) for at in _between(shown, step)]


def count_ticks(shown: tuple[float, float], most: int) -> list[Tick]:
    """Return round whole numbers, at most about so many."""
    step = max(1.0, round_step((shown[1] - shown[0]) / most, WHOLE_FACTORS))
    return [Tick(at, f"{at:,.0f}") for at in _between(shown, step)]


def second_ticks(shown: tuple[float, float], most: int) -> list[Tick]:
    """Return round numbers of seconds, at most about so many."""
    step = round_step((shown[1] - shown[0]) / most)
    decimals = decimals_of(step)
    return [Tick(at, f"{at:,.{decimals}f} s") for at in _between(shown, step)]


def round_step(rough: float, factors: tuple[float, ...] = FACTORS) -> float:
    """Return the least round number that is no smaller."""
    if not 0 < rough < math.inf:
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(f for f in factors if f * power >= rough * 0.999) * power


def decimals_of(step: float) -> int:
    """Return how many decimals distinguish places that are a step apart."""
    wanted = (d for d in range(MOST_DECIMALS) if abs(step - round(step, d)) < step * _SLIP)
    return next(wanted, MOST_DECIMALS)


def _between(shown: tuple[float, float], step: float) -> list[float]:
    first, last = (end / step for end in shown)
    return [
        number * step for number in range(math.ceil(first - _SLIP), math.floor(last + _SLIP) + 1)
    ]


def _moment(seconds: float, decimals: int) -> str:
    """Return a moment with as many decimals as distinguish it from its neighbours."""
    if not decimals:
        return clock(seconds)
    whole, rest = divmod(round(seconds * 10**decimals), 10**decimals)
    return f"{clock(whole)}.{rest:0{decimals}d}"
