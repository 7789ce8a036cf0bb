"""What a reader does with the map of CUDA memory: point at a block, walk on, leave a class out."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from browser_pages import page_of
from browser_view import DESKTOP, PHONE, View, plain

from leakscope.analysis.allocator import explain, read_snapshot
from leakscope.report import render_snapshot_html
from leakscope.report.words import BLOCK_CLASSES

SNAPSHOTS = Path(__file__).parents[2].parent / "shared" / "data" / "cuda_snapshots"
RECORDED = ["lm_b_train_ctx1024_t210", "llama_two_streams_t21", "flexgen_a_t20"]
POINTS = 120
CALLED = {"hole": "hole", "cache": "free segment"} | {
    kind.value: words for kind, words in BLOCK_CLASSES.items()
}

pytestmark = pytest.mark.skipif(
    not SNAPSHOTS.exists(), reason="the recorded snapshots are not next to the repository"
)

POINTED = """([figure, points]) => {
  const plot = [...figure.querySelectorAll('[data-shape]')].find((one) => one.offsetWidth);
  const svg = plot.querySelector('svg'), surface = plot.querySelector('.surface');
  const found = [];
  for (let n = 0; n < points; n++) {
    const room = svg.getBoundingClientRect();
    const x = room.left + room.width * ((n * 0.618) % 1);
    const y = room.top + room.height * (n + 0.5) / points;
    const at = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM().inverse());
    const drawn = [...svg.querySelectorAll('path[data-kind]')]
      .filter((path) => path.isPointInFill(at)).map((path) => path.dataset.kind);
    const place = { clientX: x, clientY: y, bubbles: true };
    surface.dispatchEvent(new PointerEvent('pointermove', place));
    const readout = plot.querySelector('.readout'), mark = svg.querySelector('.map-mark');
    found.push({ drawn, read: mark.hasAttribute('d') ? readout.firstChild.textContent : '' });
  }
  return found;
}"""
"""Points all over the map and tells what is drawn there and what the reading says is there."""


@lru_cache(maxsize=4)
def recorded_page(name: str) -> str:
    return render_snapshot_html(explain(read_snapshot(SNAPSHOTS / f"{name}.pickle.gz")))


def shown(view: View, folder: Path, name: str, size: dict[str, int]) -> Any:
    """Open the page of a recorded snapshot and return the figure of its map."""
    file = folder / f"{name}.html"
    file.write_text(recorded_page(name))
    view.wear(size, "light")
    view.open(file)
    return view.page.locator("figure[data-map]").first


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("name", RECORDED)
def test_what_is_read_of_a_block_is_what_is_drawn_there(
    name: str, size: dict[str, int], view: View, tmp_path: Path
) -> None:
    figure = shown(view, tmp_path, name, size)
    reported = view.page.evaluate(POINTED, [figure.element_handle(), POINTS])
    drawn = [item for item in reported if item["drawn"]]
    assert len(drawn) > POINTS / 2
    for item in drawn:
        (kind,) = item["drawn"]
        assert plain(item["read"]).endswith(f" {CALLED[kind]}")
    view.assert_quiet()


def test_arrow_keys_walk_over_every_block(view: View, tmp_path: Path) -> None:
    name = RECORDED[0]
    surface = shown(view, tmp_path, name, DESKTOP).get_by_role("slider").first
    (device,) = explain(read_snapshot(SNAPSHOTS / f"{name}.pickle.gz")).devices
    blocks = sum(len(segment.blocks) for segment in device.memory_map)
    assert surface.get_attribute("aria-valuemax") == str(blocks - 1)
    surface.press("Home")
    first = plain(surface.get_attribute("aria-valuetext"))
    surface.press("ArrowRight")
    assert surface.get_attribute("aria-valuenow") == "1"
    assert plain(surface.get_attribute("aria-valuetext")) != first
    surface.press("ArrowLeft")
    assert plain(surface.get_attribute("aria-valuetext")) == first
    surface.press("End")
    assert surface.get_attribute("aria-valuenow") == str(blocks - 1)
    surface.press("Escape")
    assert view.page.locator(".map-mark[d]").count() == 0
    view.assert_quiet()


def test_a_class_is_left_out_and_taken_in_again(view: View, tmp_path: Path) -> None:
    figure = shown(view, tmp_path, RECORDED[0], DESKTOP)
    switch = figure.get_by_role("button", name="Gradients")
    faint = figure.locator("path.faint:visible")
    switch.click()
    assert switch.get_attribute("aria-pressed") == "false"
    assert [faint.count(), faint.get_attribute("data-kind")] == [1, "gradients"]
    switch.press("Enter")
    assert switch.get_attribute("aria-pressed") == "true"
    assert faint.count() == 0
    view.assert_quiet()


@pytest.mark.parametrize("name", ["snapshot", "on-a-device"])
def test_maps_of_every_kind_of_page_are_read(name: str, view: View, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_bytes(page_of(name))
    view.wear(DESKTOP, "light")
    view.open(file)
    surface = view.page.locator("figure[data-map]").first.get_by_role("slider").first
    surface.press("Home")
    assert "segment, 1 of" in plain(surface.get_attribute("aria-valuetext"))
    view.assert_quiet()
