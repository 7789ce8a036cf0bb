"""The status line of ``leakscope monitor``: where memory stands and how it grows, shown again and
again.
"""

from __future__ import annotations

import shutil
import sys
from collections import deque

import numpy as np

from leakscope.analysis.growth import judge, policy, theil_sen
from leakscope.analysis.verdict.severity import forecast
from leakscope.model import gauge
from leakscope.model.text import clipped, human_bytes, plural

REMEMBERED = 120
"""Readings over which the rate is taken."""
FEWEST = 8
FORECAST_AFTER_MINUTES = 1.0
"""Importing libraries and reading data look like growth without an end."""
LOGGED = 160
"""Characters of a line that no terminal's width limits."""
WORTH_SAYING_BYTES = 1 << 20
"""A rate below this per minute is no growth to speak of."""


class LiveLine:
    """Prints a line for each reading; refreshed in place where that is a terminal's."""

    def __init__(
        self, limit: int | None, *, refreshed: bool, quiet: bool = False, width: int | None = None
    ) -> None:
        self._limit = limit
        self._refreshed = refreshed
        self._width = width or (_columns() if refreshed else LOGGED)
        self._known: deque[tuple[float, float]] = deque(maxlen=REMEMBERED)
        self._quiet = quiet
        self._is_open = False

    def show(self, seconds: float, gauges: dict[str, int]) -> None:
        """Print where memory stands ``seconds`` after the beginning."""
        if self._quiet:
            return
        text = clipped(self.line(seconds, gauges), self._width)
        sys.stderr.write(f"\r\x1b[K{text}" if self._refreshed else f"{text}\n")
        sys.stderr.flush()
        self._is_open = self._refreshed

    def end(self) -> None:
        """Leave what was shown last and go to the next line."""
        if self._is_open:
            sys.stderr.write("\n")
            sys.stderr.flush()

    def line(self, seconds: float, gauges: dict[str, int]) -> str:
        """Return what is shown."""
        own = gauges.get(gauge.PSS, gauges.get(gauge.RSS, 0))
        children = gauges.get(gauge.CHILDREN_PSS, 0)
        # Pages of files are given back when there is need: they bring no limit nearer.
        files = gauges.get(gauge.TREE_FILES, 0)
        self._known.append((seconds / 60, float(own + children - files)))
        parts = [_clock(seconds), f"{human_bytes(own + children)}"]
        if gauges.get(gauge.CHILDREN):
            count = plural(gauges[gauge.CHILDREN], "child process")
            parts.append(f"({human_bytes(children)} in {count})")
        return self._with_details(" ".join([*parts, *self._course()]), gauges)

    def _with_details(self, line: str, gauges: dict[str, int]) -> str:
        """Return the line with what else was read, as far as there is room."""
        for detail in _details(gauges):
            if len(line) + len(detail) + 3 > self._width:
                break
            line += f" · {detail}"
        return line

    def _course(self) -> list[str]:
        if len(self._known) < FEWEST:
            return []
        minutes, sizes = np.array(self._known, dtype=np.float64).T
        later = len(sizes) // 2  # what came before may have been a beginning
        rate = theil_sen(minutes[later:], sizes[later:]).rate
        if abs(rate) < WORTH_SAYING_BYTES:
            return ["· steady"]
        told = [f"· {human_bytes(rate)} per minute"]
        if (
            minutes[-1] < FORECAST_AFTER_MINUTES
            or not judge(minutes, sizes, unit="minute", noise=policy.GAUGE_NOISE_BYTES).is_growing
        ):
            return told
        ahead = forecast(
            limit_bytes=self._limit,
            used_bytes=float(sizes[-1]),
            rate=rate,
            unit="minute",
            done=float(minutes[-1]),
        )
        return told + ([f"· {ahead.text}"] if ahead is not None else [])


def _columns() -> int:
    return min(LOGGED, shutil.get_terminal_size().columns - 1)


def _details(gauges: dict[str, int]) -> list[str]:
    """Return what makes memory up, and what is left of it, the most telling first."""
    used, limit = gauges.get(gauge.CGROUP_USED), gauges.get(gauge.CGROUP_LIMIT)
    told = [] if used is None or limit is None else [f"{human_bytes(limit - used)} to the limit"]
    told += [
        f"{key.partition('.')[0]} {human_bytes(size)}"
        for key, size in sorted(gauges.items())
        if key.endswith(f".{gauge.DEVICE_BY_TREE}")
    ]
    if gauge.PSS in gauges and gauge.RSS in gauges:  # else it is the line's first figure
        told.append(f"RSS {human_bytes(gauges[gauge.RSS])}")
    for name, key in (("private", gauge.PRIVATE), ("shm", gauge.SHM)):
        told += [f"{name} {human_bytes(gauges[key])}"] if gauges.get(key) else []
    return told


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
