"""What the page hands its script, so that any stretch of the timeline can be drawn and read."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import report_samples as samples
from page_reader import read_page

from leakscope.model.report import Line, PhaseSpan, Report, Severity
from leakscope.report import render_html
from leakscope.report.page import report_page
from leakscope.report.timeline import unshaded_words


def timeline_of(report: Report) -> dict[str, Any]:
    data = json.loads(read_page(render_html(report)).scripts[0][1])
    chart: dict[str, Any] = data["charts"]["timeline"]
    return chart


def test_gauges_come_first_and_culprits_can_be_laid_over_them() -> None:
    chart = timeline_of(samples.leaking())
    assert [line["key"] for line in chart["lines"]] == ["rss", "named"]
    assert [line["label"] for line in chart["laidOver"]] == [
        "Trainer.all_pred_boxes",
        "validate_episode.crops",
        "train_epoch.total_loss",
    ]
    shades = [line["shade"] for line in chart["lines"] + chart["laidOver"]]
    assert len(set(shades)) == len(shades)


def with_further_gauges(report: Report) -> Report:
    """Return the report with what the C heap has in use, and a gauge that was read once."""
    assert report.timeline is not None
    heap = Line(label="C heap in use", metric="malloc_in_use", points=[(10.0, 5e8), (200.0, 6e8)])
    once = Line(label="its own pages", metric="private", points=[(10.0, 5e8)])
    timeline = msgspec.structs.replace(report.timeline, further=[heap, once])
    return msgspec.structs.replace(report, timeline=timeline)


def test_further_gauges_can_be_laid_over_before_the_culprits() -> None:
    chart = timeline_of(with_further_gauges(samples.leaking()))
    first, *culprits = chart["laidOver"]
    assert (first["label"], first["points"]) == ("C heap in use", [[10.0, 5e8], [200.0, 6e8]])
    assert "culprit" not in first
    assert len(culprits) == 3
    assert all(line["culprit"] for line in culprits)
    looks = {(line["shade"], line["dash"]) for line in chart["lines"] + chart["laidOver"]}
    assert len(looks) == 6


def test_a_culprit_stands_at_the_seconds_of_its_boundaries() -> None:
    report = samples.leaking()
    boxes = next(line for line in timeline_of(report)["laidOver"] if "boxes" in line["label"])
    assert report.timeline is not None
    when = {moment.boundary: moment.time_s for moment in report.timeline.moments}
    wanted = [[round(when[p.boundary], 3), round(p.y)] for p in report.culprits[0].chart]
    assert boxes["points"] == wanted


def test_what_grows_in_workers_has_no_place_on_this_clock() -> None:
    report = samples.leaking()
    inside = msgspec.structs.replace(report.culprits[0], workers=2)
    assert timeline_of(msgspec.structs.replace(report, culprits=[inside]))["laidOver"] == []


def test_a_reading_can_tell_step_phase_and_epoch() -> None:
    report = samples.leaking()
    chart = timeline_of(report)
    assert report.timeline is not None
    moment = report.timeline.moments[1000]
    second, step, epoch, phase, boundary = chart["moments"][1000]
    assert (step, epoch, boundary) == (moment.step, moment.epoch + 1, moment.boundary)
    assert second == round(moment.time_s, 3)
    assert chart["phases"][phase]["label"] == moment.phase
    assert [epoch for _, epoch in chart["epochs"]] == list(range(1, 13))


def test_what_the_script_switches_is_marked_in_the_legend() -> None:
    page = render_html(samples.leaking())
    for marked in ('data-series="rss"', 'data-series="named"', 'data-phase="0"', 'data-phase="1"'):
        assert marked in page
    for what in ("in", "out", "earlier", "later", "all"):
        assert f'data-zoom="{what}"' in page


def test_without_the_script_the_drawing_is_whole_and_its_buttons_are_hidden() -> None:
    page = render_html(samples.leaking())
    figure = page[page.index('<figure class="timeline"') : page.index("</figure>")]
    assert figure.count('class="drawing chart"') == 2
    assert 'aria-label="Look closer" hidden' in figure
    assert '<div class="plot live" hidden>' in figure
    assert '<div class="overlays" hidden>' in figure


def test_phases_too_short_to_be_seen_are_left_to_a_closer_look() -> None:
    timeline = samples.timeline(points=40)
    short = [msgspec.structs.replace(s, end_s=s.start_s + 0.01) for s in timeline.spans]
    brief = msgspec.structs.replace(timeline, spans=short, phases_begun=500)
    page = render_html(msgspec.structs.replace(samples.clean(), timeline=brief))
    shown = f"looking closer shows them: {len(short)} of 500, evenly over the run."
    assert shown in read_page(page).text


def test_epochs_are_marked_where_they_began_though_few_phases_are_reported() -> None:
    timeline = samples.timeline(points=40)
    shown = msgspec.structs.replace(
        timeline, spans=timeline.spans[:2], epochs=[(0.0, 0), (50.0, 700), (99.0, 1400)],
        epochs_begun=1401,
    )  # fmt: skip
    report = msgspec.structs.replace(samples.clean(), timeline=shown)
    assert timeline_of(report)["epochs"] == [[0.0, 1], [50.0, 701], [99.0, 1401]]
    text = read_page(render_html(report)).text
    assert "3 of 1,401 epochs, evenly over the run" in text


def test_moments_that_are_no_number_are_left_out() -> None:
    report = samples.leaking()
    assert report.timeline is not None
    first = report.timeline.moments[0]
    odd = msgspec.structs.replace(first, time_s=float("nan"))
    timeline = msgspec.structs.replace(report.timeline, moments=[odd, first])
    chart = timeline_of(msgspec.structs.replace(report, timeline=timeline))
    assert [moment[4] for moment in chart["moments"]] == [first.boundary]


def begun_at(start: float, report: Report) -> Report:
    """The same run, whose first phase began so many seconds later than its process."""
    timeline = report.timeline
    assert timeline is not None
    later = msgspec.structs.replace(
        timeline,
        lines=[
            msgspec.structs.replace(
                line, points=[(0.0, 30e6), *((x + start, y) for x, y in line.points)]
            )
            for line in timeline.lines
        ],
        spans=[
            msgspec.structs.replace(s, start_s=s.start_s + start, end_s=s.end_s + start)
            for s in timeline.spans
        ],
        moments=[msgspec.structs.replace(m, time_s=m.time_s + start) for m in timeline.moments],
        censuses_s=[second + start for second in timeline.censuses_s],
    )
    return msgspec.structs.replace(report, timeline=later)


def test_a_long_start_is_left_out_of_the_picture_which_says_so() -> None:
    report = begun_at(10_000.0, samples.leaking())
    page, chart = render_html(report), timeline_of(report)
    assert "The picture starts 2:46:40 into the run, where work begins" in page
    assert "imports and loading had taken memory from 28.6\N{NO-BREAK SPACE}MiB to " in page
    assert all(line["points"][0][0] >= 10_000.0 for line in chart["lines"])
    assert min(chart["censuses"]) >= 10_000.0


def test_a_short_start_stays_in_the_picture() -> None:
    report = begun_at(1.0, samples.leaking())
    assert "The picture starts" not in render_html(report)
    assert timeline_of(report)["lines"][0]["points"][0] == [0.0, 30e6]


def test_a_reading_names_no_epoch_where_a_run_shows_but_one() -> None:
    report = samples.leaking()
    assert report.timeline is not None
    timeline = msgspec.structs.replace(
        report.timeline,
        spans=[msgspec.structs.replace(span, epoch=0) for span in report.timeline.spans],
        moments=[msgspec.structs.replace(moment, epoch=0) for moment in report.timeline.moments],
    )
    chart = timeline_of(msgspec.structs.replace(report, timeline=timeline))
    assert {epoch for _, epoch, *_ in chart["spans"]} == {None}
    assert {epoch for _, _, epoch, *_ in chart["moments"]} == {None}


def with_short_validations(report: Report, phase: str = "validation") -> Report:
    """Return the report with every phase of a name shorter than a pixel."""
    assert report.timeline is not None
    spans = [
        msgspec.structs.replace(span, end_s=span.start_s + 0.01) if span.phase == phase else span
        for span in report.timeline.spans
    ]
    timeline = msgspec.structs.replace(report.timeline, spans=spans)
    return msgspec.structs.replace(report, timeline=timeline)


def note_and_drawing(report: Report) -> tuple[str, str]:
    view = report_page(report).timeline
    assert view is not None
    return view.note, view.wide.svg


def test_a_note_names_the_phases_that_are_not_shaded_and_no_other() -> None:
    report = samples.leaking()
    note, drawing = note_and_drawing(report)
    assert "shaded" not in note
    assert "var(--phase-1)" in drawing
    assert "var(--phase-2)" in drawing
    short = with_short_validations(report)
    note, drawing = note_and_drawing(short)
    assert note.endswith("Too short to be shaded: validation; looking closer shows it.")
    assert "var(--phase-1)" in drawing
    assert "var(--phase-2)" not in drawing
    assert ["lasts" in phase for phase in timeline_of(short)["phases"]] == [False, True]
    note, drawing = note_and_drawing(with_short_validations(short, "train"))
    assert note.endswith("Phases are too short to be shaded; looking closer shows them.")
    assert "var(--phase-" not in drawing


def test_of_many_phases_that_are_not_shaded_some_are_named() -> None:
    span = PhaseSpan(phase="", occurrence=0, epoch=0, start_s=0.0, end_s=0.001)
    spans = [msgspec.structs.replace(span, phase=f"part {number}") for number in range(5)]
    long = msgspec.structs.replace(span, phase="train", end_s=90.0)
    shown = unshaded_words([*spans, long], (0.0, 100.0))
    assert shown.startswith("Too short to be shaded: part 0, part 1, part 2 and 2 more; ")
    assert unshaded_words([long], (0.0, 100.0)) == ""


def test_a_worker_that_tells_the_time_has_its_place() -> None:
    report = samples.leaking()
    moments = [10.0 + n for n in range(len(report.culprits[0].chart))]
    inside = msgspec.structs.replace(report.culprits[0], workers=2, chart_s=moments)
    (line,) = timeline_of(msgspec.structs.replace(report, culprits=[inside]))["laidOver"]
    assert line["label"] == "Trainer.all_pred_boxes, one worker"
    assert [x for x, _ in line["points"]] == moments


def test_the_first_culprit_is_drawn_and_reported_without_a_script() -> None:
    report = samples.leaking()
    plain = msgspec.structs.replace(report, culprits=[])
    with_leading, without = (read_page(render_html(item)).text for item in (report, plain))
    assert "Trainer.all_pred_boxes begins at 298 MiB" in with_leading
    assert "Trainer.all_pred_boxes begins at" not in without
    dashed = re.compile(r'class="line"[^>]* stroke-dasharray="5 3"')
    drawn, undrawn = (len(dashed.findall(render_html(r))) for r in (report, plain))
    assert drawn == undrawn + 2


def test_the_first_culprit_alone_is_shown_at_once_where_it_flattens_nothing() -> None:
    report = samples.leaking()
    assert [line["on"] for line in timeline_of(report)["laidOver"]] == [True, False, False]
    first, *others = report.culprits
    huge = [msgspec.structs.replace(point, y=point.y * 1000) for point in first.chart]
    tall = msgspec.structs.replace(first, chart=huge)
    chart = timeline_of(msgspec.structs.replace(report, culprits=[tall, *others]))
    assert not any(line["on"] for line in chart["laidOver"])
    noted = msgspec.structs.replace(first, severity=Severity.NOTE)
    chart = timeline_of(msgspec.structs.replace(report, culprits=[noted, others[0]]))
    assert [line["on"] for line in chart["laidOver"]] == [False, True]
