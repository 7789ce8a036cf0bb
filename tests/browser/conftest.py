"""One browser for all tests of this room, gone when they are done.

The reason of a skipped test says what is missing for it. Pictures of whole pages are kept in
the folder that ``BROWSER_SCREENSHOTS`` names; without it only of a page that fails, in pytest's
own temporary folder.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path += [str(Path(__file__).parents[1] / name) for name in ("report", "zoo", "analysis")]

from axe_core import NotToBeHadError, axe_script
from browser_view import Pictures, View, opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    reason = "there is no Playwright: pip install playwright"
    playwright_api = pytest.importorskip("playwright.sync_api", reason=reason)
    with playwright_api.sync_playwright() as playwright:
        # The root of a container has no user namespaces for the sandbox.
        arguments = ["--disable-gpu", *["--no-sandbox"] * (os.geteuid() == 0)]
        launched = playwright.chromium.launch(executable_path=path, args=arguments)
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Windows that may use the clipboard."""
    made = browser.new_context(reduced_motion="reduce")
    made.grant_permissions(["clipboard-read", "clipboard-write"])
    yield made
    made.close()


@pytest.fixture
def view(context: BrowserContext) -> Iterator[View]:
    """A window that keeps what its page says and asks for."""
    with opened(context) as it:
        yield it


@pytest.fixture
def plain_view(browser: Browser) -> Iterator[View]:
    """A window without JavaScript."""
    made = browser.new_context(java_script_enabled=False)
    with opened(made) as it:
        yield it
    made.close()


@pytest.fixture(scope="package")
def axe() -> str:
    """The text of axe-core."""
    try:
        return axe_script().read_text(encoding="utf-8")
    except NotToBeHadError as fault:
        pytest.skip(f"{fault}: python tests/browser/axe_core.py")


@pytest.fixture(scope="package")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Pictures:
    """Where pictures of pages go."""
    named = os.environ.get("BROWSER_SCREENSHOTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return Pictures(folder, wants_all=bool(named))
