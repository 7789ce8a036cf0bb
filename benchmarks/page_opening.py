"""A page in headless Chromium: seconds until it is drawn, and until a zoomed timeline is.

    python benchmarks/page_opening.py PAGE.html [--rounds 3]

Needs Playwright and a Chromium of the system; `report_time.py` leaves these figures out where
either is missing. Each round starts a browser of its own, and its start isn't counted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import time
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
ZOOMED = """() => new Promise((done) => {
  const begun = performance.now(), button = document.querySelector('[data-zoom=in]');
  if (!button) return done(null);
  button.click();
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begun)));
})"""


def browser_path() -> str | None:
    """Return a Chromium of the system, None where it or Playwright is missing."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return None
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def opening(page: Path) -> dict[str, float]:
    """Return seconds by what they were spent on; empty without a browser."""
    path = browser_path()
    if path is None:
        return {}
    from playwright.sync_api import sync_playwright

    arguments = ["--disable-gpu", *["--no-sandbox"] * (os.geteuid() == 0)]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        window = browser.new_page(viewport={"width": 1280, "height": 900})
        begun = time.perf_counter()
        window.goto(page.absolute().as_uri())
        window.evaluate(DRAWN)
        drawn = time.perf_counter()
        zoomed = window.evaluate(ZOOMED)
        browser.close()
    reported = {"opening the page, s": drawn - begun}
    return reported | ({"zooming its timeline, s": zoomed / 1000} if zoomed is not None else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    rounds = [opening(chosen.page) for _ in range(chosen.rounds)]
    print(f"{chosen.page.name}: {chosen.page.stat().st_size / 1e6:.2f} MB; {chosen.rounds} rounds")
    if not rounds[0]:
        print("  no Chromium or no Playwright here")
    for name in rounds[0]:
        values = [item[name] for item in rounds]
        low, high = min(values), max(values)
        print(f"  {name:<26} {statistics.median(values):8.2f} ({low:.2f}–{high:.2f})")


if __name__ == "__main__":
    main()
