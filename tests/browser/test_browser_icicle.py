"""What a reader does with the picture of memory: zoom, search, compare moments, follow culprits."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import report_samples as samples
import retained_samples
from browser_pages import page_of
from browser_view import DESKTOP, PHONE, THEMES, Theme, View, plain

from leakscope.model.run import NodeKind, Retained, RetainedProcess
from leakscope.report import render_html

if TYPE_CHECKING:
    from playwright.sync_api import Locator

expect = pytest.importorskip("playwright.sync_api").expect

Open = Callable[..., None]
STANDING = """(boxes) => boxes.map((box) => [
  box.querySelector('.label').textContent, box.querySelector('.size').textContent,
  Math.round(10 * parseFloat(box.style.left)), Math.round(10 * parseFloat(box.style.width)),
  Number(box.style.getPropertyValue('--row'))])"""


@pytest.fixture
def show(tmp_path: Path) -> Open:
    """Open a page that was made by hand in a window."""

    def shown(view: View, name: str = "leaking", fragment: str = "") -> None:
        file = tmp_path / f"{name}.html"
        file.write_bytes(page_of(name))
        view.wear(DESKTOP, "light")
        view.open(file, fragment)

    return shown


def boxes(view: View) -> Locator:
    return view.page.get_by_role("treeitem")


def box(view: View, label: str) -> Locator:
    return boxes(view).filter(has=view.page.get_by_text(label, exact=True)).first


def reading(view: View) -> str:
    return " ".join(view.page.locator(".icicle-reading").inner_text().split())


def focused(view: View) -> str:
    return str(view.page.evaluate("document.activeElement.querySelector('.label')?.textContent"))


def widths(view: View) -> list[str]:
    return [found.inner_text() for found in boxes(view).locator(".size").all()]


def test_the_script_draws_what_stood_there_without_it(
    view: View, plain_view: View, show: Open
) -> None:
    show(plain_view)
    show(view)
    for mode in ("held", "growth"):
        view.page.locator(f"[data-show={mode}]").click()
        plain = plain_view.page.locator(f".icicle-figure.{mode} .box")
        assert plain.first.is_visible()
        drawn = view.page.locator(f".icicle-figure.{mode} .box")
        assert drawn.evaluate_all(STANDING) == plain.evaluate_all(STANDING)
    view.assert_quiet()


def test_without_the_script_there_are_no_controls_that_do_nothing(
    plain_view: View, show: Open
) -> None:
    show(plain_view)
    for name in (".icicle-tools", ".icicle-path", ".icicle-reading"):
        assert plain_view.page.locator(name).is_hidden()


def test_any_moment_is_shown_and_the_growth_between_any_two(view: View, show: Open) -> None:
    show(view)
    page = view.page
    assert plain(box(view, "all_pred_boxes").locator(".size").inner_text()) == "400 MiB"
    page.get_by_label("at", exact=True).select_option(label="0:00 end of validation, epoch 1")
    assert plain(box(view, "all_pred_boxes").locator(".size").inner_text()) == "10 MiB"
    page.get_by_role("button", name="Growth").click()
    assert plain(box(view, "all_pred_boxes").locator(".size").inner_text()) == "+300 MiB"
    assert plain(box(view, "model").locator(".size").text_content()) == "−10 MiB"
    page.get_by_label("from", exact=True).select_option(label="4:00 end of validation, epoch 5")
    page.get_by_label("to", exact=True).select_option(label="0:00 end of validation, epoch 1")
    assert plain(box(view, "all_pred_boxes").locator(".size").inner_text()) == "−390 MiB"
    assert "down" in (box(view, "all_pred_boxes").get_attribute("class") or "")
    view.assert_quiet()


def test_unlike_censuses_are_compared_in_what_both_saw(view: View, show: Open) -> None:
    show(view)
    view.page.get_by_role("button", name="Growth").click()
    whole = view.page.get_by_label("to", exact=True)
    whole.select_option(label="2:00 end of validation, epoch 3, whole heap")
    assert boxes(view).first.locator(".label").inner_text() == "what both saw"
    assert plain(boxes(view).first.locator(".size").inner_text()) == "+100 MiB"
    assert box(view, "libraries").count() == 0


def test_the_same_moment_twice_has_nothing_to_show(view: View, show: Open) -> None:
    show(view)
    view.page.get_by_role("button", name="Growth").click()
    moment = "4:00 end of validation, epoch 5"
    view.page.get_by_label("from", exact=True).select_option(label=moment)
    assert boxes(view).count() == 0
    assert view.page.get_by_text("Nothing changed between these two.").is_visible()
    view.assert_quiet()


def test_a_click_zooms_in_and_the_way_leads_back(view: View, show: Open) -> None:
    show(view)
    box(view, "trainer").click()
    assert boxes(view).first.locator(".label").inner_text() == "trainer"
    way = view.page.get_by_role("navigation", name="Zoomed into").get_by_role("button")
    assert way.all_inner_texts() == ["all that your names reach", "main()", "trainer"]
    assert way.last.is_disabled()
    way.nth(1).click()
    assert boxes(view).first.locator(".label").inner_text() == "main()"
    view.page.keyboard.press("Escape")
    assert boxes(view).first.locator(".label").inner_text() == "all that your names reach"
    assert view.page.locator("#announce").text_content() == (
        "Zoomed into all that your names reach"
    )


def test_what_has_no_name_is_not_zoomed_into(view: View, show: Open) -> None:
    show(view)
    before = widths(view)
    box(view, "40 smaller ones").click(force=True)
    assert widths(view) == before


def test_arrow_keys_move_between_boxes_and_tell_each(view: View, show: Open) -> None:
    show(view)
    boxes(view).first.focus()
    messages = []
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowUp"):
        view.page.keyboard.press(key)
        messages.append(focused(view))
    assert messages == ["main()", "trainer", "all_pred_boxes", "model", "all_pred_boxes", "trainer"]
    view.page.keyboard.press("Enter")
    assert focused(view) == "trainer"
    assert boxes(view).nth(1).locator(".label").inner_text() == "all_pred_boxes"
    view.page.keyboard.press("Enter")
    assert focused(view) == "main()"
    view.page.keyboard.press("Home")
    view.page.keyboard.press("Escape")
    assert focused(view) == "all that your names reach"
    assert view.page.locator("[role=treeitem][tabindex='0']").count() == 1


def test_the_pointer_tells_path_bytes_shares_and_growth(view: View, show: Open) -> None:
    show(view)
    box(view, "all_pred_boxes").hover()
    reported = reading(view)
    assert "main()·trainer.all_pred_boxes" in reported
    assert "400 MiB (419,430,400 bytes)" in reported
    assert "80 % of trainer, 78 % of all that your names reach" in reported
    assert "100 MiB (1:00 end of validation, epoch 2) → 400 MiB" in reported
    assert "+300 MiB" in reported
    view.page.mouse.move(0, 0)
    assert "510 MiB" in reading(view)


def test_what_was_not_seen_is_no_zero_and_counts_part_their_thousands(
    view: View, tmp_path: Path
) -> None:
    tree = retained_samples.retained()
    nodes = [
        msgspec.structs.replace(node, count=4000) if node.kind is NodeKind.SMALLER else node
        for node in tree.nodes
    ]
    place = next(n for n, node in enumerate(nodes) if node.label == "model")
    censuses = [
        msgspec.structs.replace(
            census,
            bytes={"host": [0 if (n, at) == (place, 1) else b for n, b in enumerate(sizes)]},
        )
        for at, census in enumerate(tree.censuses)
        for sizes in census.bytes.values()
    ]
    changed = msgspec.structs.replace(tree, nodes=nodes, censuses=censuses)
    file = tmp_path / "unseen.html"
    page = render_html(msgspec.structs.replace(samples.leaking(), retained=changed))
    file.write_text(page, encoding="utf-8")
    view.wear(DESKTOP, "light")
    view.open(file)
    box(view, "model").hover()
    assert "– (1:00 end of validation, epoch 2) → 90 MiB" in reading(view)
    assert "4,000 smaller ones" in view.page.locator(".box.of-smaller .label").all_inner_texts()


def test_a_search_marks_what_it_finds_and_tells_the_sum(view: View, show: Open) -> None:
    show(view)
    search = view.page.get_by_role("searchbox")
    search.fill("PRED")
    assert view.page.locator(".box.match .label").all_inner_texts() == ["all_pred_boxes"]
    assert plain(view.page.locator(".found").inner_text()) == "400 MiB in 1 place, 78 % of all"
    search.fill("tr")
    assert plain(view.page.locator(".found").inner_text()).startswith("497 MiB in 1 place")
    search.fill("zebra")
    assert view.page.locator(".found").inner_text() == "Nothing found"
    search.press("Escape")
    assert view.page.locator(".found").inner_text() == ""
    assert view.page.locator(".searched").count() == 0


def test_a_culprits_card_leads_to_its_box_and_back(view: View, show: Open) -> None:
    show(view)
    link = view.page.get_by_role("link", name="Show in memory").first
    anchor = (link.get_attribute("href") or "").removeprefix("#").removesuffix("-box")
    link.click()
    expect(view.page.locator(":focus .label")).to_have_text("all_pred_boxes")
    back = view.page.locator(".icicle-reading a")
    assert re.match("culprit 1: ", back.inner_text())
    back.click()
    assert view.page.url.endswith(f"#{anchor}")
    link.click()
    box(view, "all_pred_boxes").locator(".flag").click()
    assert view.page.url.endswith(f"#{anchor}")
    assert boxes(view).first.locator(".label").inner_text() == "all that your names reach"


def test_the_same_link_leads_there_again(view: View, show: Open) -> None:
    show(view)
    link = view.page.get_by_role("link", name="Show in memory").first
    for _ in range(2):
        link.click()
        expect(view.page.locator(":focus .label")).to_have_text("all_pred_boxes")
        view.page.get_by_role("button", name="Held").click()
        boxes(view).first.focus()


def test_a_link_to_a_box_opens_it(view: View, show: Open) -> None:
    show(view)
    anchor = view.page.get_by_role("link", name="Show in memory").first.get_attribute("href")
    show(view, "leaking", anchor or "")
    expect(view.page.locator(":focus .label")).to_have_text("all_pred_boxes")


def test_another_process_is_looked_at_with_its_own_moments(view: View, show: Open) -> None:
    show(view, "workers")
    assert box(view, "decoded").is_visible()
    owner = view.page.get_by_label("in", exact=True)
    assert owner.locator("option").all_inner_texts() == [
        "loader 1, worker 1", "main process", "loader 1, worker 0",
    ]  # fmt: skip
    owner.select_option(label="main process")
    assert box(view, "all_pred_boxes").is_visible()
    assert "this is the main one" in view.page.locator(".icicle-notes").inner_text()
    moments = view.page.get_by_label("at", exact=True).locator("option")
    assert moments.last.inner_text() == "4:00 end of validation, epoch 5"
    view.page.get_by_label("at", exact=True).select_option(index=1)
    owner.select_option(label="loader 1, worker 0")
    assert moments.all_inner_texts()[-1] == "0:06 end of pass 3"
    assert plain(boxes(view).first.locator(".size").inner_text()) == "7 MiB"
    owner.select_option(label="main process")
    assert plain(boxes(view).first.locator(".size").inner_text()) == "220 MiB"
    view.assert_quiet()


def test_a_worker_in_the_table_leads_to_its_memory(view: View, show: Open) -> None:
    show(view, "workers")
    rows = view.page.locator("#workers tbody tr")
    leads = [row.get_by_role("link", name="Show in memory") for row in rows.all()]
    assert [first.count() for first in leads] == [1, 1]
    owner = view.page.get_by_label("in", exact=True)
    for first, name in zip(leads, ("loader 1, worker 0", "loader 1, worker 1"), strict=True):
        first.click()
        expect(owner).to_be_focused()
        expect(owner.locator("option:checked")).to_have_text(name)
    leads[0].click()
    expect(owner.locator("option:checked")).to_have_text("loader 1, worker 0")
    view.assert_quiet()


def test_devices_to_choose_are_those_of_the_process_that_is_drawn(
    view: View, tmp_path: Path
) -> None:
    def on(device: str, rank: int) -> Retained:
        plain = retained_samples.retained()
        censuses = [
            msgspec.structs.replace(census, bytes=census.bytes | {device: census.bytes["host"]})
            for census in plain.censuses
        ]
        return msgspec.structs.replace(plain, censuses=censuses, process=RetainedProcess(rank=rank))

    report = msgspec.structs.replace(
        samples.leaking(), retained=on("cuda:1", 1), retained_elsewhere=[on("cuda:0", 0)]
    )
    file = tmp_path / "devices.html"
    file.write_text(render_html(report), encoding="utf-8")
    view.wear(DESKTOP, "light")
    view.open(file)
    device = view.page.get_by_label("on", exact=True)
    assert device.locator("option").all_inner_texts() == ["host", "cuda:1"]
    device.select_option(label="cuda:1")
    view.page.get_by_label("in", exact=True).select_option(label="rank 0")
    assert device.locator("option").all_inner_texts() == ["host", "cuda:0"]
    assert device.input_value() == "0"
    device.select_option(label="cuda:0")
    assert plain(boxes(view).first.locator(".size").inner_text()) == "510 MiB"
    view.assert_quiet()


def test_a_search_says_in_which_other_process_something_is(view: View, show: Open) -> None:
    show(view, "workers")
    reported = view.page.locator(".found")
    view.page.get_by_role("searchbox").fill("pred_boxes")
    assert reported.inner_text() == "Nothing found here, but in main process"
    view.page.get_by_role("searchbox").fill("no such thing")
    assert reported.inner_text() == "Nothing found"
    view.page.get_by_role("searchbox").fill("pred_boxes")
    view.page.get_by_label("in", exact=True).select_option(label="main process")
    assert "in 1 place" in reported.inner_text()
    view.assert_quiet()


def test_a_card_leads_to_its_box_in_the_process_where_it_grows(view: View, show: Open) -> None:
    show(view, "workers")
    view.page.get_by_label("in", exact=True).select_option(label="main process")
    view.page.get_by_role("link", name="Show in memory").first.click()
    expect(view.page.locator(":focus .label")).to_have_text("decoded")
    assert view.page.get_by_label("in", exact=True).input_value() == "0"
    assert view.page.get_by_role("button", name="Growth").get_attribute("aria-pressed") == "true"
    assert plain(boxes(view).first.locator(".size").inner_text()) == "+60 MiB"
    view.assert_quiet()


def test_without_the_script_each_process_is_read_as_a_table(plain_view: View, show: Open) -> None:
    show(plain_view, "workers")
    tables = plain_view.page.get_by_text("Tables of the other processes")
    tables.click()
    reported = plain(plain_view.page.locator("details", has=tables).inner_text())
    assert "main process" in reported
    assert "loader 1, worker 0" in reported
    assert "Trainer.all_pred_boxes" in reported


def test_the_comparison_shows_what_differs(view: View, show: Open) -> None:
    show(view, "comparison")
    assert plain(boxes(view).first.locator(".size").inner_text()) == "−400 MiB"
    view.page.get_by_role("button", name="Held").click()
    view.page.get_by_label("at", exact=True).select_option(index=0)
    assert plain(boxes(view).first.locator(".size").inner_text()) == "530 MiB"
    view.assert_quiet()


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("mode", ["held", "growth"])
def test_everybody_can_read_it(mode: str, theme: Theme, view: View, show: Open, axe: str) -> None:
    show(view)
    view.wear(DESKTOP, theme)
    view.page.locator(f"[data-show={mode}]").click()
    box(view, "trainer").click()
    view.page.get_by_role("searchbox").fill("model")
    assert not view.violations(axe)


@pytest.mark.parametrize("mode", ["held", "growth"])
def test_it_fits_a_phone(mode: str, view: View, show: Open) -> None:
    show(view)
    view.wear(PHONE, "dark")
    view.page.locator(f"[data-show={mode}]").click()
    box(view, "trainer").click()
    assert boxes(view).first.locator(".label").inner_text() == "trainer"
    assert not view.too_wide()


def test_both_pictures_are_printed(view: View, show: Open) -> None:
    show(view)
    view.page.emulate_media(media="print")
    for mode in ("held", "growth"):
        assert view.page.locator(f".icicle-figure.{mode} .box").first.is_visible()
        assert view.page.locator(f".icicle-figure.{mode} figcaption").is_visible()
    assert view.page.locator(".icicle-tools").is_hidden()
