from __future__ import annotations

import runpy
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leakscope.heap import CensusTaker
from leakscope.model.census import Census, CensusRow, CensusScope

ALONE = "test_heap_snapshot.py"
"""Its tests look at the whole process: they need one without other tests' objects."""

_taken: list[Census] = []
_taking: list[tuple[CensusTaker, CensusScope]] = []


def look() -> None:
    """What the programs under test call: they see a plain function without a closure."""
    for taker, scope in _taking:
        _taken.append(taker.take(scope))


class Taken:
    """The censuses that a program took of itself."""

    def __init__(self, censuses: list[Census], taker: CensusTaker) -> None:
        self.censuses = censuses
        self.taker = taker

    @property
    def last(self) -> Census:
        return self.censuses[-1]

    def row(self, name: str, census: int = -1) -> CensusRow:
        found = [row for row in self.censuses[census].rows if row.name == name]
        assert len(found) == 1, (name, sorted(row.name for row in self.censuses[census].rows))
        return found[0]

    def at(self, path: str, census: int = -1) -> CensusRow:
        rows = {row.path: row for row in self.censuses[census].rows}
        assert path in rows, sorted(rows)
        return rows[path]

    def names(self, census: int = -1) -> set[str]:
        return {row.name for row in self.censuses[census].rows}


RunProgram = Callable[..., Taken]
"""Runs a program as ``__main__``; each ``look()`` in it takes a census."""


def program_runner(folder: Path) -> RunProgram:
    def run(source: str, *, scope: CensusScope = CensusScope.FOCUSED, **options: Any) -> Taken:
        script = folder / "train.py"
        script.write_text(textwrap.dedent(source), encoding="utf-8")
        taker = CensusTaker(project_root=str(folder), **options)
        _taken.clear()
        _taking[:] = [(taker, scope)]
        try:
            runpy.run_path(str(script), init_globals={"look": look}, run_name="__main__")
            return Taken(list(_taken), taker)
        finally:
            _taking.clear()
            _taken.clear()

    return run
