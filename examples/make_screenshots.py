"""Take the pictures in the README: the first screens of sample reports, light and dark.

    python examples/make_screenshots.py [--out reports]

It needs the system's Chromium (`apt-get install chromium`) and the extra `test`. Each picture has
at most 256 colours, so that none is larger than 150 KB.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
from pathlib import Path

PICTURES = {"report": "detector/leaking.html", "comparison": "detector/comparison.html"}
"""Of each picture the page, of which it shows the first section whole."""
WIDTH, HEIGHT = 1280, 1600
MARGIN = 20
COLOURS = 256


def take(out: Path, chromium: str) -> list[Path]:
    """Write all pictures into `out` and return their paths."""
    from playwright.sync_api import sync_playwright

    taken = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, page in PICTURES.items():
            for theme in ("light", "dark"):
                window = browser.new_page(
                    viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=theme
                )
                window.goto((out / page).absolute().as_uri())
                path = out / f"{name}-{theme}.png"
                section = window.locator(".hero").bounding_box()
                assert section is not None
                bottom = section["y"] + section["height"] + MARGIN
                whole = {"x": 0, "y": 0, "width": WIDTH, "height": min(bottom, HEIGHT)}
                path.write_bytes(compact(window.screenshot(clip=whole)))
                window.close()
                taken.append(path)
        browser.close()
    return taken


def compact(picture: bytes) -> bytes:
    """Return a picture with few colours."""
    from PIL import Image

    with Image.open(io.BytesIO(picture)) as image, io.BytesIO() as target:
        few = image.convert("RGB").quantize(
            COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
        few.save(target, format="PNG", optimize=True)
        return target.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("reports"))
    arguments = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("There is no Chromium to take pictures with: apt-get install chromium")
    for path in take(arguments.out, chromium):
        print(f"  {path} {path.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
