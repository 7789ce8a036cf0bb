"""The line that ``leakscope monitor`` shows: where memory stands, its rate, and what lies ahead."""

from __future__ import annotations

from collections.abc import Callable

from leakscope.cli.live import LiveLine
from leakscope.model import gauge

MIB = 1 << 20
LIMIT = 64 << 30


def last_line(size: Callable[[float], float], *, minutes: float, interval_s: float = 10.0) -> str:
    """Return what is shown last of a process that holds ``size(minute)`` MiB."""
    live, said = LiveLine(LIMIT, refreshed=False), ""
    for reading in range(int(minutes * 60 / interval_s) + 1):
        seconds = reading * interval_s
        said = live.line(seconds, {gauge.RSS: int(size(seconds / 60) * MIB)})
    return said


def test_growth_has_its_rate_and_its_end() -> None:
    said = last_line(lambda minute: 500 + 600 * minute, minutes=10)
    assert said == "0:10:00 6.3 GiB · 600 MiB per minute · reaches 64 GiB in minute 109"


def test_a_beginning_is_no_growth_once_it_is_over() -> None:
    assert last_line(lambda minute: 2000 * min(minute, 2), minutes=6).endswith("· steady")


def test_no_end_is_foretold_while_libraries_are_imported() -> None:
    said = last_line(lambda minute: 3000 * minute, minutes=0.9, interval_s=1)
    assert said.endswith("2.9 GiB per minute")


def test_a_leak_that_begins_late_has_its_own_rate() -> None:
    said = last_line(lambda minute: 800 + 300 * max(minute - 5, 0), minutes=15)
    assert "· 300 MiB per minute" in said
