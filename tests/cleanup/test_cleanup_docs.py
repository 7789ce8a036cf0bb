"""The examples of the page on cleanups run, and write what the page shows."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "cleanup.md"
BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)
FIGURE = re.compile(r"\d[\d.,]*( (B|KiB|MiB|GiB|PiB|ms|s))?")
END = "--- end of block ---"

# What depends on the machine: a container's limit, what the C library happens to keep.
DIFFERENT_ELSEWHERE = (
    ("nothing that can be measured", "#"),
    ("# of the host's memory", "#"),
    (" (# of it free in the C heap)", ""),
    (", limit #", ""),
    ("# objects, ", ""),
)


def without_figures(text: str) -> str:
    words = " ".join(FIGURE.sub("#", text).split())
    for here, common in DIFFERENT_ELSEWHERE:
        words = words.replace(here, common)
    return words


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the page shows a Linux with glibc")
@pytest.mark.skipif(torch.cuda.is_available(), reason="the page shows a machine without a GPU")
@pytest.mark.slow
def test_the_examples_write_what_the_page_shows() -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    program = "".join(f"{code}\nprint({END!r})\n" for kind, code in blocks if kind == "python")
    done = subprocess.run(
        [sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False, cwd=PAGE.parents[1], timeout=120,
    )  # fmt: skip
    written = done.stdout.split(END + "\n")
    assert done.returncode == 0, done.stdout
    number = -1
    shown = 0
    for kind, text in blocks:
        if kind == "python":
            number += 1
        else:
            shown += 1
            assert without_figures(written[number]) == without_figures(text), written[number]
    assert shown >= 5
