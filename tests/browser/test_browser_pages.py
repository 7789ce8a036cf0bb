"""Every page in a real browser: light and dark, on a desk and on a phone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from browser_pages import COMMITTED, MADE, REPORTS, SAMPLES, page_of
from browser_view import SIZES, THEMES, Pictures, View


def assert_sound(view: View, pictures: Pictures, name: str) -> None:
    """Fail unless a page is quiet, loads nothing and fits, whatever its window is like."""
    for size, window in SIZES.items():
        for theme in THEMES:
            view.wear(window, theme)
            too_wide = view.too_wide()
            pictures.keep(view, f"{name}-{size}-{theme}", too_wide)
            assert not too_wide, f"{size}: {too_wide}"
            assert not view.crowded(), f"{size}: {view.crowded()}"
    view.assert_quiet()


def assert_open(view: View, axe: str) -> None:
    """Fail if a page keeps anybody out, with all that it can show unfolded."""
    view.wear(SIZES["desktop"], "light")
    view.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert not view.violations(axe)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MADE, *SAMPLES])
def test_a_page_is_sound_and_open_to_everybody(
    name: str, view: View, axe: str, pictures: Pictures, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    file.write_bytes(page_of(name))
    view.open(file)
    assert_sound(view, pictures, name)
    assert_open(view, axe)
    view.wear(SIZES["desktop"], "dark")
    assert not view.violations(axe, "color-contrast")


@pytest.mark.parametrize("name", MADE)
def test_a_page_is_whole_without_javascript(name: str, plain_view: View, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_bytes(page_of(name))
    plain_view.open(file)
    assert plain_view.page.locator("h1").inner_text().strip()
    for table in plain_view.page.locator("main > section > .scroll table").all():
        assert table.is_visible()
    for card in plain_view.page.locator(".culprit, .finding, .drawing.wide").all():
        assert card.is_visible()
    assert plain_view.page.locator("button:visible").count() == 0
    assert not plain_view.too_wide()
    plain_view.assert_quiet()


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: str(path.relative_to(REPORTS)))
def test_a_published_page_is_sound(path: Path, view: View, pictures: Pictures) -> None:
    view.open(path)
    of_faults = replace(pictures, wants_all=False)
    assert_sound(view, of_faults, f"published-{path.parent.name}-{path.stem}")


@pytest.mark.slow
@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: str(path.relative_to(REPORTS)))
def test_a_published_page_is_open_to_everybody(path: Path, view: View, axe: str) -> None:
    view.open(path)
    assert_open(view, axe)


def test_every_sample_is_published() -> None:
    """So that each of them is opened by the test above."""
    assert {f"{path.parent.name}/{path.stem}" for path in COMMITTED} >= {*SAMPLES}
