"""What a page looks like in a real browser, on paper and on a phone, where it can be measured."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from browser_pages import page_of, ranks
from browser_view import PHONE, SIZES, THEMES, Theme, View

from leakscope.report import render_html

PAPER = {"width": 703, "height": 1000}
"""A4 within its margins, in CSS pixels."""
TORN = """(where) => [...document.querySelectorAll(where)].flatMap((one) => {
  const texts = document.createTreeWalker(one, NodeFilter.SHOW_TEXT), torn = [];
  while (texts.nextNode()) {
    if (texts.currentNode.parentElement.closest('.unseen')) continue;
    for (const word of texts.currentNode.data.matchAll(/[^ \\n→]+/g)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
      if (lines.size > 1) torn.push(word[0]);
    }
  }
  return torn;
})"""
"""Words within which a line ends; what a space of its own kind holds together is one."""


def show(
    view: View, page: bytes, folder: Path, size: dict[str, int], media: str = "screen"
) -> None:
    file = folder / "page.html"
    file.write_bytes(page)
    view.wear(size, "light")
    view.page.emulate_media(media=media)  # type: ignore[arg-type]
    view.open(file)


def style_of(view: View, where: str, name: str) -> set[str]:
    found = view.page.locator(where).evaluate_all(
        "(all, name) => all.map((one) => getComputedStyle(one)[name])", name
    )
    assert found, where
    return set(found)


@pytest.mark.parametrize("name", ["leaking", "detector/leaking", "detector/comparison"])
def test_on_paper_no_line_ends_within_an_amount(name: str, view: View, tmp_path: Path) -> None:
    show(view, page_of(name), tmp_path, PAPER, "print")
    view.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    amounts = ".plain td.amount, .plain .number, .plain thead th"
    assert view.page.locator(amounts).count() > 10
    assert view.page.evaluate(TORN, amounts) == []
    view.page.emulate_media(media="screen")


def test_on_paper_sums_come_once_and_boxes_stay_whole(view: View, tmp_path: Path) -> None:
    show(view, page_of("leaking"), tmp_path, PAPER, "print")
    assert style_of(view, "tfoot", "display") == {"table-row-group"}
    assert style_of(view, ".way, .way li", "breakInside") == {"avoid"}
    view.page.emulate_media(media="screen")


def test_names_in_a_cell_follow_each_other_closely(view: View, tmp_path: Path) -> None:
    report = ranks()
    reported = [msgspec.structs.replace(r, grows=["keep", "log"]) for r in report.ranks]
    page = render_html(msgspec.structs.replace(report, ranks=reported)).encode()
    show(view, page, tmp_path, SIZES["desktop"])
    cell = view.page.locator("#ranks td:has(code)").first
    assert cell.inner_text() == "keep, log"
    keep, log = (cell.locator("code").nth(place).bounding_box() for place in (0, 1))
    assert keep is not None
    assert log is not None
    assert log["x"] - keep["x"] < 70


def test_on_a_phone_names_are_whole_and_lines_end_between_their_words(
    view: View, tmp_path: Path
) -> None:
    show(view, page_of("detector/leaking"), tmp_path, PHONE)
    view.page.get_by_text("Further culprits").click()
    for where in (".other-name", ".overlays .switch code"):
        names = view.page.locator(where)
        assert names.count() > 3
        assert names.evaluate_all("(all) => all.every((one) => one.scrollWidth <= one.offsetWidth)")
        for name in view.page.evaluate(TORN, where):
            assert name.endswith(("_", ".")) or len(name) > 30, name
    reported = view.page.locator(".other-name").all_inner_texts()
    assert len({*reported}) == len(reported)


def test_on_a_phone_a_difference_stays_next_to_its_sign(view: View, tmp_path: Path) -> None:
    show(view, page_of("detector/comparison"), tmp_path, PHONE)
    assert view.page.locator(".peaks .delta").count() > 0
    assert view.page.evaluate(TORN, ".peaks .delta") == []


@pytest.mark.parametrize("theme", THEMES)
def test_source_that_goes_on_beyond_the_edge_casts_a_shadow_there(
    theme: Theme, view: View, tmp_path: Path
) -> None:
    """Also where a line is marked: what marks it lets the shadow through."""
    show(view, page_of("leaking"), tmp_path, PHONE)
    view.wear(PHONE, theme)
    edges = "(one) => getComputedStyle(one).boxShadow"
    for box in view.page.locator(".source .code").all():
        beyond = box.evaluate("(one) => one.scrollWidth > one.clientWidth")
        assert (box.evaluate(edges) != "none") == beyond
    for kind in ("marked", "added", "removed"):
        (colour,) = style_of(view, f".code tr.{kind} td", "backgroundColor")
        assert re.fullmatch(r"rgba\(.*, 0\.\d+\)", colour), colour


def test_a_bar_that_goes_on_beyond_the_edge_casts_a_shadow_there(
    view: View, tmp_path: Path
) -> None:
    show(view, page_of("leaking"), tmp_path, PHONE)
    bar = view.page.locator(".bar nav")
    assert bar.evaluate("(one) => one.scrollWidth > one.clientWidth")
    assert style_of(view, ".bar nav", "boxShadow") != {"none"}
    show(view, page_of("leaking"), tmp_path, SIZES["desktop"])
    assert style_of(view, ".bar nav", "boxShadow") == {"none"}


def test_a_wide_window_gives_its_room_to_charts_and_not_to_lines_of_text(
    view: View, tmp_path: Path
) -> None:
    show(view, page_of("leaking"), tmp_path, {"width": 1920, "height": 1080})
    widths = "(all) => all.map((one) => one.getBoundingClientRect().width)"
    (plot,) = view.page.locator("figure[data-chart=timeline] .plot.live").evaluate_all(widths)
    assert plot > 850
    texts = view.page.locator(".remedy p, .doubt, .sentence").evaluate_all(widths)
    assert texts
    assert max(texts) < 810
    assert view.too_wide() == ""
