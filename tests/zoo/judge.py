"""Judge the recorded zoo once more, and print what is judged otherwise than was accepted.

    python tests/zoo/judge.py [--only PATTERN] [--jobs N] [--from FOLDER ...] [--accept] [--table]

Reads the recordings that ``record.py`` made, analyses them, and holds what comes out against
``accepted.json``. No program is run. The exit code is 1 where anything changed, 0 otherwise.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from archive import SUFFIX, unpack
from corpus import Case, cases
from record import CACHE, digest, read_kept, recorder_digest
from run import row, summary_text
from running import Outcome
from scoring import Score, score, summarise

from leakscope.analysis import analyse
from leakscope.recording import open_run

HERE = Path(__file__).parent
SAMPLE = HERE / "recordings"
"""Recordings that lie in the repository, for the tests."""
ACCEPTED = HERE / "accepted.json"
FIGURES = Path(__file__).parent / "judged.json"
MOST_NAMED = 5
"""Culprits of a program that are compared, those of the first ranks."""

Verdict = dict[str, Any]
"""What is reported on a program, as far as it is held against what was accepted."""


@dataclass(frozen=True)
class Judged:
    """What came of one recording."""

    key: str
    """The program's name and form."""
    form: str
    score: Score
    verdict: Verdict
    seconds: float
    is_outdated: bool
    """Whether the program or the recorder has changed since."""
    kinds: dict[str, str]
    """By kind of growth whether it is reported to apply."""


@cache
def known_cases() -> dict[str, Case]:
    return {case.name: case for case in cases()}


def judge(archive: Path) -> Judged:
    """Analyse one recording and score what comes out."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
        about = unpack(archive, Path(scratch))
        report = analyse(open_run(scratch))
    case = known_cases()[about.name]
    found: dict[str, Any] = json.loads(msgspec.json.encode(report, enc_hook=float))
    kept = read_kept(case) or [{} for _ in case.leaks]
    single = score(case, Outcome(found, about.seconds, kept))
    is_same = about.form != "short" or about.program_digest == digest(case.program.read_text())
    return Judged(
        f"{about.name}.{about.form}",
        about.form,
        single,
        verdict_of(found, single),
        time.perf_counter() - begun,
        not (is_same and about.recorder_digest == recorder_digest()),
        {single["kind"]: single["answer"] for single in found["kinds"]},
    )


def verdict_of(report: dict[str, Any], one: Score) -> Verdict:
    """Return what is compared: who is accused, how fast it grows, where, how much is explained."""
    accused = [
        {
            "name": c["name"],
            "growth": c["growth"],
            "severity": c["severity"],
            "rate": f"{rounded(c['bytes_per_unit'])} per {c['unit']}",
            "line": next(iter(c["fed_at"]), ""),
        }
        for c in report["culprits"]
        if c["severity"] != "note"
    ]
    findings = [f for f in report["findings"] if f["severity"] != "note"]
    return {
        "right": one.right,
        "verdict": report["verdict"],
        "culprits": accused[:MOST_NAMED],
        "findings": [f"{f['kind']}: {f['title']}" for f in findings],
        "explained": percent(one.explained),
        "unexplained": unexplained(report),
        "missing": report["missing"],
    }


def unexplained(report: dict[str, Any]) -> dict[str, str]:
    """Return by gauge what of its growth has no explanation, in MiB."""
    left = {
        ledger["metric"]: sum(e["bytes"] for e in ledger["entries"] if e["kind"] == "unexplained")
        for ledger in report["ledgers"]
    }
    return {name: f"{size / (1 << 20):.1f} MiB" for name, size in left.items()}


def percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def rounded(rate: float | None) -> str:
    return "?" if rate is None else f"{rate:.3g} bytes"


def archives(folders: Iterable[Path], pattern: str) -> list[Path]:
    """Return the recordings of known programs; of several of one the first folder's."""
    wanted = [p if set(p) & set("*?[") else f"*{p}*" for p in pattern.split(",")]
    found: dict[str, Path] = {}
    for folder in folders:
        for file in sorted(folder.glob(f"*{SUFFIX}")):
            name = file.name.split(".")[0]
            if name in known_cases() and any(fnmatch.fnmatch(name, item) for item in wanted):
                found.setdefault(file.name, file)
    return [found[name] for name in sorted(found)]


def judged(files: list[Path], jobs: int) -> list[Judged]:
    # The largest first, so that no process is left alone with one of them at the end.
    by_size = sorted(files, key=lambda file: -file.stat().st_size)
    with ProcessPoolExecutor(jobs) as pool:
        every = list(pool.map(judge, by_size))
    return sorted(every, key=lambda item: item.key)


def changes(before: Verdict | None, after: Verdict) -> Iterator[str]:
    """Yield a line for each part of a verdict that is not as it was accepted."""
    if before is None:
        yield f"new: {after['verdict']}, {'right' if after['right'] else 'WRONG'}"
        return
    for part, value in after.items():
        was = before.get(part)
        if was == value:
            continue
        if part == "culprits":
            yield from changed_culprits(was or [], value)
        else:
            yield f"{part}: {shown(was)} → {shown(value)}"


def changed_culprits(before: list[Verdict], after: list[Verdict]) -> Iterator[str]:
    was = {(c["name"], c["growth"]): (rank, c) for rank, c in enumerate(before, 1)}
    now = {(c["name"], c["growth"]): (rank, c) for rank, c in enumerate(after, 1)}
    for key in [key for key in was if key not in now]:
        yield f"culprit {was[key][0]} gone: {key[0]} ({was[key][1]['rate']})"
    for key, (rank, culprit) in now.items():
        if key not in was:
            yield f"culprit {rank} new: {key[0]} ({culprit['rate']}, {culprit['line']})"
            continue
        old_rank, old = was[key]
        if old_rank != rank:
            yield f"culprit {key[0]}: place {old_rank} → {rank}"
        for part in ("severity", "rate", "line"):
            if old[part] != culprit[part]:
                yield f"culprit {rank} {key[0]}: {part} {old[part] or '-'} → {culprit[part] or '-'}"


def shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def report_changes(every: list[Judged], accepted: dict[str, Verdict]) -> int:
    """Print what is judged otherwise, program by program, and return how many are."""
    count = 0
    for item in every:
        lines = list(changes(accepted.get(item.key), item.verdict))
        if lines:
            count += 1
            print(f"{'right' if item.score.right else 'WRONG':6} {item.key}")
            print("\n".join(f"         {line}" for line in lines))
    return count


def print_columns(every: list[Judged]) -> None:
    """Print the figures of each form: short runs at the floor, long ones inside the budget."""
    for form in sorted({item.form for item in every}, reverse=True):
        mine = [item.score for item in every if item.form == form]
        print(f"\n{form}: {len(mine)} recordings\n{summary_text(summarise(mine))}")


def write_figures(every: list[Judged]) -> None:
    """Write down the figures of all short runs, which the README tells."""
    scores = [item.score for item in every if item.form == "short"]
    clean = sum(item.leaking and item.verdict == "clean" for item in scores)
    figures = {"programs": len(scores), "called_clean": clean, **asdict(summarise(scores))}
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="*", metavar="PATTERN", help="parts of names, or globs")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--from", dest="folders", type=Path, action="append")
    parser.add_argument("--accept", action="store_true", help="write down what came out")
    parser.add_argument("--table", action="store_true", help="print a line for every program")
    arguments = parser.parse_args()
    begun = time.perf_counter()
    files = archives(arguments.folders or [CACHE, SAMPLE], arguments.only)
    every = judged(files, arguments.jobs)
    if arguments.table:
        print("\n".join(row(item.score) for item in every))
    accepted: dict[str, Verdict] = json.loads(ACCEPTED.read_text()) if ACCEPTED.exists() else {}
    count = report_changes(every, accepted)
    print_columns(every)
    outdated = sum(item.is_outdated for item in every)
    print(f"\n{len(every)} recordings judged in {time.perf_counter() - begun:.1f} s", end="")
    print(f", {outdated} of them outdated" if outdated else "")
    if arguments.accept:
        accepted |= {item.key: item.verdict for item in every}
        text = json.dumps(dict(sorted(accepted.items())), indent=1, ensure_ascii=False)
        ACCEPTED.write_text(text + "\n")
        if len(every) > len(accepted) / 2:  # no mere sample
            write_figures(every)
        print(f"{count} accepted")
        return 0
    print(f"{count} judged otherwise than accepted" if count else "all as accepted")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
