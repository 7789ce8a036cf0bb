"""What is drawn of a gauge that is read seldom, and what is reported on its height."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import report_samples as samples
from page_reader import read_page

from leakscope.model.report import Line, Report, Timeline
from leakscope.report import render_html, render_text
from leakscope.report.charts import restarts_of, stretches_of
from leakscope.report.text import curve_with_ends

MIB = 1 << 20
OFTEN = [float(second) for second in range(100)]


def of_lines(*lines: Line) -> Report:
    """Return a report whose run's memory went like this, and nothing else."""
    timeline = Timeline(lines=[*lines], spans=[])
    return msgspec.structs.replace(samples.clean(), timeline=timeline)


def climbing_and_freed() -> Line:
    """A gauge that climbs to 505 MiB, and falls to 100 MiB as the run ends."""
    points = [(second, (10 + 5 * second) * MIB) for second in OFTEN]
    return Line(label="resident", metric="rss", points=[*points, (100.0, 100 * MIB)])


def read_seldom() -> Line:
    """A gauge that was read at a few of these moments, twice one after the other."""
    known = [(second, 500.0 * MIB) for second in (0.0, 1.0, 50.0, 99.0)]
    return Line(label="shared", metric="pss", points=known)


def charts(report: Report) -> dict[str, Any]:
    data = json.loads(read_page(render_html(report)).scripts[0][1])
    chart: dict[str, Any] = data["charts"]["timeline"]
    return chart


def test_readings_far_apart_are_not_joined() -> None:
    points = read_seldom().points
    begins = restarts_of(points, OFTEN)
    assert begins == [2, 3]
    assert [len(part) for part in stretches_of(points, begins)] == [2, 1, 1]


def test_readings_at_boundaries_that_follow_each_other_are_joined() -> None:
    assert restarts_of(climbing_and_freed().points, OFTEN) == []
    every_third = [(second, 1.0) for second in OFTEN[::3]]
    assert restarts_of(every_third, OFTEN) == []


def test_a_gap_too_narrow_to_be_seen_is_drawn_through() -> None:
    dense = [second / 10_000 for second in range(10_000)]
    assert restarts_of([(0.5, 1.0), (0.501, 1.0)], dense) == []
    assert restarts_of([(0.5, 1.0), (0.51, 1.0)], dense) == [1]


def test_moments_that_are_no_number_join_what_there_is() -> None:
    assert restarts_of([(0.0, 1.0), (9.0, 1.0)], [0.0, float("nan")]) == []


def test_the_page_and_its_script_know_where_a_line_breaks_and_say_so() -> None:
    report = of_lines(climbing_and_freed(), read_seldom())
    often, seldom = charts(report)["lines"]
    assert "begins" not in often
    assert seldom["begins"] == [2, 3]
    assert "Points that no line joins" in read_page(render_html(report)).text
    assert "Points that no line joins" not in render_html(of_lines(climbing_and_freed()))


def test_the_drawing_joins_only_what_was_read_one_after_the_other() -> None:
    page = render_html(of_lines(climbing_and_freed(), read_seldom()))
    wide = page[page.index('data-frame="wide"') : page.index('data-frame="narrow"')]
    drawn = re.findall(r'<path class="line" style="--key:var\(--series-2\)" d="([^"]*)"', wide)
    across = [path for path in drawn if path.count("L")]
    assert len(across) == 1, "the two that follow each other, and no other two"
    first, last = (float(x) for x in re.findall(r"[ML]([\d.]+)", across[0]))
    assert last - first < 10


def test_the_legend_tells_the_peak_and_calls_it_so() -> None:
    text = " ".join(read_page(render_html(of_lines(climbing_and_freed()))).text.split())
    assert "resident peak 505 MiB" in text.replace("\N{NO-BREAK SPACE}", " ")


def test_the_terminals_numbers_are_those_its_curve_shows() -> None:
    text = render_text(of_lines(climbing_and_freed()), width=100)
    assert "10 MiB → 505 MiB, peak 505 MiB" in text
    assert "→ 100 MiB" not in text


def test_a_curve_of_nothing_has_no_ends() -> None:
    assert curve_with_ends([float("nan")], 10) == ""
    assert curve_with_ends([MIB, 3 * MIB, 2 * MIB], 3).endswith("1 MiB → 2 MiB, peak 3 MiB")
