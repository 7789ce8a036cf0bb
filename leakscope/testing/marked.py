"""Tests with ``@pytest.mark.leak_free``: called again and again, and failed for what grows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import pytest

from leakscope.testing.measured import Measured, fail_for, plan_of, write_report
from leakscope.testing.refusing import fail_as_async


def call_repeatedly(item: pytest.Function, mark: pytest.Mark) -> None:
    """Call a test as its mark says and fail it when something that it leaves behind grows.

    Fixtures are set up once around all calls. What the test raises is handed on.
    """
    __tracebackhide__ = True
    plan = plan_of(mark.args, dict(mark.kwargs), "leak_free")
    arguments = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
    measured = Measured(item, plan, with_fixtures=True)
    with closing(iter(measured)) as calls:
        for number in calls:
            _call(item, arguments, number)
    report = measured.report
    if report.growths:
        write_report(item, report)
        fail_for(report)


def _call(item: pytest.Function, arguments: Mapping[str, Any], number: int) -> None:
    __tracebackhide__ = True
    test: Callable[..., object] = item.obj
    try:
        result = test(**arguments)
    except (Exception, pytest.fail.Exception):
        if number > 1:
            item.add_report_section("call", "leakscope", _explained(number))
        raise
    if hasattr(result, "__await__") or hasattr(result, "__aiter__"):
        fail_as_async()
    if result is not None and number == 1:
        warnings.warn(_not_none(item, result), stacklevel=2)


def _explained(number: int) -> str:
    return (
        f"The test passed when it was called first; this was call {number}. leak_free calls it "
        "again and again, while its fixtures, also those of function scope, are set up once around "
        "all calls: undo in the test what a second call would stumble over."
    )


def _not_none(item: pytest.Function, result: object) -> pytest.PytestReturnNotNoneWarning:
    return pytest.PytestReturnNotNoneWarning(
        f"Test functions should return None, but {item.nodeid} returned {type(result)!r}."
    )
