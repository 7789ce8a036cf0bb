"""Take the pictures in the README: the first screens of sample reports, light and dark.

    python examples/make_screenshots.py [--out reports]

It needs the system's Chromium (`apt-get install chromium`) and the extra `test`. Each picture has
at most 128 colours, so that none is larger than 150 KB.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
from pathlib import Path

PICTURES = {
    "report": ("detector/leaking.html", 860),
    "comparison": ("detector/comparison.html", 740),
}
"""Of each picture the page and the height in pixels."""
WIDTH = 1280
COLOURS = 128


def take(out: Path, chromium: str) -> list[Path]:
    """Write all pictures into `out` and return their paths."""
    from playwright.sync_api import sync_playwright

    taken = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (page, height) in PICTURES.items():
            for theme in ("light", "dark"):
                window = browser.new_page(
                    viewport={"width": WIDTH, "height": height}, color_scheme=theme
                )
                window.goto((out / page).absolute().as_uri())
                path = out / f"{name}-{theme}.png"
                path.write_bytes(compact(window.screenshot()))
                window.close()
                taken.append(path)
        browser.close()
    return taken


def compact(picture: bytes) -> bytes:
    """Return a picture with few colours."""
    from PIL import Image

    with Image.open(io.BytesIO(picture)) as image, io.BytesIO() as target:
        few = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
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
