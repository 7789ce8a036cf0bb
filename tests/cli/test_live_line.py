"""The line that ``leakscope monitor`` shows: where memory stands, its rate, and what lies ahead."""

from __future__ import annotations

from collections.abc import Callable

from leakscope.cli.monitor import LiveLine
from leakscope.model import gauge

MIB = 1 << 20
LIMIT = 64 << 30


def last_line(size: Callable[[float], float], *, minutes: float, interval_s: float = 10.0) -> str:
    """Return what is shown last of a process that holds ``size(minute)`` MiB."""
    live, printed = LiveLine(LIMIT, refreshed=False), ""
    for reading in range(int(minutes * 60 / interval_s) + 1):
        seconds = reading * interval_s
        printed = live.line(seconds, {gauge.RSS: int(size(seconds / 60) * MIB)})
    return printed


def test_growth_has_its_rate_and_its_end() -> None:
    printed = last_line(lambda minute: 500 + 600 * minute, minutes=10)
    assert printed == "0:10:00 6.3 GiB · 600 MiB per minute · reaches 64 GiB in minute 109"


def test_a_beginning_is_no_growth_once_it_is_over() -> None:
    assert last_line(lambda minute: 2000 * min(minute, 2), minutes=6).endswith("· steady")


def test_no_end_is_foretold_while_libraries_are_imported() -> None:
    printed = last_line(lambda minute: 3000 * minute, minutes=0.9, interval_s=1)
    assert printed.endswith("2.9 GiB per minute")


def test_a_leak_that_begins_late_has_its_own_rate() -> None:
    printed = last_line(lambda minute: 800 + 300 * max(minute - 5, 0), minutes=15)
    assert "· 300 MiB per minute" in printed


READ = {
    gauge.PSS: 900 * MIB,
    gauge.RSS: 950 * MIB,
    gauge.PRIVATE: 800 * MIB,
    gauge.SHM: 200 * MIB,
    gauge.CGROUP_USED: 1 << 30,
    gauge.CGROUP_LIMIT: 3 << 30,
    "cuda:0.used_by_watched": 5 << 30,
    "cuda:0.used": 6 << 30,
}


def test_what_memory_is_made_of_and_what_is_left_is_reported_where_it_is_known() -> None:
    assert LiveLine(LIMIT, refreshed=False).line(5, READ) == (
        "0:00:05 900 MiB · 2 GiB to the limit · cuda:0 5 GiB · RSS 950 MiB · private 800 MiB "
        "· shm 200 MiB"
    )


def test_a_narrow_line_tells_no_more_than_fits_whole() -> None:
    assert LiveLine(LIMIT, refreshed=False, width=60).line(5, READ) == (
        "0:00:05 900 MiB · 2 GiB to the limit · cuda:0 5 GiB"
    )
