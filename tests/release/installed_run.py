"""Tries an installed leakscope as its user would: records a program that leaks, reads the report.

    python tests/release/installed_run.py --walker native
    python tests/release/installed_run.py --walker reference

It needs nothing but what leakscope itself installs, and ends with an error where something is
missing: the command, an extension (or, for ``reference``, where there is one), a template of the
page, the culprit.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

EXTENSIONS = (
    "leakscope.capture._returning",
    "leakscope.heap._native",
    "leakscope.probes._counting",
    "leakscope.probes._sampling",
)
PROGRAM = """\
import leakscope

kept = []


def handle(number):
    kept.append(bytearray(2 << 20))


with leakscope.profile(boundaries="manual", quiet=True) as scope:
    for number in scope.epochs(range(12)):
        handle(number)
"""
LEAKING_LINE = 1 + PROGRAM.splitlines().index("    kept.append(bytearray(2 << 20))")


def main() -> None:
    """Try it, and end with an error that says what doesn't hold."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--walker", choices=["native", "reference"], required=True)
    walker = parser.parse_args().walker
    present = [name for name in EXTENSIONS if importlib.util.find_spec(name) is not None]
    expected = list(EXTENSIONS) if walker == "native" else []
    assert present == expected, f"extensions: {present}"
    for name in present:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        check(Path(folder), walker)
    print(f"recorded and reported on {sys.version.split()[0]}, walker: {walker}")


def check(folder: Path, walker: str) -> None:
    """Record the program in a folder by the installed command, and read what is reported on it."""
    (folder / "train.py").write_text(PROGRAM)
    command = Path(sys.executable).with_name("leakscope")
    environment = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
    done = subprocess.run(
        [command, "run", "--out", "run", "train.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", done.stdout
    assert "Memory leaks: kept grows by 2 MiB per epoch" in " ".join(done.stderr.split()), (
        done.stderr
    )
    report = json.loads((folder / "run" / "report.json").read_text())
    (culprit,) = report["culprits"]
    assert culprit["name"] == "kept", culprit
    assert culprit["fed_at"] == [f"train.py:{LEAKING_LINE}"], culprit
    assert report["overhead"]["walker"] == walker, report["overhead"]
    assert report["errors"] == [], report["errors"]
    page = (folder / "run" / "report.html").read_text()
    assert "<svg" in page
    assert "<style" in page
    assert "<script" in page


if __name__ == "__main__":
    main()
