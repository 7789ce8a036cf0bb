"""What a reader does on a page: look closer, sort, copy, switch colours, go to a section, print."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from browser_pages import page_of
from browser_view import DESKTOP, PHONE, View, plain

Show = Callable[..., None]
LONG_ENOUGH_S = 20.0
PAPER = {"width": 703, "height": 1000}
"""What a sheet of A4 leaves between its margins, at 96 pixels to the inch."""

ENDS = """(node) => {
  const box = node.getBoundingClientRect();
  return [box.left, box.right];
}"""
CLICKED = """(table) => [...table.tHead.rows[0].cells].flatMap((heading, column) =>
  ['first', 'second'].map(() => {
    heading.querySelector('button').click();
    const values = [...table.tBodies[0].rows].map((row) => {
      const cell = row.cells[column], text = cell.dataset.order ?? cell.textContent.trim();
      const number = Number(text.replaceAll(',', ''));
      return text !== '' && Number.isFinite(number) ? number : text;
    });
    const words = values.every((value) => typeof value === 'string');
    return {
      order: heading.getAttribute('aria-sort'), values,
      right: words ? values.toSorted((a, b) => a.localeCompare(b)) : null,
      others: table.querySelectorAll('th[aria-sort=none]').length,
    };
  }))"""
"""Clicks twice on every heading of a table and tells what came of it."""

SCROLLED = """(table, part) => new Promise((done) => {
  table.scrollLeft = part * (table.scrollWidth - table.clientWidth);
  requestAnimationFrame(() => requestAnimationFrame(done));
})"""


@pytest.fixture
def show(tmp_path: Path) -> Show:
    """Open a page that was made by hand in a window."""

    def shown(view: View, name: str, fragment: str = "") -> None:
        file = tmp_path / f"{name}.html"
        file.write_bytes(page_of(name))
        view.wear(DESKTOP, "light")
        view.open(file, fragment)

    return shown


def background(view: View) -> str:
    return str(view.page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_the_theme_is_switched_and_remembered(view: View, show: Show) -> None:
    show(view, "clean")
    light = background(view)
    button = view.page.get_by_role("button", name="Switch between light and dark")
    button.click()
    dark = background(view)
    assert dark != light
    assert reloaded_in(dark, view)
    button.click()
    assert background(view) == light


def reloaded_in(color: str, view: View) -> bool:
    """Reload until the page has that color.

    Once is not enough on a busy machine: Chromium hands what a page stores to another process,
    where a new page may look for it first.
    """
    deadline = monotonic() + LONG_ENOUGH_S
    while monotonic() < deadline:
        view.page.reload()
        if background(view) == color:
            return True
    return False


@pytest.mark.parametrize("name", ["leaking", "hostile", "comparison", "comparison-hostile"])
def test_every_copy_button_copies_what_it_says(name: str, view: View, show: Show) -> None:
    show(view, name)
    copies: dict[str, str] = view.data()["copies"]
    buttons = view.page.locator("[data-copy]")
    assert {button.get_attribute("data-copy") for button in buttons.all()} == set(copies)
    for button in buttons.all():
        text = copies[button.get_attribute("data-copy") or ""]
        button.click()
        view.page.wait_for_function(
            "(node) => node.textContent === 'Copied'", arg=button.element_handle()
        )
        assert view.page.locator("#announce").text_content() == "Copied"
        assert view.page.evaluate("navigator.clipboard.readText()") == text.replace("\r\n", "\n")
    view.assert_quiet()


@pytest.mark.parametrize(
    "name", ["out-of-memory", "workers", "comparison", "on-a-device", "snapshot", "runs"]
)
def test_a_click_on_a_heading_sorts_by_its_column(name: str, view: View, show: Show) -> None:
    show(view, name)
    view.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    tables = view.page.locator("table.sortable").all()
    assert tables
    for table in tables:
        columns = table.locator("thead th").count()
        clicks = table.evaluate(CLICKED)
        assert [click["order"] for click in clicks] == ["descending", "ascending"] * columns
        for click in clicks:
            assert click["others"] == columns - 1
            assert_in_order(click["values"], click["right"], falling=click["order"] == "descending")


def assert_in_order(values: list[Any], words: list[str] | None, *, falling: bool) -> None:
    if words is not None:
        assert values == (words[::-1] if falling else words)
    elif all(isinstance(value, (int, float)) for value in values):
        assert values == sorted(values, reverse=falling)


def test_a_table_that_goes_on_beyond_an_edge_casts_a_shadow_there(view: View, show: Show) -> None:
    show(view, "leaking")
    table = view.page.get_by_role("group", name="Memory per phase").first

    def shadows() -> set[str]:
        reported = str(table.evaluate("(table) => getComputedStyle(table).boxShadow"))
        sides = re.findall(r"(-?[\d.]+)px 0px [\d.]+px -?[\d.]+px inset", reported)
        return {"right" if float(side) < 0 else "left" for side in sides if float(side)}

    assert shadows() == set()
    view.wear(PHONE, "light")
    found = []
    for part in (0, 0.5, 1):
        table.evaluate(SCROLLED, part)
        found.append(shadows())
    assert found == [{"right"}, {"left", "right"}, {"left"}]


def test_a_list_of_runs_tells_on_a_phone_too_what_leaks(view: View, show: Show) -> None:
    show(view, "runs")
    wide = view.page.get_by_role("columnheader", name="Lead culprit").first
    narrow = view.page.locator(".leads-here").first
    assert (wide.is_visible(), narrow.is_visible()) == (True, False)
    view.wear(PHONE, "light")
    assert (wide.is_visible(), narrow.is_visible()) == (False, True)
    assert narrow.evaluate(ENDS)[1] <= PHONE["width"]


def test_headings_are_buttons_for_mouse_and_keyboard(view: View, show: Show) -> None:
    show(view, "comparison")
    heading = view.page.locator("table.sortable th").first
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    heading.locator("button").press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"


@pytest.mark.parametrize("window", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_charts_tell_their_values_under_the_pointer(
    window: dict[str, int], view: View, show: Show
) -> None:
    show(view, "leaking")
    view.wear(window, "light")
    plots = [plot for plot in view.page.locator(".plot").all() if plot.is_visible()]
    assert len(plots) >= 2
    for plot in plots:
        plot.scroll_into_view_if_needed()
        room = plot.bounding_box()
        assert room is not None
        readout = plot.locator(".readout")
        reported = set()
        for share in (0.15, 0.5, 0.97):
            view.page.mouse.move(room["x"] + share * room["width"], room["y"] + room["height"] / 2)
            readout.wait_for(state="visible")
            left, right = readout.evaluate(ENDS)
            assert left >= 0
            assert right <= window["width"]
            reported.add(readout.inner_text())
        assert len(reported) == 3
        view.page.mouse.move(0, 0)
        readout.wait_for(state="hidden")
    assert not view.too_wide()
    view.assert_quiet()


def test_both_runs_are_read_at_the_same_step(view: View, show: Show) -> None:
    show(view, "comparison")
    figure = view.page.locator("figure[data-chart='overlay-step-0']")
    surface = figure.get_by_role("slider")
    surface.press("End")
    is_reported = surface.get_attribute("aria-valuetext") or ""
    assert is_reported.startswith("step 3")
    assert "before" in is_reported
    assert "after" in is_reported
    figure.get_by_role("button", name="Look closer").click()
    assert figure.locator(".stretch").inner_text().startswith("step ")
    figure.get_by_role("button", name="before").click()
    surface.press("ArrowLeft")
    assert "before" not in (surface.get_attribute("aria-valuetext") or "")
    view.assert_quiet()


def test_a_validation_has_room_of_its_own_and_tells_how_far_it_has_come(
    view: View, show: Show
) -> None:
    show(view, "comparison")
    figure = view.page.locator("figure[data-chart='overlay-step-0']")
    surface = figure.get_by_role("slider")
    surface.press("Home")
    messages = []
    for _ in range(60):
        surface.press("ArrowRight")
        messages.append(surface.get_attribute("aria-valuetext") or "")
    inside = [words for words in messages if "validation" in words]
    assert len(inside) > 3
    assert all(re.search(r"\d % through", words) for words in inside)
    assert not any("% through" in words for words in messages if "validation" not in words)
    ticks = figure.locator(".plot.live text.moment").all_text_contents()
    counts = [int(tick.replace(",", "")) for tick in ticks]
    assert counts == sorted(counts)
    assert counts[-1] <= 400
    view.assert_quiet()


def test_charts_tell_their_values_to_the_keyboard(view: View, show: Show) -> None:
    show(view, "leaking")
    surface = view.page.get_by_role("slider").first
    surface.focus()
    messages = []
    for key in ("End", "ArrowLeft", "Home", "ArrowRight"):
        surface.press(key)
        messages.append([surface.get_attribute(f"aria-value{which}") for which in ("now", "text")])
    last = surface.get_attribute("aria-valuemax")
    assert [messages[0][0], messages[2][0]] == [last, "0"]
    assert len({words for _, words in messages}) == 4
    assert all(words for _, words in messages)


def test_a_reading_parts_the_thousands_of_its_steps(view: View, show: Show) -> None:
    show(view, "leaking")
    messages = []
    for surface in view.page.locator("figure.series").get_by_role("slider").all():
        surface.press("End")
        messages.append(surface.get_attribute("aria-valuetext") or "")
    steps = [words for words in messages if words.startswith("step ")]
    assert steps
    assert all(re.match(r"step \d{1,3}(,\d{3})+\b", words) for words in steps)


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_memory_of_ranks_is_read_by_pointer_and_keyboard(
    size: dict[str, int], view: View, show: Show
) -> None:
    show(view, "ranks")
    view.wear(size, "light")
    figure = view.page.locator("figure[data-chart=ranks]")
    surface = figure.get_by_role("slider")
    surface.press("End")
    reported = plain(surface.get_attribute("aria-valuetext"))
    assert reported == "step 39, 133 MiB rank 0, 133 MiB rank 8"
    readout = figure.locator(".readout:visible")
    assert readout.locator(".key.stroke").count() == 2
    surface.press("ArrowLeft")
    assert plain(surface.get_attribute("aria-valuetext")).startswith("step 38, ")
    surface.hover()
    assert re.match(r"step 1[5-9]\n", readout.inner_text())
    view.assert_quiet()


@pytest.mark.parametrize("name", ["leaking", "snapshot"])
def test_details_open_and_close_by_mouse_and_keyboard(name: str, view: View, show: Show) -> None:
    show(view, name)
    all_details = view.page.locator("details").all()
    assert all_details
    for details in all_details:
        summary = details.locator("summary").first
        was = details.evaluate("(node) => node.open")
        summary.click()
        assert details.evaluate("(node) => node.open") != was
        summary.press("Enter")
        assert details.evaluate("(node) => node.open") == was


@pytest.mark.parametrize("name", ["leaking", "ranks", "comparison", "snapshot"])
def test_every_entry_of_the_bar_leads_to_its_section(name: str, view: View, show: Show) -> None:
    show(view, name)
    links = view.page.locator(".bar nav a").all()
    assert links
    for link in links:
        link.click()
        target = link.get_attribute("href") or ""
        wait_until_in_sight(view, target)


def wait_until_in_sight(view: View, target: str) -> None:
    """Wait until scrolling has brought the head of an element below the bar."""
    view.page.wait_for_function(
        """(target) => { const top = document.querySelector(target).getBoundingClientRect().top;
          const bar = document.querySelector('.bar').getBoundingClientRect().bottom;
          return top >= bar - 1 && top < innerHeight; }""",
        arg=target,
    )


def test_a_permanent_link_leads_to_its_culprit(view: View, show: Show) -> None:
    show(view, "leaking")
    link = view.page.get_by_role("link", name="Permanent link").nth(1)
    fragment = link.get_attribute("href") or ""
    show(view, "leaking", fragment)
    assert view.page.evaluate(f"document.querySelector('{fragment}').matches(':target')")
    wait_until_in_sight(view, fragment)


def test_the_first_key_offers_to_skip_the_bar(view: View, show: Show) -> None:
    show(view, "leaking")
    view.page.keyboard.press("Tab")
    assert view.page.evaluate("document.activeElement.textContent") == "Skip to the answer"
    assert view.page.locator(".skip").evaluate(ENDS)[0] >= 0
    view.page.keyboard.press("Enter")
    assert view.page.evaluate("document.activeElement.id") == "main"


@pytest.mark.parametrize(
    ("name", "script"),
    [("leaking", True), ("comparison", True), ("hostile", True), ("snapshot", False)],
)
def test_print_shows_everything_and_nothing_to_click(
    name: str, script: bool, view: View, plain_view: View, show: Show
) -> None:
    printed = view if script else plain_view
    show(printed, name)
    assert printed.page.pdf(format="A4").startswith(b"%PDF")
    printed.page.set_viewport_size(PAPER)  # type: ignore[arg-type]
    printed.page.emulate_media(media="print", color_scheme="light")
    assert not printed.too_wide()
    for words in printed.page.locator("details:not(.further) > :not(summary)").all():
        assert words.is_visible()
    for tool in printed.page.locator("button:not(th button, .legend button), .bar").all():
        assert not tool.is_visible()


def test_what_a_term_means_is_shown_to_who_cannot_hover(view: View, show: Show) -> None:
    show(view, "leaking")
    term = view.page.locator("abbr", has_text="Falsifier").first
    reported = "(node) => getComputedStyle(node, '::after').content"
    assert term.evaluate(reported) == "none"
    term.focus()
    assert term.get_attribute("title") in term.evaluate(reported)
    view.page.keyboard.press("Tab")
    assert term.evaluate(reported) == "none"
