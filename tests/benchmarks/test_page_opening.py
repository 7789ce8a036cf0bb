"""How long a page takes to open is measured where there is a browser, and left out elsewhere."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from page_opening import browser_path, opening

PAGE = """<!doctype html><title>a</title><button data-zoom="in">closer</button>"""


def opened(page: Path) -> dict[str, float]:
    """Open it in a thread of its own: that of the tests may have a browser, and with it a loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(opening, page).result()


def test_without_a_browser_there_are_no_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert opening(tmp_path / "none.html") == {}


@pytest.mark.slow
def test_with_a_browser_opening_and_zooming_are_reported(tmp_path: Path) -> None:
    if browser_path() is None:
        pytest.skip("there is no Chromium or no Playwright")
    page = tmp_path / "page.html"
    page.write_text(PAGE)
    reported = opened(page)
    assert set(reported) == {"opening the page, s", "zooming its timeline, s"}
    assert all(seconds > 0 for seconds in reported.values())
    page.write_text(PAGE.replace("data-zoom", "data-other"))
    assert set(opened(page)) == {"opening the page, s"}
