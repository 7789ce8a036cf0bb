"""Tell whether a verdict stays the same under other seeds, at other lengths and budgets.

    python tests/zoo/robustness.py [--only PATTERN] [--jobs N] [--out reports]

Runs programs of the zoo in every variant (``variants``), prints what came out differently from the
program as it stands, and writes ``robustness.json`` and ``robustness.html``. The exit code is 0
whatever comes out.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from corpus import Case, cases
from lengths import LENGTHS
from running import kept_bytes, reported
from scoring import Score, accusations, called, score
from variants import VARIANTS, Variant, rewritten
from zoo_page import render_robustness

REPORTS = Path(__file__).parents[2] / "reports"


@dataclass(frozen=True)
class Ran:
    """What came of one variant of a program."""

    variant: str
    verdict: str
    first: str
    """The first accusation; empty where there is none."""
    right: bool
    fault: str = ""

    @property
    def is_undecided(self) -> bool:
        """Whether the report says that it tells too little, and blames nobody."""
        return self.verdict == "inconclusive" and not self.first


@dataclass(frozen=True)
class Robustness:
    """What came of one program in all its variants, as it stands first."""

    name: str
    leaking: bool
    runs: tuple[Ran, ...]

    @property
    def usual(self) -> Ran:
        """The program as it stands, or else the first run that could tell."""
        return next((ran for ran in self.runs if not ran.is_undecided), self.runs[0])

    @property
    def changed(self) -> list[Ran]:
        """The runs that could tell, with another verdict or first accusation than the usual."""
        outcome = (self.usual.verdict, self.usual.first)
        return [
            ran
            for ran in self.runs
            if (not ran.is_undecided and (ran.verdict, ran.first) != outcome) or ran.fault
        ]

    @property
    def undecided(self) -> list[Ran]:
        """The runs that say that they tell too little."""
        return [ran for ran in self.runs if ran.is_undecided]

    @property
    def wrong(self) -> list[Ran]:
        """The runs whose report is untrue; one that says that it can't tell isn't."""
        return [ran for ran in self.runs if not ran.right and not ran.is_undecided]


@dataclass(frozen=True)
class Totals:
    """The figures of all programs."""

    programs: int
    runs: int
    changed: int
    undecided: int
    wrong: int


def ran(case: Case, variant: Variant, kept: list[dict[str, float]]) -> Ran:
    """Run one variant of a case."""
    with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
        program = Path(scratch) / case.program.name
        program.write_text(rewritten(case.program.read_text(), variant, LENGTHS[case.name]))
        hashing = {"PYTHONHASHSEED": str(variant.seed)}
        outcome = replace(reported(program, variant.budget, hashing), kept=kept)
        single: Score = score(replace(case, program=program), outcome)
    if single.fault:
        return Ran(variant.name, single.verdict, "", False, single.fault)
    found = accusations(outcome.report)
    return Ran(variant.name, single.verdict, called(found[0]) if found else "", single.right)


def tried(some: list[Case], jobs: int) -> Iterator[Robustness]:
    """Yield what came of each case, and print it."""
    with ThreadPoolExecutor(jobs) as pool:
        for case in some:
            kept = kept_bytes(case)
            runs = pool.map(
                lambda variant, case=case, kept=kept: ran(case, variant, kept), VARIANTS
            )
            single = Robustness(case.name, bool(case.leaks), tuple(runs))
            print("\n".join(rows(single)), flush=True)
            yield single


def rows(one: Robustness) -> list[str]:
    """Return the lines of the table about a program."""
    usual = one.usual
    counts = f"{len(one.changed)} changed, {len(one.undecided)} undecided, {len(one.wrong)} wrong"
    head = f"{one.name:28} {usual.verdict:13} {usual.first or '-':36} {counts} of {len(one.runs)}"
    outcome = [other for other in one.runs if other in [*one.changed, *one.undecided, *one.wrong]]
    return [head] + [
        f"    {other.variant:26} {other.fault or other.verdict:13} {other.first or '-'}"
        f"{'' if other.right else '  (not right)'}"
        for other in outcome
    ]


def totals(every: list[Robustness]) -> Totals:
    """Return the counts over all programs; the program as it stands is a run like the others."""
    return Totals(
        programs=len(every),
        runs=sum(len(item.runs) for item in every),
        changed=sum(len(item.changed) for item in every),
        undecided=sum(len(item.undecided) for item in every),
        wrong=sum(len(item.wrong) for item in every),
    )


def chosen(pattern: str) -> list[Case]:
    """Return the cases with a known length whose name has the pattern in it."""
    wanted = pattern if set(pattern) & set("*?[") else f"*{pattern}*"
    known = [case for case in cases() if case.name in LENGTHS]
    return [case for case in known if fnmatch.fnmatch(case.name, wanted) and case.is_runnable()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="*", metavar="PATTERN", help="a part of names, or a glob")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    parser.add_argument("--out", type=Path, default=REPORTS)
    arguments = parser.parse_args()
    every = list(tried(chosen(arguments.only), arguments.jobs))
    figures = totals(every)
    print(
        f"{figures.programs} programs, {figures.runs} runs: {figures.changed} changed, "
        f"{figures.undecided} undecided, {figures.wrong} wrong"
    )
    arguments.out.mkdir(parents=True, exist_ok=True)
    outcome = {"totals": asdict(figures), "programs": [asdict(item) for item in every]}
    (arguments.out / "robustness.json").write_text(json.dumps(outcome, indent=1) + "\n")
    (arguments.out / "robustness.html").write_text(render_robustness(every, figures))


if __name__ == "__main__":
    main()
