"""The pictures in the README are taken by a command, and are there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from browser_pages import page_of
from PIL import Image

ROOT = Path(__file__).parents[2]
LARGEST = 150 * 1024


def brightness(picture: Path) -> float:
    with Image.open(picture) as image:
        return float(image.convert("L").resize((1, 1)).getpixel((0, 0)))


def test_pictures_are_taken_light_and_dark_and_small(tmp_path: Path) -> None:
    if shutil.which("chromium") is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    pytest.importorskip("playwright.sync_api", reason="there is no Playwright")
    (tmp_path / "detector").mkdir()
    for name, made in (("leaking", "leaking"), ("comparison", "comparison")):
        (tmp_path / "detector" / f"{name}.html").write_bytes(page_of(made))
    command = [sys.executable, "examples/make_screenshots.py", "--out", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    for name in ("report", "comparison"):
        light, dark = tmp_path / f"{name}-light.png", tmp_path / f"{name}-dark.png"
        assert max(light.stat().st_size, dark.stat().st_size) <= LARGEST
        assert brightness(light) > 200 > 60 > brightness(dark)


def test_the_pictures_of_the_readme_are_there_and_small() -> None:
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', (ROOT / "README.md").read_text())
    assert len(pictures) == 4
    for picture in pictures:
        assert (ROOT / picture).stat().st_size <= LARGEST
