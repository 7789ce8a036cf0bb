"""The drawings of a page: inside their picture, in the page's colours, true to their numbers."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
import report_samples as samples
from hypothesis import given
from hypothesis import strategies as st

from leakscope.model.explanation import DeviceCourse
from leakscope.model.report import PhaseSpan, Timeline
from leakscope.report.charts import (
    CLOCK,
    NARROW,
    SMALL,
    WIDE,
    PlotLine,
    draw_course,
    draw_overlay,
    draw_ranks,
    draw_series,
    draw_timeline,
)
from leakscope.report.html import STYLES, TEMPLATES
from leakscope.report.svg import CHARACTER, Canvas, Drawing, Margins

MIB = 1024**2
RAMP = [(float(x), 1e8 + 1e6 * x) for x in range(40)]
SPANS = [PhaseSpan(phase="train", occurrence=0, epoch=0, start_s=1.0, end_s=9.0)]


def course() -> DeviceCourse:
    live = [(0.0, 0.0), (1.0, 80.0 * MIB), (2.0, 60.0 * MIB)]
    reserved = [(0.0, 0.0), (1.0, 90.0 * MIB), (2.0, 100.0 * MIB)]
    return DeviceCourse(
        unit="s", live=live, reserved=reserved, peak=(1.0, 80.0 * MIB), fault=(2.0, 120.0 * MIB)
    )


DRAWN: dict[str, tuple[Callable[[], Drawing], tuple[int, int]]] = {
    "timeline": (lambda: draw_timeline(samples.timeline(), "k", WIDE), WIDE),
    "narrow": (lambda: draw_timeline(samples.timeline(), "k", NARROW), NARROW),
    "overlay": (lambda: draw_overlay(RAMP, RAMP[:9], "k", WIDE, axis=CLOCK, spans=SPANS), WIDE),
    "one side": (lambda: draw_overlay([], RAMP, "k", NARROW, axis="step"), NARROW),
    "small": (lambda: draw_overlay(RAMP[:3], RAMP, "k", SMALL, axis="step"), SMALL),
    "ranks": (lambda: draw_ranks([RAMP, RAMP[:1], []], "k", NARROW), NARROW),
    "across": (lambda: draw_series(samples.boxes_culprit(), "k", []), SMALL),
    "within": (lambda: draw_series(samples.leaking().culprits[1], "k", SPANS), SMALL),
    "course": (lambda: draw_course(course(), "k", WIDE), WIDE),
    "nothing": (lambda: draw_ranks([[]], "k", WIDE), WIDE),
}


def svg_of(name: str) -> ET.Element:
    return ET.fromstring(DRAWN[name][0]().svg)


def of_class(svg: ET.Element, name: str) -> list[ET.Element]:
    return [element for element in svg.iter() if element.get("class") == name]


def steps_of(path: ET.Element) -> list[tuple[float, float]]:
    """Return where a path of absolute steps goes."""
    places = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.get("d", ""))
    return [(float(x), float(y)) for x, y in places]


@pytest.mark.parametrize("name", DRAWN)
def test_a_drawing_is_well_formed_and_named(name: str) -> None:
    svg = svg_of(name)
    assert svg.get("role") == "img"
    assert svg.get("aria-labelledby") == svg[0].get("id") == "k-title"
    assert svg[0].text


@pytest.mark.parametrize("name", DRAWN)
def test_labels_stay_inside_and_apart(name: str) -> None:
    (width, height), svg = DRAWN[name][1], svg_of(name)
    for kind in ("amount", "moment", "epoch-name"):
        ends = []
        for text in of_class(svg, kind):
            x, y, long = float(text.get("x", "")), float(text.get("y", "")), len(text.text or "")
            span = long * CHARACTER
            left = x - {"amount": span, "moment": span / 2, "epoch-name": 0}[kind]
            assert 0 <= left <= left + span <= width + 0.1, text.text
            assert 8 <= y <= height, text.text
            ends.append((left, left + span))
        if kind != "amount":
            assert all(a[1] < b[0] for a, b in pairwise(sorted(ends)))


@pytest.mark.parametrize("name", DRAWN)
def test_a_drawing_wears_the_colours_and_classes_of_the_page(name: str) -> None:
    sheet = "".join((TEMPLATES / "style" / f"{part}.css").read_text() for part in STYLES)
    svg = DRAWN[name][0]().svg
    assert not re.search(r"#[0-9a-f]{3,6}\b", svg)
    for variable in re.findall(r"var\(--([\w-]+)\)", svg):
        assert f"--{variable}:" in sheet
    for kind in set(re.findall(r'<(?:path|text) class="([^"]+)"', svg)):
        assert f".chart .{kind} {{" in sheet


def test_two_drawings_share_no_identifier() -> None:
    svgs = [draw_timeline(samples.timeline(), key, WIDE).svg for key in ("a", "b")]
    first, second = (set(re.findall(r' id="([^"]+)"', svg)) for svg in svgs)
    assert first
    assert not first & second


def test_equal_data_are_drawn_alike() -> None:
    assert DRAWN["timeline"][0]() == DRAWN["timeline"][0]()


def test_a_line_goes_where_its_numbers_are() -> None:
    drawing = draw_overlay([(10.0, 0.0), (20.0, 100.0 * MIB)], [], "k", WIDE, axis="step")
    assert drawing.frame.y == (0, 125 * MIB)
    assert drawing.frame.x == (10.0, 20.0)
    line = of_class(ET.fromstring(drawing.svg), "line")[0]
    width, height = WIDE[0] - 62 - 14, WIDE[1] - 14 - 30
    assert steps_of(line) == [(0, height), (width, pytest.approx(height * (1 - 100 / 125)))]


def test_levels_stand_where_their_amounts_are() -> None:
    drawing = draw_ranks([[(0.0, 0.0), (9.0, 30.0 * MIB)]], "k", WIDE)
    frame, svg = drawing.frame, ET.fromstring(drawing.svg)
    for text in of_class(svg, "amount"):
        amount = 0.0 if text.text == "0" else float((text.text or "").split()[0]) * MIB
        at = frame.bottom - amount / frame.y[1] * (frame.bottom - frame.top)
        assert float(text.get("y", "")) - 4 == pytest.approx(at * WIDE[1], abs=0.1)


def test_a_step_holds_until_the_next() -> None:
    line = of_class(svg_of("course"), "line")[1]
    corners = steps_of(line)
    assert len(corners) == 5
    assert [a[0] == b[0] or a[1] == b[1] for a, b in pairwise(corners)] == [True] * 4
    assert len(of_class(svg_of("course"), "crosses")) == 1


def test_a_point_alone_is_marked() -> None:
    svg = ET.fromstring(draw_ranks([[(3.0, 5.0 * MIB)]], "k", WIDE).svg)
    (dots,) = of_class(svg, "dots")
    assert len(re.findall("h0", dots.get("d", ""))) == 1


def test_a_limit_in_sight_is_drawn_with_its_amount() -> None:
    timeline = samples.timeline()
    top = max(y for line in timeline.lines for _, y in line.points)
    for limit, seen in ((int(top * 1.5), 1), (int(top * 40), 0), (int(top / 100), 1)):
        drawn = draw_timeline(msgspec.structs.replace(timeline, limit_bytes=limit), "k", NARROW)
        svg = ET.fromstring(drawn.svg)
        names = of_class(svg, "limit-name")
        assert len(of_class(svg, "limit")) == len(names) == seen
        for name in names:
            assert 8 <= float(name.get("y", "")) <= NARROW[1] - 14 - 30


def test_of_many_points_the_extremes_are_drawn() -> None:
    points = [(i / 1000, 1.0 + (i % 7 == 3)) for i in range(100_000)]
    points[54_321] = (54.321, 9.0)
    points[77_777] = (77.777, 0.25)
    svg = draw_overlay(points, [], "k", WIDE, axis=CLOCK).svg
    (line,) = of_class(ET.fromstring(svg), "line")
    drawn = steps_of(line)
    assert len(drawn) < 6 * WIDE[0]
    height, ceiling = WIDE[1] - 44, 10.0
    assert min(y for _, y in drawn) == pytest.approx(height * (1 - 9 / ceiling), abs=0.1)
    assert max(y for _, y in drawn) == pytest.approx(height * (1 - 0.25 / ceiling), abs=0.1)
    assert [x for x, _ in drawn] == sorted(x for x, _ in drawn)


WILD = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True), st.floats(-1e308, 1e308), st.integers(0, 9)
)


@given(st.lists(st.tuples(WILD, WILD), max_size=30))
def test_whatever_the_numbers_are_a_drawing_is_made(points: list[tuple[float, float]]) -> None:
    known = sorted(points)
    for drawing in (
        draw_overlay(known, points, "k", SMALL, axis="step"),
        draw_overlay(known, [], "k", NARROW, axis=CLOCK),
        draw_ranks([points], "k", NARROW),
    ):
        ET.fromstring(drawing.svg)
        assert not re.search(r"nan|inf", re.sub("<title.*?</title>", "", drawing.svg))


@given(WILD, st.tuples(WILD, WILD))
def test_whatever_the_rate_is_a_series_is_drawn(rate: float, interval: tuple[float, float]) -> None:
    culprit = msgspec.structs.replace(
        samples.boxes_culprit(), bytes_per_unit=rate, interval=interval
    )
    svg = draw_series(culprit, "k", []).svg
    assert ("var(--fit)" in svg) == all(map(math.isfinite, (rate, *interval)))
    assert not re.search(r"nan|inf", re.sub("<title.*?</title>", "", svg))


def test_what_lies_outside_the_axes_is_cut_off() -> None:
    view = Canvas((100, 100), Margins(10, 10, 10, 10), (0.0, 1.0), (0.0, 1.0))
    view.line([(-1e300, 0.5), (1e300, 0.5)], "ink")
    plane = ET.fromstring(view.finish("k", "t").svg)[1]
    assert plane.tag == "svg"
    assert (plane.get("x"), plane.get("width")) == ("10", "80")
    assert len(of_class(plane, "line")) == 1


def test_a_line_laid_over_is_dashed_and_marked() -> None:
    over = PlotLine([(1.0, MIB), (5.0, 2 * MIB)], "series-4", "5 3")
    svg = ET.fromstring(draw_timeline(samples.timeline(), "k", WIDE, over).svg)
    lines = [line for line in of_class(svg, "line") if line.get("stroke-dasharray")]
    assert [line.get("style") for line in lines] == ["--key:var(--series-4)"]
    assert len(of_class(svg, "dots")) == 1


def test_phases_out_of_the_picture_are_not_shaded() -> None:
    timeline = msgspec.structs.replace(
        samples.timeline(),
        spans=[PhaseSpan(phase="late", occurrence=0, epoch=0, start_s=1e6, end_s=2e6)],
    )
    assert isinstance(timeline, Timeline)
    svg = ET.fromstring(draw_timeline(timeline, "k", WIDE).svg)
    assert of_class(svg, "phase") == []


def test_a_page_is_made_without_a_library_that_draws(tmp_path: Path) -> None:
    """Its import alone would take longer than all the rest of a report."""
    here = Path(__file__).parent
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import report_samples as s;"
        "from leakscope.report import render_html, render_comparison_html;"
        "render_html(s.on_device()); render_comparison_html(s.comparison());"
        "print(sorted({'matplotlib', 'PIL', 'pandas', 'torch'} & set(sys.modules)))"
    )
    seen = subprocess.run(
        [sys.executable, "-c", code, str(here)],
        capture_output=True, text=True, check=True, cwd=tmp_path, timeout=60,
    )  # fmt: skip
    assert seen.stdout.strip() == "[]"
