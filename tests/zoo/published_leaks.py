"""Run the published leaks of libraries, each in the release before its repair, and judge them.

    python tests/zoo/published_leaks.py [--only PATTERN] [--into FOLDER]

The releases are installed from the package index, without dependencies, into a folder of their
own each. Prints a line for each and the sum; the exit code is 0 whatever the score.
"""

from __future__ import annotations

import argparse
import fnmatch
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from corpus import Case
from ninth_truth import PACKAGES, PUBLISHED
from run import row, told
from running import reported
from scoring import Score, score, summarise

HERE = Path(__file__).parent
CACHE = Path.home() / ".cache" / "leakscope-published"


def installed(name: str, into: Path) -> Path:
    """Return the folder with the libraries that a program needs, installed if they aren't."""
    folder = into / name
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"]
        subprocess.run([*command, str(folder), *PACKAGES[name]], check=True)
    return folder


def judged(name: str, into: Path) -> Score:
    """Return how well the report tells the leak of a library."""
    case = Case(name, HERE / "published" / f"{name}.py", PUBLISHED[name])
    outcome = reported(case.program, more={"PYTHONPATH": str(installed(name, into))})
    return score(case, replace(outcome, kept=[leak.kept for leak in case.leaks]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="*", metavar="PATTERN", help="a glob of names")
    parser.add_argument("--into", type=Path, default=CACHE, help="where libraries are installed")
    arguments = parser.parse_args()
    scores = []
    for name in sorted(fnmatch.filter(PUBLISHED, arguments.only)):
        scores.append(judged(name, arguments.into))
        print(row(scores[-1]), flush=True)
    print(told(summarise(scores)))


if __name__ == "__main__":
    main()
