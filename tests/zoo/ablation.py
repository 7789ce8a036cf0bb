"""Switch off each rule that corrects what grows, and print what is judged otherwise.

    python tests/zoo/ablation.py [--only PATTERN] [--rules NAMES] [--jobs N] [--from FOLDER ...]

A rule that changes no verdict of the recorded zoo is needed by none of its programs.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from judge import SAMPLE, Verdict, archives, changes, judge
from record import CACHE

from leakscope.analysis.growth import GrowthVerdict, judge_growth
from leakscope.analysis.shapes import Company
from leakscope.model.trend import Trend, TrendVerdict

ANALYSIS = "leakscope.analysis."


def returns(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def first_argument(*arguments: Any, **_: Any) -> Any:
    return arguments[0]


def second_argument(*arguments: Any, **_: Any) -> Any:
    return arguments[1]


def judged_by_the_model(
    x: Any, y: Any, *, unit: str, noise_bytes: float, warm: bool = False
) -> Trend:
    """Return what the growth model says of a series, in the words of the present rules."""
    growth = judge_growth(x, y, noise=noise_bytes)
    return Trend(
        verdict=SHAPES[growth.verdict],
        bytes_per_unit=growth.rate.rate,
        interval=(growth.rate.low, growth.rate.high),
        unit=unit,
        points=len(y),
        net_bytes=growth.gained,
        reason=growth.reason.value,
    )


SHAPES = {
    GrowthVerdict.GROWING: TrendVerdict.GROWING,
    GrowthVerdict.BOUNDED: TrendVerdict.BOUNDED,
    GrowthVerdict.INCONCLUSIVE: TrendVerdict.INCONCLUSIVE,
}

RULES: dict[str, list[tuple[str, Callable[..., Any]]]] = {
    "instead: growth_model": [
        (f"{module}:judge", judged_by_the_model)
        for module in ("across", "within", "case", "workers.piling")
    ],
    "warm_up": [("trends:warm_up", returns(0)), ("case:warm_up", returns(0))],
    "late_start": [("trends:late_start", returns(0))],
    "without_jump": [
        ("trends:without_jump", first_argument),
        ("across:without_jump", first_argument),
    ],
    "plateau": [("trends:_is_plateau", returns(False))],
    "levels_off": [("trends:levels_off", returns(False))],
    "given_back": [("across:given_back", returns([]))],
    "seen_later": [("across:_seen_later", returns({}))],
    "has_moved": [("across:has_moved", returns(False))],
    "stood_still": [("across:stood_still", returns(False))],
    "made_anew": [("search:made_anew", second_argument)],
    "followed": [("search:find_followed", returns({}))],
    "follows_the_model": [("search:follows_the_model", returns(False))],
    "nears_capacity": [("search:nears_capacity", returns(False))],
    "share_named": [("search:share_named", second_argument)],
    "part_of_another": [("search:_is_part_of_another", returns(False))],
    "siblings": [("analyse:with_siblings_joined", second_argument)],
    "undecided": [("analyse:find_undecided", returns([]))],
    "unsettled": [("headline:_unsettled", returns([]))],
    "company_of_shapes": [
        (f"{module}:company_of", returns(Company.WORK))
        for module in ("headline", "diagnoses.slack", "diagnoses.unexplained")
    ],
    "touched_only": [
        ("headline:may_be_touched_only", returns(False)),
        ("diagnoses.unexplained:may_be_touched_only", returns(False)),
    ],
    "unread_children": [("headline:unread_children", returns([]))],
    "slack": [("diagnoses.slack:diagnose", returns([]))],
    "unexplained": [("diagnoses.unexplained:diagnose", returns([]))],
}
"""Each rule by the functions that stand for it, and what they do when it is off; first the growth
model in place of the rules for the shape of a series."""


def switch_off(rule: str) -> None:
    for place, replacement in RULES.get(rule, []):
        module, _, name = place.partition(":")
        found = importlib.import_module(ANALYSIS + module)
        if not hasattr(found, name):
            raise AttributeError(f"{place} is no rule any more")
        setattr(found, name, replacement)


def verdicts(files: list[Path], jobs: int, rule: str = "") -> dict[str, Verdict]:
    with ProcessPoolExecutor(jobs, initializer=switch_off, initargs=(rule,)) as pool:
        return {one.key: one.verdict for one in pool.map(judge, files, chunksize=4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="*", metavar="PATTERN")
    parser.add_argument("--rules", default=",".join(RULES))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--from", dest="folders", type=Path, action="append")
    arguments = parser.parse_args()
    files = archives(arguments.folders or [CACHE, SAMPLE], arguments.only)
    usual = verdicts(files, arguments.jobs)
    for rule in arguments.rules.split(","):
        begun = time.perf_counter()
        without = verdicts(files, arguments.jobs, rule)
        found = {key: list(changes(usual[key], without[key])) for key in usual}
        changed = {key: lines for key, lines in found.items() if lines}
        worse = [key for key in changed if usual[key]["right"] and not without[key]["right"]]
        better = [key for key in changed if without[key]["right"] and not usual[key]["right"]]
        took = f"{time.perf_counter() - begun:.0f} s"
        print(f"{rule}: {len(changed)} changed, {len(worse)} worse, {len(better)} better ({took})")
        for key in worse:
            print(f"    worse   {key}: {found[key][0]}")
        for key in better:
            print(f"    better  {key}: {found[key][0]}")
        others = [key for key in changed if key not in (*worse, *better)]
        print(f"    changed {', '.join(others)}" if others else "", flush=True)


if __name__ == "__main__":
    main()
