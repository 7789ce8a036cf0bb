"""Which code a scenario is: of several lines that may feed a container its own come first."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leakscope.analysis.source import FeedingLine

_OWN, _ANY, _ELSEWHERE = range(3)


@dataclass(frozen=True)
class Reach:
    """The lines of a scenario, and those of others that don't run meanwhile."""

    own: types.CodeType | None = None
    elsewhere: Sequence[types.CodeType] = ()
    """Such as the other tests of the same file."""

    def likeliest_first(self, feeding: Iterable[FeedingLine]) -> list[FeedingLine]:
        """Return lines, the scenario's own first; others' only where there are none but these."""
        own = _extents([self.own] if self.own else [])
        elsewhere = _extents(self.elsewhere)
        ranks = {
            line: _OWN if _lies_in(line, own) else _ELSEWHERE if _lies_in(line, elsewhere) else _ANY
            for line in feeding
        }
        left = [line for line, rank in ranks.items() if rank != _ELSEWHERE] or list(ranks)
        return sorted(left, key=lambda line: ranks[line])


def code_of(scenario: object) -> types.CodeType | None:
    """Return the code that a callable runs, through partials and methods."""
    while isinstance(scenario, functools.partial):
        scenario = scenario.func
    function = scenario.__func__ if type(scenario) is types.MethodType else scenario
    return function.__code__ if type(function) is types.FunctionType else None


def tests_of(names: Iterable[object]) -> Iterator[types.CodeType]:
    """Yield the code of the tests among a module's values, those of its classes included."""
    for value in names:
        if type(value) is types.FunctionType and value.__name__.startswith("test"):
            yield value.__code__
        elif type(value) is type:
            yield from tests_of(f for f in vars(value).values() if type(f) is types.FunctionType)


_Extent = tuple[str, int, int]


def _extents(codes: Iterable[types.CodeType]) -> list[_Extent]:
    return [(code.co_filename, code.co_firstlineno, max(_lines(code))) for code in codes]


def _lines(code: types.CodeType) -> Iterator[int]:
    yield code.co_firstlineno
    yield from (line for *_, line in code.co_lines() if line is not None)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _lines(constant)


def _lies_in(line: FeedingLine, extents: Iterable[_Extent]) -> bool:
    return any(line.file == file and first <= line.line <= last for file, first, last in extents)
