"""On a terminal: Ctrl-C and input reach the program as they would under `python`."""

from __future__ import annotations

import os
import pty
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ASKING = """
import sys, time
print(sys.stdin.isatty(), sys.stdout.isatty(), input('name? '), flush=True)
try:
    print('ready', flush=True)
    time.sleep(30)
finally:
    time.sleep(0.2)
    print('cleaned up', flush=True)
"""


def on_terminal(words: list[str], folder: Path) -> tuple[int, str]:
    """Return the wait status and all that appeared, typing a name and then Ctrl-C."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ["PYTHONPATH"] = str(ROOT)
        os.execv(sys.executable, [sys.executable, *words])
    seen = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            break
        if not piece:
            break
        seen += piece
        if seen.endswith(b"name? "):
            os.write(terminal, b"Ada\n")
        elif b"ready" in piece:
            time.sleep(0.3)
            os.write(terminal, b"\x03")
    os.close(terminal)
    return os.waitpid(pid, 0)[1], seen.decode().replace("\r\n", "\n")


@pytest.mark.skipif(sys.platform != "linux", reason="reads the terminal as Linux closes it")
def test_terminal_belongs_to_the_program(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ASKING)
    plain = on_terminal(["train.py"], tmp_path)
    options = ["-q", "--no-report", "--out", "run"]
    ours = on_terminal(["-m", "leakscope", "run", *options, "train.py"], tmp_path)
    assert ours == plain
    assert "True True Ada" in plain[1]
    assert plain[1].count("cleaned up") == 1
    assert os.WTERMSIG(plain[0]) == 2
