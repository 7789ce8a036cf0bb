"""One test called again and again: for the fixture ``leakscope``, and for
``@pytest.mark.leak_free``.

Faults of ours are contained. A test that can't be repeated fails with one sentence that says why.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import unittest
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from leakscope.model import __version__
from leakscope.model.census import Owner
from leakscope.model.documents import Growth, GrowthReport
from leakscope.model.errors import LeakscopeError, ours
from leakscope.testing import REPORTED, warn_unmeasured
from leakscope.testing.heap_sampler import (
    HeapSampler,
    KnownNames,
    Plan,
    Rounds,
    ScenarioCode,
    code_of,
    tests_of,
    to_plan,
)
from leakscope.testing.scenario import growth_in


class LeakscopeFixture:
    """Repeats what a test wants repeated, and reports what grows."""

    def __init__(self, item: pytest.Function) -> None:
        self._item = item
        self._measured: RepeatedTest | None = None
        self._calls: Generator[int, None, None] | None = None

    def rounds(self, **options: Any) -> Iterator[int]:
        """Repeat the body of a loop: ``for _ in leakscope.rounds(steps=20): …``.

        A round trip begins and ends with the loop's body. It is repeated as often as a decision
        needs, as :func:`leakscope.find_growth` does, whose ``steps``, ``warmup``, ``allow`` and
        ``ignore`` this takes; each is yielded its number. Afterwards ask ``growth`` or ``check()``.
        """
        plan = plan_of((), options, "leakscope.rounds()")
        self._measured = RepeatedTest(self._item, plan)
        self.close()
        self._calls = iter(self._measured)
        return self._calls

    def find_growth(self, scenario: Callable[[], object], **options: Any) -> list[Growth]:
        """Repeat a call instead of a loop's body, and return what grows."""
        for _ in self.rounds(**options):
            scenario()
        return self.growth

    @property
    def growth(self) -> list[Growth]:
        """What grew in the latest rounds, the fastest first; empty where nothing did.

        Raises:
            LeakscopeError: there were no rounds, or they were left before they were over.

        """
        return self._finished().report.growths

    def check(self) -> None:
        """Fail the test when something grew, with a report where one is requested.

        Raises:
            LeakscopeError: there were no rounds, or they were left before they were over.

        """
        __tracebackhide__ = True
        fail_for_growth(self._item, self._finished().report)

    def close(self) -> None:
        """End rounds that were left before they were over."""
        if self._calls is not None:
            self._calls.close()

    def _finished(self) -> RepeatedTest:
        if self._measured is None or not self._measured.is_over:
            raise LeakscopeError(
                "Nothing is known of growth before the rounds are over: "
                "let `for _ in leakscope.rounds():` come to its end.",
                slug="rounds-not-over",
            )
        return self._measured


def call_repeatedly(item: pytest.Function, mark: pytest.Mark) -> None:
    """Call a test as its mark says and fail it when something that it leaves behind grows.

    Fixtures are set up once around all calls. What the test raises is passed on.
    """
    __tracebackhide__ = True
    plan = plan_of(mark.args, dict(mark.kwargs), "leak_free")
    arguments = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
    measured = RepeatedTest(item, plan)
    with closing(iter(measured)) as calls:
        for number in calls:
            _call(item, arguments, number)
    fail_for_growth(item, measured.report)


def _call(item: pytest.Function, arguments: Mapping[str, Any], number: int) -> None:
    __tracebackhide__ = True
    test: Callable[..., object] = item.obj
    try:
        result = test(**arguments)
    except (Exception, pytest.fail.Exception):
        if number > 1:
            item.add_report_section("call", "leakscope", _LATER_CALL.format(number))
        raise
    if hasattr(result, "__await__") or hasattr(result, "__aiter__"):
        _fail_as_unrepeatable(_ASYNC)
    if result is not None and number == 1:
        text = f"Test functions should return None, but {item.nodeid} returned {type(result)!r}."
        warnings.warn(pytest.PytestReturnNotNoneWarning(text), stacklevel=2)


_LATER_CALL = (
    "The test passed when it was called first; this was call {}. leak_free calls it "
    "again and again, while its fixtures, also those of function scope, are set up once around "
    "all calls: undo in the test what a second call would stumble over."
)
_LONGEST_NAME = 120


class RepeatedTest:
    """The calls of one test; an exception of ours ends them with a warning and no finding."""

    def __init__(self, item: pytest.Function, plan: Plan) -> None:
        self._item = item
        self._plan = plan
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
        looker = HeapSampler(str(self._item.config.rootpath), self._known_names())
        self._rounds = Rounds(looker, self._plan)
        yield from self._rounds

    def _next(self, rounds: Generator[int, None, None]) -> int | None:
        try:
            return next(rounds, None)
        except ours(Exception) as fault:
            warn_unmeasured(self._item, fault)
            return None

    def _judged(self) -> list[Growth]:
        rounds = self._rounds
        try:
            return growth_in(rounds) if rounds is not None and rounds.is_over else []
        except ours(Exception) as fault:
            warn_unmeasured(self._item, fault)
            return []
        finally:
            self._rounds = None
            if rounds is not None:
                rounds.forget()

    def _known_names(self) -> KnownNames:
        """Return the test's fixtures and its instance, under the names that the test has for them.

        The function that is running has names of its own for them.
        """
        item = self._item
        own = code_of(item.function)
        others = [code for code in tests_of(vars(item.module).values()) if code is not own]
        code = getattr(item.obj, "__code__", None)
        return KnownNames(
            partial(_fixtures_of, item),
            Owner(
                kind="function",
                name=getattr(item.obj, "__qualname__", item.originalname),
                file=str(item.path) if code is None else code.co_filename,
                line=0 if code is None else code.co_firstlineno,
                module=item.module.__name__,
            ),
            ScenarioCode(own, others),
        )


def _fixtures_of(item: pytest.Function) -> dict[str, Any]:
    """Return what a test's fixtures are now, and its instance, by the names that it has for them.

    Those that it asks for while it runs come later: ``request.getfixturevalue("server")``.
    """
    definitions = getattr(getattr(item, "_request", None), "_fixture_defs", {})
    results = {name: getattr(made, "cached_result", None) for name, made in definitions.items()}
    values = {name: result[0] for name, result in results.items() if result is not None}
    values |= item.funcargs
    return values if item.instance is None else {**values, "self": item.instance}


def plan_of(arguments: tuple[Any, ...], options: dict[str, Any], name: str) -> Plan:
    """Return the plan that a test asks for; an invalid one fails the test."""
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


def fail_for_growth(item: pytest.Function, report: GrowthReport) -> None:
    """Fail the test when something grew, with a report where one is requested."""
    __tracebackhide__ = True
    if report.growths:
        _write_report(item, report)
        from leakscope.report.scenario import render_growth_text

        pytest.fail(render_growth_text(report), pytrace=False)


def _write_report(item: pytest.Function, report: GrowthReport) -> None:
    """Write the report where the user requested it, and have the summary say where."""
    folder = item.config.getoption(REPORTED)
    if folder is None:
        return
    try:
        from leakscope.report.html import render_growth_html
        from leakscope.report.json import render_json

        path = Path(item.config.invocation_params.dir, folder, f"{_report_name(item.nodeid)}.html")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render_growth_html(report), encoding="utf-8", errors="backslashreplace")
        path.with_suffix(".json").write_text(render_json(report), encoding="utf-8")
    except ours(Exception) as fault:
        warn_unmeasured(item, fault)
        return
    item.user_properties.append((REPORTED, str(path)))


def _report_name(nodeid: str) -> str:
    """Return a file's name for a test: its id as far as files can be called so, and a check."""
    plain = re.sub(r"[^\w.]+", "-", nodeid.replace("/", ".").replace("::", ".")).strip("-.")
    check = hashlib.sha1(nodeid.encode(), usedforsecurity=False).hexdigest()[:6]
    return f"{plain[:_LONGEST_NAME]}-{check}"


def refuse(item: pytest.Item) -> None:
    """Fail a marked test that is asynchronous, of unittest, or no function at all."""
    __tracebackhide__ = True
    reason = _why_not_repeatable(item)
    if reason:
        _fail_as_unrepeatable(reason)


def _fail_as_unrepeatable(reason: str) -> None:
    __tracebackhide__ = True
    pytest.fail(f"leak_free calls a test again and again, and {reason}", pytrace=False)


_ASYNC = (
    "an async test is not run by calling it: run the round trip inside of a plain test, with "
    "asyncio.run()."
)


def _why_not_repeatable(item: pytest.Item) -> str:
    test: Any = getattr(item, "obj", None)
    if not isinstance(item, pytest.Function) or test is None:
        return "this is no test function."
    if item.cls is not None and issubclass(item.cls, unittest.TestCase):
        return (
            "a test of unittest.TestCase is run by its class: write it as a function, or call "
            "leakscope.find_growth() in it."
        )
    plain = inspect.unwrap(test)
    if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        return _ASYNC
    return ""
