"""Module variables that are made by number: ``globals()[f"outputs_{epoch}"] = outputs``.

Each is a variable of its own and stays as large as it is, so no container grows: there are ever
more of them.

May be confused with: the stages of a script, each of which has variables of its own. Names count
only where no source has them, where their numbers alone tell them apart, and where they come all
along.
"""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.growth import policy
from leakscope.analysis.search import Growth
from leakscope.analysis.series import HOST, FloatArray
from leakscope.model.census import RootKind
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes
from leakscope.model.trend import Trend

FEWEST = 5
"""Variables that differ in numbers alone."""
_NUMBER = re.compile(r"\d+")

REMEDY = Remedy(
    title="Keep one variable, or a container with a bound",
    text=(
        "Each new name keeps what it refers to until the program ends. Assign to the same name, so "
        "that the last one is freed, or put what is needed later into a dict or a deque of a fixed "
        "length, and delete names that exist already (del, globals().pop(name))."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding for each series of names that goes on to the end of the run."""
    told = {g.path for g in growth.growers}
    found = []
    for pattern, paths in _numbered(case).items():
        trend = case.trend_of(case.work_done[case.table.at], _together(case, paths))
        if trend.is_growing and not told.intersection(paths):
            found.append(_found(case, pattern, paths, trend))
    return found


def _numbered(case: Case) -> dict[str, list[int]]:
    """Return the user's module variables that differ in numbers alone, by what they share.

    What the program calls by its name was written by hand; without sources all may have been.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for path, row in enumerate(case.table.latest if case.recording.sources else []):
        is_variable = row.root is RootKind.GLOBAL and case.table.parent(path) is None
        if row.user and is_variable and _is_made(case, row.path.rpartition("·")[2]):
            groups[_NUMBER.sub("N", row.path)].append(path)
    return {pattern: paths for pattern, paths in groups.items() if len(paths) >= FEWEST}


def _is_made(case: Case, variable: str) -> bool:
    is_numbered = variable.isidentifier() and _NUMBER.search(variable) is not None
    return is_numbered and not case.sources.program.mentioning(variable)


def _together(case: Case, paths: list[int]) -> FloatArray:
    held: FloatArray = np.nan_to_num(case.table.retained[HOST][paths]).sum(axis=0)
    return held


def _numbers(name: str) -> list[int]:
    return [int(number) for number in _NUMBER.findall(name)]


def _found(case: Case, pattern: str, paths: list[int], trend: Trend) -> Finding:
    table = case.table
    first_seen = [int(np.isfinite(table.retained[HOST][path]).argmax()) for path in paths]
    names = [table.latest[path].name for path in paths]
    seen = zip(first_seen, map(_numbers, names), names, strict=True)
    ordered = [name for _, _, name in sorted(seen)]
    total = float(_together(case, paths).max())
    gained = case.device_gain(HOST) or 0.0
    return finding(
        "numbered_names",
        "New names are made all along",
        f"{ordered[0]}, {ordered[1]}, … {ordered[-1]}: {len(paths)} variables of one module, which "
        f"differ in their numbers alone and hold {human_bytes(total)}. None of them grows; there "
        "are ever more.",
        REMEDY,
        severity=Severity.WARNING
        if trend.net_bytes * policy.HORIZON >= policy.STEADY_BYTES
        else Severity.NOTE,
        trend=trend,
        share=trend.net_bytes / gained if gained > 0 else 0.0,
        total_bytes=total,
        falsifier=("If they were the stages of the program, no more of them would come.", None),
        subject=pattern,
    )
