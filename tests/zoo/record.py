"""Record the zoo once, so that verdicts can be judged often.

    python tests/zoo/record.py [--only PATTERN] [--forms short,long] [--jobs N] [--into FOLDER]

Each program is recorded into one file of FOLDER. What is there already is left as it is while
neither the program nor the part of leakscope that records has changed; ``--keep`` leaves it
in any case. ``judge.py`` judges what is there.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from archive import SUFFIX, About, about, pack
from corpus import Case, cases
from forms import FORMS, Form
from running import RUN, kept_bytes, record

import leakscope

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "build" / "corpus"
KEPT = Path(__file__).parent / "kept.json"
"""What each leaking program keeps, as it says itself in a run of its own."""
JUDGING_ROOMS = {"analysis", "report", "cli", "testing", "cleanup", "notebook", "configuration"}
"""Parts of leakscope that a recording doesn't depend on."""
PLACES = {
    str(ROOT): "/leakscope",
    str(Path(json.__file__).parents[1]): "/python/lib",
    str(Path(np.__file__).parents[1]): "/python/lib/site-packages",
    sys.prefix: "/python",
    sys.base_prefix: "/python",
}
"""What recordings say instead of this machine's paths."""


@dataclass(frozen=True)
class Task:
    """A program to record in one of its forms."""

    case: Case
    form: Form
    folder: Path

    @property
    def archive(self) -> Path:
        return self.folder / f"{self.case.name}.{self.form.name}{SUFFIX}"

    @property
    def text(self) -> str:
        return self.form.of(self.case)

    def is_done(self, *, keep: bool) -> bool:
        """Return whether its recording is there, and of this program by this recorder."""
        if not self.archive.exists():
            return False
        known = about(self.archive)
        is_same = known.program_digest == digest(self.text)
        return keep or (is_same and known.recorder_digest == recorder_digest())


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def recorder_digest() -> str:
    """Return a digest of the files of leakscope that make a recording."""
    package = Path(leakscope.__file__).parent
    whole = hashlib.sha256()
    for file in sorted(package.rglob("*")):
        room = file.relative_to(package).parts[0]
        if room not in JUDGING_ROOMS and file.suffix in {".py", ".c", ".h", ".pyi"}:
            whole.update(f"{file.relative_to(package)}\0".encode() + file.read_bytes())
    return whole.hexdigest()[:16]


def perform(task: Task) -> str:
    """Record a program and return a line about it."""
    case, form = task.case, task.form
    with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
        folder = Path(scratch)
        program = case.program
        if form.changes:
            program = folder / program.name
            program.write_text(task.text)
        seconds, fault = record(
            program, folder, form.budget, form.environment, "--no-report", timeout_s=form.timeout_s
        )
        run = folder / RUN
        if fault or not run.exists():
            return f"FAULT  {task.archive.name}: {fault or 'nothing was recorded'}"
        known = About(
            case.name, form.name, digest(task.text), recorder_digest(), form.budget, seconds
        )
        task.folder.mkdir(parents=True, exist_ok=True)
        pack(run, task.archive, known, {**PLACES, scratch: "/run"})
    size = task.archive.stat().st_size / 1024
    return f"{seconds:6.1f} s {size:7.1f} KiB  {task.archive.name}"


def read_kept(case: Case) -> list[dict[str, float]] | None:
    """Return what was measured that a program keeps; None where that was of another text."""
    if not case.leaks or all(leak.kept for leak in case.leaks):
        return [leak.kept for leak in case.leaks]
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    entry = known.get(case.name)
    if entry is None or entry["program_digest"] != digest(case.program.read_text()):
        return None
    kept: list[dict[str, float]] = entry["kept"]
    return kept


def weigh(some: list[Case], jobs: int) -> None:
    """Measure what programs keep where that isn't known, and write it down."""
    unknown = [case for case in some if read_kept(case) is None]
    with ThreadPoolExecutor(jobs) as pool:
        for case, kept in zip(unknown, pool.map(kept_bytes, unknown), strict=True):
            known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
            rounded = [{unit: round(size, 1) for unit, size in item.items()} for item in kept]
            known[case.name] = {
                "program_digest": digest(case.program.read_text()),
                "kept": rounded,
            }
            KEPT.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
            print(f"keeps {rounded}  {case.name}", flush=True)


def chosen(pattern: str) -> list[Case]:
    """Return the runnable cases whose name has the pattern in it; several stand between commas."""
    wanted = [p if set(p) & set("*?[") else f"*{p}*" for p in pattern.split(",")]
    return [
        case
        for case in cases()
        if any(fnmatch.fnmatch(case.name, item) for item in wanted) and case.is_runnable()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="*", metavar="PATTERN", help="parts of names, or globs")
    parser.add_argument("--forms", default="short", help=f"of {', '.join(FORMS)}")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once")
    parser.add_argument("--into", type=Path, default=CACHE)
    parser.add_argument("--keep", action="store_true", help="record only what is not there at all")
    arguments = parser.parse_args()
    some = chosen(arguments.only)
    forms = [FORMS[name] for name in arguments.forms.split(",")]
    tasks = [
        Task(case, form, arguments.into) for form in forms for case in some if form.suits(case)
    ]
    left = [task for task in tasks if not task.is_done(keep=arguments.keep)]
    print(f"{len(tasks)} recordings, {len(tasks) - len(left)} there already", flush=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for line in pool.map(perform, left):
            print(line, flush=True)
    weigh(some, arguments.jobs)


if __name__ == "__main__":
    main()
