"""Switch off each rule and halve and double each number, and print what is judged otherwise.

    python tests/zoo/ablation.py [--only PATTERN] [--rules NAMES] [--numbers NAMES] [--jobs N]
        [--from FOLDER ...]

A rule or number that changes no verdict of the recorded zoo is needed by none of its programs.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from judge import SAMPLE, Verdict, archives, changes, judge
from record import CACHE

from leakscope.analysis.growth import exclusions, policy

ANALYSIS = "leakscope.analysis."
FACTORS = (0.5, 2.0)


def returns(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def second_argument(*arguments: Any, **_: Any) -> Any:
    return arguments[1]


def rules_without(names: str) -> Callable[[], None]:
    """Return what takes a rule out of the ordered lists."""

    def take_out() -> None:
        for table in ("ROW_RULES", "TERM_RULES"):
            kept = tuple(r for r in getattr(exclusions, table) if r.name != names)
            for module in loaded():
                if hasattr(module, table):
                    setattr(module, table, kept)
        for name in ("MOVED", "PART_OF_OWNER"):
            rule = getattr(exclusions, name)
            if rule.name == names:
                for module in loaded():
                    if getattr(module, name, None) is rule:
                        setattr(module, name, replace(rule, applies=returns(None)))

    return take_out


OTHERS: dict[str, list[tuple[str, Callable[..., Any]]]] = {
    "carried_by_pool": [("growth.search:find_carriers", returns({}))],
    "share_named": [("growth.search:share_named", second_argument)],
    "siblings": [("verdict.analyse:with_siblings_joined", second_argument)],
    "undecided": [("verdict.analyse:find_undecided", returns([]))],
}
"""What is no exclusion, by the functions that stand for it, and what they do when it is off."""


@dataclass(frozen=True)
class Change:
    """One thing that is switched off, or one number that is changed."""

    name: str
    factor: float | None = None

    def __str__(self) -> str:
        return f"{self.name} off" if self.factor is None else f"{self.name} × {self.factor:g}"

    def make(self) -> None:
        """Change the analysis of this process."""
        if self.factor is not None:
            set_number(self.name, getattr(policy, self.name) * self.factor)
        elif self.name in OTHERS:
            for place, replacement in OTHERS[self.name]:
                module, _, name = place.partition(":")
                found = importlib.import_module(ANALYSIS + module)
                if not hasattr(found, name):
                    raise AttributeError(f"{place} is no rule any more")
                setattr(found, name, replacement)
        elif self.name:
            rules_without(self.name)()


def loaded() -> list[Any]:
    return [m for n, m in list(sys.modules.items()) if n.startswith(ANALYSIS) and m is not None]


def set_number(name: str, value: float) -> None:
    """Change a number of the policy, also where it was imported by name."""
    before = getattr(policy, name)
    new = round(value) if isinstance(before, int) else value
    for module in loaded():
        if getattr(module, name, None) is before:
            setattr(module, name, new)


def rules() -> list[str]:
    listed = (*exclusions.ROW_RULES, *exclusions.TERM_RULES)
    return [exclusions.MOVED.name, exclusions.PART_OF_OWNER.name, *(r.name for r in listed)]


def numbers() -> list[str]:
    return [n for n, v in vars(policy).items() if n.isupper() and isinstance(v, int | float)]


def verdicts(files: list[Path], jobs: int, change: Change) -> dict[str, Verdict]:
    with ProcessPoolExecutor(jobs, initializer=change.make) as pool:
        return {one.key: one.verdict for one in pool.map(judge, files, chunksize=4)}


def report(
    change: Change, usual: dict[str, Verdict], found: dict[str, Verdict], seconds: float
) -> None:
    """Print what is judged otherwise."""
    changed = {k: lines for k in usual if (lines := list(changes(usual[k], found[k])))}
    worse = [k for k in changed if usual[k]["right"] and not found[k]["right"]]
    better = [k for k in changed if found[k]["right"] and not usual[k]["right"]]
    print(
        f"{change}: {len(changed)} changed, {len(worse)} worse, {len(better)} better "
        f"({seconds:.0f} s)"
    )
    for title, keys in (("worse", worse), ("better", better)):
        for key in keys:
            print(f"    {title:7} {key}: {changed[key][0]}")
    others = [key for key in changed if key not in (*worse, *better)]
    print(f"    changed {', '.join(others[:12])}" if others else "", flush=True)


def chosen(wanted: str, known: Iterable[str]) -> list[str]:
    if wanted == "none":
        return []
    return [n for n in known if wanted == "all" or n in wanted.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="*", metavar="PATTERN")
    parser.add_argument("--rules", default="all", help="names between commas, all or none")
    parser.add_argument("--numbers", default="all", help="names between commas, all or none")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--from", dest="folders", type=Path, action="append")
    arguments = parser.parse_args()
    files = archives(arguments.folders or [CACHE, SAMPLE], arguments.only)
    usual = verdicts(files, arguments.jobs, Change(""))
    tried = [Change(name) for name in chosen(arguments.rules, [*rules(), *OTHERS])]
    tried += [Change(n, f) for n in chosen(arguments.numbers, numbers()) for f in FACTORS]
    for change in tried:
        begun = time.perf_counter()
        found = verdicts(files, arguments.jobs, change)
        report(change, usual, found, time.perf_counter() - begun)


if __name__ == "__main__":
    main()
