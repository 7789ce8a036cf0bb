"""Run the published leaks of libraries, in the leaking release and in the repaired one, and judge.

    python tests/zoo/published_leaks.py [--only PATTERN] [--set N ...] [--into FOLDER]
        [--keep FOLDER]

The releases are installed from the package index, without dependencies, into a folder of their
own each. ``--set`` runs the programs of one set alone, or of several (``Pair.set_number``). Prints
a line for each run and the sum; the exit code is 0 whatever the score.
``benchmarks/leaks/leak_benchmark.py`` runs other tools on the same programs.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from corpus import Case
from published_truth import PAIRS
from run import row, summary_text
from running import RUN, Outcome, record
from scoring import Score, score, summarise
from truth import Truth

HERE = Path(__file__).parent
SETS = tuple(sorted({pair.set_number for pair in PAIRS.values()}))
CACHE = Path.home() / ".cache" / "leakscope-published"


@dataclass(frozen=True)
class Release:
    """A program of ``published/`` with one release of its library."""

    name: str
    is_leaking: bool

    @property
    def which(self) -> str:
        return "leaking" if self.is_leaking else "repaired"

    @property
    def program(self) -> Path:
        return HERE / "published" / f"{self.name}.py"

    @property
    def packages(self) -> tuple[str, ...]:
        pair = PAIRS[self.name]
        return pair.leaking if self.is_leaking else pair.repaired

    @property
    def case(self) -> Case:
        """What is true of it."""
        truth = PAIRS[self.name].truth if self.is_leaking else Truth(verdicts=("clean",))
        return Case(f"{self.name} {self.which}", self.program, truth)


def releases(pattern: str = "*", sets: Collection[int] = SETS) -> Iterator[Release]:
    """Yield both releases of the programs of some sets whose name a glob fits."""
    for name in sorted(fnmatch.filter(PAIRS, pattern)):
        if PAIRS[name].set_number in sets:
            yield Release(name, is_leaking=True)
            yield Release(name, is_leaking=False)


def installed(release: Release, into: Path) -> Path:
    """Return the folder with the libraries that a program needs, installed if they aren't."""
    folder = into / release.name / release.which
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"]
        subprocess.run([*command, str(folder), *release.packages], check=True)
    return folder


def judged(release: Release, into: Path, keep: Path | None = None) -> Score:
    """Return how well the report of one run tells the leak of a library, or that there is none."""
    case, libraries = release.case, str(installed(release, into))
    with tempfile.TemporaryDirectory(prefix="published-") as scratch:
        more = {"PYTHONPATH": libraries}
        seconds, fault = record(release.program, Path(scratch), more=more)
        written = Path(scratch) / RUN / "report.json"
        if not fault and not written.exists():
            fault = "no report was written"
        report = {} if fault else json.loads(written.read_text())
        if keep is not None and written.exists():
            kept = keep / f"{release.name}-{release.which}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(Path(scratch) / RUN, kept)
    return score(case, Outcome(report, seconds, [leak.kept for leak in case.leaks], fault))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="*", metavar="PATTERN", help="a glob of names")
    parser.add_argument(
        "--set", type=int, nargs="+", default=SETS, choices=SETS, metavar="N", dest="sets",
        help="of these sets alone",
    )  # fmt: skip
    parser.add_argument("--into", type=Path, default=CACHE, help="where libraries are installed")
    parser.add_argument("--keep", type=Path, help="where run directories are left")
    arguments = parser.parse_args()
    scores = []
    for release in releases(arguments.only, arguments.sets):
        scores.append(judged(release, arguments.into, arguments.keep))
        print(row(scores[-1]), flush=True)
    print(summary_text(summarise(scores)))


if __name__ == "__main__":
    main()
