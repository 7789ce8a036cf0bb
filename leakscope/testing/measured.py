"""One test's rounds, with faults of ours contained, and what becomes of what they find."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leakscope.model.census import Owner
from leakscope.model.errors import LeakscopeError
from leakscope.model.growth import Growth, GrowthReport
from leakscope.model.interrupts import ours
from leakscope.model.version import __version__
from leakscope.testing.faults import REPORTED, tell
from leakscope.testing.looking import Given, Looker
from leakscope.testing.reach import Reach, code_of, tests_of
from leakscope.testing.rounds import Plan, Rounds, to_plan
from leakscope.testing.scenario import growth_in

_LONGEST_NAME = 120


class Measured:
    """The calls of one test; an exception of ours ends them with a warning and no finding."""

    def __init__(self, item: pytest.Function, plan: Plan, *, with_fixtures: bool) -> None:
        self._item = item
        self._plan = plan
        self._with_fixtures = with_fixtures
        self._rounds: Rounds | None = None
        self._growth: list[Growth] = []
        self.calls = 0
        self.is_over = False

    def __iter__(self) -> Generator[int, None, None]:
        """Yield the number of each call, at least one."""
        with closing(self._begun()) as rounds:
            while (number := self._next(rounds)) is not None:
                self.calls = number
                yield number
        if not self.calls:
            self.calls = 1
            yield 1
        self._growth = self._judged()
        self.is_over = True

    @property
    def report(self) -> GrowthReport:
        """What was found."""
        return GrowthReport(
            leakscope_version=__version__,
            scenario=self._item.nodeid,
            calls=self.calls,
            allow_bytes=self._plan.allow_bytes,
            growths=self._growth,
        )

    def _begun(self) -> Generator[int, None, None]:
        """Return the rounds as an iterator, which begins with the first call of ``next``."""
        looker = Looker(str(self._item.config.rootpath), self._given())
        self._rounds = Rounds(looker, self._plan)
        yield from self._rounds

    def _next(self, rounds: Generator[int, None, None]) -> int | None:
        try:
            return next(rounds, None)
        except ours(Exception) as fault:
            tell(self._item, fault)
            return None

    def _judged(self) -> list[Growth]:
        rounds = self._rounds
        try:
            return growth_in(rounds) if rounds is not None and rounds.is_over else []
        except ours(Exception) as fault:
            tell(self._item, fault)
            return []
        finally:
            self._rounds = None
            if rounds is not None:
                rounds.forget()

    def _given(self) -> Given:
        """Return the test's fixtures and its instance, under the names that the test has for them.

        The function that is running has names of its own for them.
        """
        item = self._item
        own = code_of(item.function)
        others = [code for code in tests_of(vars(item.module).values()) if code is not own]
        reach = Reach(own, others)
        if not self._with_fixtures:
            return Given({}, reach=reach)
        code = getattr(item.obj, "__code__", None)
        return Given(
            _Fixtures(item),
            Owner(
                kind="function",
                name=getattr(item.obj, "__qualname__", item.originalname),
                file=str(item.path) if code is None else code.co_filename,
                line=0 if code is None else code.co_firstlineno,
                module=item.module.__name__,
            ),
            reach,
        )


class _Fixtures(Mapping[str, Any]):
    """What a test's fixtures are now, and its instance, by the names that the test has for them.

    Those that it asks for while it runs come later: ``request.getfixturevalue("server")``.
    """

    def __init__(self, item: pytest.Function) -> None:
        self._item = item

    def __getitem__(self, name: str) -> Any:
        return self._values()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def _values(self) -> dict[str, Any]:
        item = self._item
        asked = getattr(getattr(item, "_request", None), "_fixture_defs", {})
        results = {name: getattr(made, "cached_result", None) for name, made in asked.items()}
        values = {name: result[0] for name, result in results.items() if result is not None}
        values |= item.funcargs
        return values if item.instance is None else {**values, "self": item.instance}


def plan_of(arguments: tuple[Any, ...], options: dict[str, Any], name: str) -> Plan:
    """Return the plan that a test asks for; one that makes no sense fails the test."""
    __tracebackhide__ = True
    known = ("steps", "warmup", "allow", "ignore")
    wrong = [*map(repr, arguments), *(key for key in options if key not in known)]
    if wrong:
        pytest.fail(
            f"{name} takes steps=, warmup=, allow= and ignore=, not {', '.join(wrong)}.",
            pytrace=False,
        )
    try:
        return to_plan(**options)
    except LeakscopeError as error:
        fault = str(error)
    # Outside: else pytest tells the error as well, around that it was raised during another.
    pytest.fail(f"{name}: {fault}", pytrace=False)


def fail_for(report: GrowthReport) -> None:
    """Fail the test for what grows."""
    __tracebackhide__ = True
    from leakscope.report.growth import render_growth_text

    pytest.fail(render_growth_text(report), pytrace=False)


def write_report(item: pytest.Function, report: GrowthReport) -> None:
    """Write the report where the user asked for it, and have the summary say where."""
    folder = item.config.getoption(REPORTED)
    if folder is None:
        return
    try:
        from leakscope.report.encoding import render_plain
        from leakscope.report.html import render_growth_html

        path = Path(item.config.invocation_params.dir, folder, f"{_name(item.nodeid)}.html")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render_growth_html(report), encoding="utf-8", errors="backslashreplace")
        path.with_suffix(".json").write_text(render_plain(report), encoding="utf-8")
    except ours(Exception) as fault:
        tell(item, fault)
        return
    item.user_properties.append((REPORTED, str(path)))


def _name(nodeid: str) -> str:
    """Return a file's name for a test: its id as far as files can be called so, and a check."""
    plain = re.sub(r"[^\w.]+", "-", nodeid.replace("/", ".").replace("::", ".")).strip("-.")
    check = hashlib.sha1(nodeid.encode(), usedforsecurity=False).hexdigest()[:6]
    return f"{plain[:_LONGEST_NAME]}-{check}"
