"""Round numbers for the axes of a chart; the page's script chooses its own by the same rules."""

from __future__ import annotations

import math
from dataclasses import dataclass

from leakscope.report.sizes import clock, scale_of, unit_name

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
    ticks = [Tick(step * i, _amount(step * i / scale, scale)) for i in range(count + 1)]
    return Levels(step * count, ticks)


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
    """Return how many decimals tell places that are a step apart."""
    wanted = (d for d in range(MOST_DECIMALS) if abs(step - round(step, d)) < step * _SLIP)
    return next(wanted, MOST_DECIMALS)


def _between(shown: tuple[float, float], step: float) -> list[float]:
    first, last = (end / step for end in shown)
    return [
        number * step for number in range(math.ceil(first - _SLIP), math.floor(last + _SLIP) + 1)
    ]


def _amount(number: float, scale: int) -> str:
    return f"{number:,g} {unit_name(scale)}" if number else "0"


def _moment(seconds: float, decimals: int) -> str:
    """Return a moment with as many decimals as tell it apart from its neighbours."""
    if not decimals:
        return clock(seconds)
    whole, rest = divmod(round(seconds * 10**decimals), 10**decimals)
    return f"{clock(whole)}.{rest:0{decimals}d}"
