"""The timeline in a real browser: pan, zoom, lines switched, values read, links copied."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import report_samples as samples
from browser_pages import page_of
from browser_view import DESKTOP, SIZES, View, plain
from synthetic_runs import Program

from leakscope.analysis.verdict.analyse import analyse
from leakscope.model.report import Line
from leakscope.report import render_html

if TYPE_CHECKING:
    from playwright.sync_api import Locator

WHOLE = (0.0, 211.0)
"""Seconds of the sample's timeline, rounded down."""


class Chart:
    """The timeline of a page: what it shows and where to touch it."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.figure = view.page.locator("figure[data-chart=timeline]")
        self.plot = self.figure.locator(".plot.live")
        self.surface = view.page.locator("#timeline-surface")

    @property
    def shown(self) -> tuple[float, float]:
        """First and last second that are shown, once all has been drawn."""
        self.view.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        first, last = (self.figure.get_attribute(f"data-{end}") for end in ("from", "to"))
        return float(first or "nan"), float(last or "nan")

    @property
    def length(self) -> float:
        return self.shown[1] - self.shown[0]

    @property
    def is_whole(self) -> bool:
        return self.shown == pytest.approx(WHOLE, abs=1)

    def tool(self, name: str) -> Locator:
        return self.figure.locator(f"[data-zoom={name}]")

    def touch(self, *moves: tuple[float, ...]) -> None:
        """Put fingers at shares of the plot's width, move them from each place to the next."""
        self.surface.scroll_into_view_if_needed()
        box = self.surface.bounding_box()
        assert box is not None
        height = box["y"] + box["height"] / 2
        devices = self.view.page.context.new_cdp_session(self.view.page)

        def send(kind: str, shares: tuple[float, ...]) -> None:
            fingers = [
                {"x": box["x"] + share * box["width"], "y": height, "id": number}
                for number, share in enumerate(shares)
            ]
            devices.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})

        for finger in range(len(moves[0])):
            send("touchStart", moves[0][: finger + 1])
        for shares in moves[1:]:
            send("touchMove", shares)
        send("touchEnd", ())
        devices.detach()

    def drag(self, start: float, stop: float) -> None:
        """Drag from one share of the plot's width to another."""
        self.surface.scroll_into_view_if_needed()
        box = self.surface.bounding_box()
        assert box is not None
        height = box["y"] + box["height"] / 2
        mouse = self.view.page.mouse
        mouse.move(box["x"] + start * box["width"], height)
        mouse.down()
        mouse.move(box["x"] + stop * box["width"], height, steps=4)
        mouse.up()


@pytest.fixture
def chart(view: View, tmp_path: Path) -> Chart:
    file = tmp_path / "leaking.html"
    file.write_bytes(page_of("leaking"))
    view.wear(DESKTOP, "light")
    view.open(file)
    return Chart(view)


def test_buttons_look_closer_move_along_and_show_all_again(chart: Chart) -> None:
    assert chart.is_whole
    for name in ("out", "earlier", "later", "all"):
        assert chart.tool(name).is_disabled()
    chart.tool("in").click()
    whole = WHOLE[1] - WHOLE[0]
    assert chart.length == pytest.approx(whole / 2, rel=0.02)
    first = chart.shown[0]
    chart.tool("later").click()
    assert chart.shown[0] > first
    chart.tool("earlier").click()
    assert chart.shown[0] == pytest.approx(first, abs=0.5)
    chart.tool("in").click()
    chart.tool("out").click()
    assert chart.length == pytest.approx(whole / 2, rel=0.02)
    chart.tool("all").click()
    assert chart.is_whole
    assert chart.view.page.locator("#announce").text_content() == "The whole run is shown."
    chart.view.assert_quiet()


def test_a_drag_marks_a_stretch_and_the_next_one_moves_it(chart: Chart) -> None:
    chart.drag(0.3, 0.5)
    marked = chart.shown
    assert 0 < marked[0] < marked[1] < WHOLE[1]
    assert chart.length < 0.3 * WHOLE[1]
    chart.drag(0.5, 0.7)
    assert chart.shown[0] < marked[0]
    assert chart.length == pytest.approx(marked[1] - marked[0], rel=0.01)


def test_two_fingers_zoom_and_one_moves_along(chart: Chart) -> None:
    chart.touch((0.45, 0.55), (0.4, 0.6), (0.3, 0.7), (0.2, 0.8))
    near = chart.shown
    assert near[1] - near[0] < WHOLE[1] / 3
    assert near[0] < WHOLE[1] / 2 < near[1]
    chart.touch((0.5,), (0.45,), (0.3,))
    assert chart.shown[0] > near[0]
    assert chart.length == pytest.approx(near[1] - near[0], rel=0.01)


def test_a_tap_reads_until_one_taps_elsewhere(chart: Chart) -> None:
    readout = chart.plot.locator(".readout")
    chart.touch((0.5,))
    readout.wait_for(state="visible")
    assert "step" in readout.inner_text()
    chart.view.page.locator("h1").click()
    readout.wait_for(state="hidden")


def test_the_wheel_scrolls_past_a_chart_that_nobody_clicked(chart: Chart) -> None:
    chart.surface.hover()
    chart.view.page.mouse.wheel(0, -120)
    assert chart.is_whole
    chart.view.page.keyboard.down("Control")
    chart.view.page.mouse.wheel(0, -120)
    chart.view.page.keyboard.up("Control")
    closer = chart.length
    assert closer < WHOLE[1] * 0.9
    chart.surface.click()
    chart.view.page.mouse.wheel(0, -120)
    assert chart.length < closer


def test_keys_read_zoom_and_move(chart: Chart) -> None:
    chart.surface.focus()
    chart.surface.press("ArrowRight")
    is_reported = chart.surface.get_attribute("aria-valuetext") or ""
    assert "step" in is_reported
    assert "epoch 1" in is_reported
    chart.surface.press("+")
    chart.surface.press("+")
    near = chart.shown
    assert near[1] - near[0] == pytest.approx(WHOLE[1] / 4, rel=0.05)
    chart.surface.press("Shift+ArrowRight")
    assert chart.shown[0] > near[0]
    chart.surface.press("End")
    assert chart.shown[1] == pytest.approx(WHOLE[1], abs=1)
    assert "epoch 12" in plain(chart.surface.get_attribute("aria-valuetext"))
    chart.surface.press("0")
    assert chart.is_whole


def test_a_closer_look_has_closer_ticks_and_says_where_the_scale_begins(chart: Chart) -> None:
    def ticks() -> list[str]:
        return chart.plot.locator("text.moment").all_text_contents()

    far = ticks()
    assert far[:2] == ["0:00", "1:00"]
    for _ in range(8):
        chart.tool("in").click()
    assert chart.length < 1.0
    near = ticks()
    assert len(near) >= 2
    assert all("." in text for text in near)
    stretch = chart.figure.locator(".stretch").inner_text()
    assert "of 3:31" in stretch
    assert "doesn't begin at zero" in stretch
    assert chart.plot.locator("text.amount").first.text_content() != "0"
    chart.tool("all").click()
    assert chart.figure.locator(".stretch").inner_text() == ""
    assert chart.plot.locator("text.amount").first.text_content() == "0"


def test_the_legend_switches_lines_and_phases(chart: Chart) -> None:
    def drawn() -> tuple[int, int]:
        return (chart.plot.locator("path.line").count(), chart.plot.locator("rect.phase").count())

    lines, phases = drawn()
    assert (lines, phases) == (3, 24)
    gauge = chart.figure.locator("[data-series=rss] button")
    gauge.click()
    assert gauge.get_attribute("aria-pressed") == "false"
    assert drawn() == (2, 24)
    chart.figure.locator("[data-phase='1'] button").click()
    assert drawn() == (2, 12)
    gauge.click()
    assert drawn() == (3, 12)


def test_the_first_culprit_is_laid_over_the_gauges_and_read_with_them(chart: Chart) -> None:
    overlays = chart.figure.locator(".overlays button")
    first = overlays.filter(has_text="all_pred_boxes")
    pressed = [item.get_attribute("aria-pressed") for item in overlays.all()]
    assert pressed == ["true", "false", "false"]
    assert first.get_attribute("aria-pressed") == "true"
    assert chart.plot.locator("path.line.culprit").count() == 1
    chart.surface.focus()
    chart.surface.press("End")
    assert "3.5 GiB Trainer.all_pred_boxes" in plain(chart.surface.get_attribute("aria-valuetext"))
    first.click()
    assert chart.plot.locator("path.line.culprit").count() == 0
    overlays.filter(has_text="crops").click()
    assert chart.plot.locator("path.line.culprit").count() == 1


def test_a_switch_that_is_off_has_another_shape_than_one_that_is_on(chart: Chart) -> None:
    slide = "(one) => getComputedStyle(one, '::before').backgroundImage.match(/at (.*?) 50%/)[1]"
    first, second = chart.figure.locator(".overlays button").all()[:2]
    assert first.evaluate(slide) != second.evaluate(slide)
    second.click()
    assert first.evaluate(slide) == second.evaluate(slide)


def test_a_culprit_that_nobody_requested_leaves_a_closer_look_its_scale(chart: Chart) -> None:
    stretch = chart.figure.locator(".stretch")
    lowest = chart.plot.locator("text.amount").first
    for _ in range(8):
        chart.tool("in").click()
    assert lowest.text_content() != "0"
    assert "Trainer.all_pred_boxes lies below it." in stretch.inner_text()
    over = chart.figure.locator(".overlays button").filter(has_text="all_pred_boxes")
    over.click()
    over.click()
    assert chart.plot.locator("path.line.culprit").count() == 1
    assert lowest.text_content() == "0"
    assert "lies below" not in stretch.inner_text()


def test_a_further_gauge_is_laid_over_the_lines(view: View, tmp_path: Path) -> None:
    report = samples.leaking()
    assert report.timeline is not None
    heap = Line(label="C heap in use", metric="malloc_in_use", points=[(10.0, 5e8), (200.0, 6e8)])
    timeline = msgspec.structs.replace(report.timeline, further=[heap])
    file = tmp_path / "further.html"
    file.write_text(render_html(msgspec.structs.replace(report, timeline=timeline)), "utf-8")
    view.wear(DESKTOP, "light")
    view.open(file)
    chart = Chart(view)
    over = chart.figure.locator(".overlays button").filter(has_text="C heap in use")
    assert not over.is_visible()
    chart.figure.locator(".further summary").click()
    assert over.get_attribute("aria-pressed") == "false"
    before = chart.plot.locator("path.line").count()
    over.click()
    assert chart.plot.locator("path.line").count() == before + 1
    assert chart.plot.locator("path.line.culprit").count() == 1
    chart.surface.focus()
    chart.surface.press("End")
    assert "572 MiB (at 3:20) C heap in use" in plain(chart.surface.get_attribute("aria-valuetext"))
    view.assert_quiet()


def test_each_line_that_is_laid_over_looks_as_in_the_legend_and_as_no_other(
    view: View, tmp_path: Path
) -> None:
    report = samples.leaking()
    many = [
        msgspec.structs.replace(report.culprits[0], name=f"Trainer.kept_{n}", signature=f"{n:016x}")
        for n in range(8)
    ]
    file = tmp_path / "many.html"
    page = render_html(msgspec.structs.replace(report, culprits=many))
    file.write_text(page, encoding="utf-8")
    view.wear(DESKTOP, "light")
    view.open(file)
    chart = Chart(view)
    buttons = chart.figure.locator(".overlays button")
    assert buttons.count() == 8
    assert [button.is_visible() for button in buttons.all()] == [True] * 3 + [False] * 5
    chart.figure.get_by_text("Further culprits").click()
    for button in buttons.all():
        if button.get_attribute("aria-pressed") == "false":
            button.click()
    look = (
        "(all) => all.map((one) => [getComputedStyle(one).stroke,"
        " getComputedStyle(one).strokeDasharray])"
    )
    drawn = chart.plot.locator("path.line").evaluate_all(look)
    keys = chart.figure.locator(".legend li:not(.laid-over) .key.stroke path")
    assert drawn == keys.evaluate_all(look)
    assert len({tuple(item) for item in drawn}) == 10
    view.assert_quiet()


def test_a_culprits_card_lays_its_series_over_the_timeline(chart: Chart) -> None:
    page = chart.view.page
    button = page.locator("[data-overlay]").first
    button.click()
    button.click()
    assert chart.plot.locator("path.line.culprit").count() == 1
    assert page.evaluate("document.activeElement.textContent") == "Trainer.all_pred_boxes"
    page.wait_for_function(
        "() => document.querySelector('.plot.live').getBoundingClientRect().top > 0"
    )


def test_a_card_opens_the_list_in_which_its_series_is_folded_up(view: View, tmp_path: Path) -> None:
    report = samples.leaking()
    many = [
        msgspec.structs.replace(report.culprits[0], name=f"Trainer.kept_{n}", signature=f"{n:016x}")
        for n in range(5)
    ]
    file = tmp_path / "many.html"
    file.write_text(render_html(msgspec.structs.replace(report, culprits=many)), "utf-8")
    view.wear(DESKTOP, "light")
    view.open(file)
    view.page.locator("[data-overlay]").last.click()
    assert view.page.evaluate("document.activeElement.textContent") == "Trainer.kept_4"
    chart = Chart(view)
    over = chart.figure.locator(".overlays button").filter(has_text="kept_4")
    assert over.is_visible()
    assert over.get_attribute("aria-pressed") == "true"


def test_the_first_culprit_is_seen_without_a_script_and_on_paper(
    plain_view: View, chart: Chart, tmp_path: Path
) -> None:
    entry = ".timeline .laid-over"
    assert not chart.view.page.locator(entry).is_visible()
    chart.view.page.emulate_media(media="print")
    assert chart.view.page.locator(entry).is_visible()
    chart.view.page.emulate_media(media="screen")
    file = tmp_path / "plain.html"
    file.write_bytes(page_of("leaking"))
    plain_view.wear(DESKTOP, "light")
    plain_view.open(file)
    reported = plain(plain_view.page.locator(entry).inner_text())
    assert "Trainer.all_pred_boxes" in reported
    assert "peak 3.5 GiB" in reported


def test_all_lines_can_be_switched_off_and_on_again(chart: Chart) -> None:
    chart.figure.locator(".overlays button[aria-pressed=true]").click()
    for name in ("rss", "named", "rss"):
        chart.figure.locator(f"[data-series={name}] button").click()
    assert chart.plot.locator("path.line").count() == 1
    chart.view.assert_quiet()


def test_the_drawing_follows_the_width_of_the_window(chart: Chart) -> None:
    chart.view.page.set_viewport_size({"width": 390, "height": 800})
    chart.view.page.wait_for_function(
        "() => document.querySelector('.plot.live svg').viewBox.baseVal.width < 360"
    )
    assert chart.view.too_wide() == ""
    chart.view.assert_quiet()


def test_a_long_run_is_reported_alike_on_its_axis_and_in_readings(
    view: View, tmp_path: Path
) -> None:
    epochs = 3000
    report = analyse(Program(epochs=epochs, steps=1, validation=1).build())
    file = tmp_path / "long.html"
    file.write_text(render_html(report), encoding="utf-8")
    view.wear(DESKTOP, "light")
    view.open(file)
    chart = Chart(view)
    for _ in range(6):
        chart.tool("in").click()
    for move in (chart.surface.hover, lambda: chart.surface.press("End")):
        move()
        assert chart.length < WHOLE[1]
        names = chart.plot.locator("text.epoch-name").all_text_contents()
        named = [int(name.removeprefix("epoch ")) for name in names]
        assert len(named) > 1
        assert chart.plot.locator("rect.phase").count() > len(named), "phases are shaded here too"
        read = re.search(r"epoch (\d+)", plain(chart.surface.get_attribute("aria-valuetext")))
        assert read is not None
        assert named[0] < int(read[1]) <= named[-1] + (named[-1] - named[-2])
    assert int(read[1]) == epochs
    view.assert_quiet()


@pytest.mark.parametrize("size", SIZES.values(), ids=[*SIZES])
def test_what_the_note_says_is_not_shaded_is_shaded_in_a_closer_look(
    size: dict[str, int], view: View, tmp_path: Path
) -> None:
    report = samples.leaking()
    assert report.timeline is not None
    spans = [
        msgspec.structs.replace(span, end_s=span.start_s + 0.2)
        if span.phase == "validation"
        else span
        for span in report.timeline.spans
    ]
    timeline = msgspec.structs.replace(report.timeline, spans=spans)
    file = tmp_path / "short.html"
    file.write_text(render_html(msgspec.structs.replace(report, timeline=timeline)), "utf-8")
    view.wear(size, "light")
    view.open(file)
    chart = Chart(view)
    assert "Too short to be shaded: validation;" in chart.figure.inner_text()
    shades = "(all) => [...new Set(all.map((one) => one.style.getPropertyValue('--key')))].sort()"
    shaded = chart.plot.locator("rect.phase")
    assert shaded.evaluate_all(shades) == ["var(--phase-1)"]
    chart.tool("in").click()
    assert shaded.evaluate_all(shades) == ["var(--phase-1)", "var(--phase-2)"]
    view.assert_quiet()


def test_no_epoch_is_named_beyond_what_is_known_of_it(view: View, tmp_path: Path) -> None:
    report = samples.leaking()
    assert report.timeline is not None
    first = [span for span in report.timeline.spans if span.epoch < 3]
    cut = msgspec.structs.replace(report.timeline, spans=first, phases_begun=24)
    file = tmp_path / "cut.html"
    file.write_text(render_html(msgspec.structs.replace(report, timeline=cut)), encoding="utf-8")
    view.wear(DESKTOP, "light")
    view.open(file)
    chart = Chart(view)
    chart.drag(0.4, 0.9)
    assert chart.shown[0] > first[-1].end_s
    assert chart.plot.locator("text.epoch-name").all_text_contents() == []
    chart.tool("all").click()
    names = chart.plot.locator("text.epoch-name").all_text_contents()
    assert names == ["epoch 1", "3"]


def test_a_link_to_a_culprit_is_copied(chart: Chart) -> None:
    page = chart.view.page
    button = page.locator("[data-copy-link]").first
    button.click()
    page.wait_for_function("(one) => one.textContent === 'Copied'", arg=button.element_handle())
    copied = page.evaluate("navigator.clipboard.readText()")
    address, _, anchor = copied.partition("#")
    assert address == page.url.partition("#")[0]
    assert page.locator(f"#{anchor}").count() == 1


def test_the_answer_leads_to_its_evidence(chart: Chart) -> None:
    page = chart.view.page
    for link in page.locator(".assurance a").all():
        target = (link.get_attribute("href") or "#")[1:]
        assert page.locator(f"[id='{target}']").count() == 1
        link.click()
        assert page.url.endswith(f"#{target}")


def test_a_gauge_read_seldom_is_drawn_and_read_where_it_was_read(
    view: View, tmp_path: Path
) -> None:
    report = samples.leaking()
    assert report.timeline is not None
    often, _ = report.timeline.lines
    seldom = Line(label="shared", metric="pss", points=[(10.0, 5e8), (100.0, 9e8), (200.0, 6e8)])
    timeline = msgspec.structs.replace(report.timeline, lines=[often, seldom])
    file = tmp_path / "seldom.html"
    file.write_text(render_html(msgspec.structs.replace(report, timeline=timeline)), "utf-8")
    view.wear(DESKTOP, "light")
    view.open(file)
    chart = Chart(view)
    drawn = chart.plot.locator("path.line").evaluate_all(
        "(all) => all.map((one) => one.getAttribute('d'))"
    )
    assert [path.count("L") for path in drawn if path.count("M") == 3] == [0]
    assert chart.plot.locator("circle.point").count() >= 3
    chart.surface.focus()
    chart.surface.press("Home")
    assert "477 MiB (at 0:10) shared" in plain(chart.surface.get_attribute("aria-valuetext"))
    for _ in range(40):
        chart.surface.press("ArrowRight")
    reported = plain(chart.surface.get_attribute("aria-valuetext"))
    assert re.search(r"\(at [\d:.]+\) shared", reported)
    assert not re.search(r"\) resident", reported)
    view.assert_quiet()


def test_a_reading_speaks_of_no_epochs_where_none_are_known(view: View, tmp_path: Path) -> None:
    report = samples.leaking()
    assert report.timeline is not None
    timeline = msgspec.structs.replace(
        report.timeline,
        spans=[msgspec.structs.replace(span, epoch=0) for span in report.timeline.spans],
        moments=[msgspec.structs.replace(moment, epoch=0) for moment in report.timeline.moments],
    )
    file = tmp_path / "one.html"
    file.write_text(render_html(msgspec.structs.replace(report, timeline=timeline)), "utf-8")
    view.wear(DESKTOP, "light")
    view.open(file)
    chart = Chart(view)
    chart.surface.focus()
    chart.surface.press("ArrowRight")
    reported = plain(chart.surface.get_attribute("aria-valuetext"))
    assert "step" in reported
    assert "train" in reported
    assert "epoch" not in reported
    assert "null" not in reported
    view.assert_quiet()


LEFT_OUT = """() => {
  const lefts = [...document.querySelectorAll('.plot.live line.epoch')]
    .map((line) => line.getBoundingClientRect().left);
  const names = [...document.querySelectorAll('.plot.live .epoch-name')];
  const boxes = names.map((name) => name.getBoundingClientRect());
  return lefts.filter((left) => !boxes.some((box) => Math.abs(box.left - left) < 3)
    && boxes.every((box) => left < box.left - 3 || left > box.right + 10));
}"""
"""Where epochs are marked without their number, though nothing stands there."""


def test_no_epochs_number_is_left_out_where_there_is_room(chart: Chart) -> None:
    for width in range(400, 700, 50):
        chart.view.page.set_viewport_size({"width": width, "height": 900})
        assert not chart.shown[0]
        assert chart.view.page.evaluate(LEFT_OUT) == []
        assert chart.view.crowded() == ""
