"""Run the zoo and publish how often leakscope is right.

    python tests/zoo/run.py [--only PATTERN] [--own | --real | --unseen] [--jobs N] [--out reports]

Prints a table, and writes ``zoo.json`` and ``zoo.html``. The exit code is 0 whatever the score: a
case that is judged wrongly is shown, not hidden.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from corpus import Case, cases
from running import run
from scoring import Score, Summary, score, summarise
from zoo_page import render

REPORTS = Path(__file__).parents[2] / "reports"


def chosen(pattern: str) -> list[Case]:
    """Return the cases whose name has the pattern in it and whose libraries are installed."""
    wanted = pattern if set(pattern) & set("*?[") else f"*{pattern}*"
    return [case for case in cases() if fnmatch.fnmatch(case.name, wanted) and case.is_runnable()]


def judge(case: Case) -> Score:
    return score(case, run(case))


def judged(some: list[Case], jobs: int) -> Iterator[Score]:
    with ThreadPoolExecutor(jobs) as pool:
        for item in pool.map(judge, some):
            print(row(item), flush=True)
            yield item


def row(one: Score) -> str:
    """Return a line of the table."""
    if one.fault:
        return f"{'FAULT':6} {one.name:32} {one.fault}"
    rates = [leak.rate_error for leak in one.leaks]
    found = " ".join(
        f"{leak.rank or '-'}{'L' if leak.line else ' '}"
        f"{'   ?' if error is None else f'{error:4.0%}'}"
        for leak, error in zip(one.leaks, rates, strict=True)
    )
    explained = "" if one.explained is None else f"{one.explained:4.0%}"
    mark = "right" if one.right else "WRONG"
    wrong = f"  also blames: {', '.join(one.wrong)}" if one.wrong else ""
    times = f"{one.seconds:5.1f} s {one.measuring_share:6.2%}"
    return f"{mark:6} {one.name:32} {one.verdict:13} {times} {explained:>5} {found}{wrong}"


def summary_text(summary: Summary) -> str:
    """Return the figures of the whole in words."""
    s = summary
    return "\n".join(
        (
            f"leaking programs judged   {s.leaking}",
            f"  greatest leak first     {s.first_right}",
            f"  … and its line first    {s.line_right}",
            f"  … and rate within 10 %  {s.rate_right}",
            f"  leaks within three      {s.within} of {s.leaks}",
            f"  explained, median       {s.explained:.0%}, by culprits alone {s.named:.0%}",
            f"  also a wrong alarm      {s.also_wrong}",
            f"healthy programs          {s.healthy}",
            f"  with a false alarm      {s.false_alarms}",
            f"inconclusive              {s.inconclusive}",
            f"without a report          {s.faults}",
            f"seconds, all              {s.seconds:.0f}",
            f"measuring, median share   {s.measuring_share:.2%}",
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="*", metavar="PATTERN", help="a part of names, or a glob")
    parser.add_argument("--own", action="store_true", help="without those that other tests have")
    parser.add_argument("--real", action="store_true", help="those that run code of others alone")
    parser.add_argument("--unseen", action="store_true", help="those written without a look inside")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once; they disturb times")
    parser.add_argument("--out", type=Path, default=REPORTS)
    arguments = parser.parse_args()
    some = [case for case in chosen(arguments.only) if case.is_own or not arguments.own]
    some = [case for case in some if case.is_real or not arguments.real]
    some = [case for case in some if case.was_unseen or not arguments.unseen]
    scores = list(judged(some, arguments.jobs))
    summary = summarise(scores)
    print(summary_text(summary))
    arguments.out.mkdir(parents=True, exist_ok=True)
    figures = {"summary": asdict(summary), "cases": [asdict(item) for item in scores]}
    (arguments.out / "zoo.json").write_text(json.dumps(figures, indent=1) + "\n")
    (arguments.out / "zoo.html").write_text(render(scores, summary))


if __name__ == "__main__":
    main()
