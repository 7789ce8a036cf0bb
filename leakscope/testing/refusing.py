"""Tests that can't be called again and again, each with one sentence that says so."""

from __future__ import annotations

import inspect
import unittest
from typing import Any

import pytest


def refuse(item: pytest.Item) -> None:
    """Fail a marked test that is asynchronous, of unittest, or no function at all."""
    __tracebackhide__ = True
    reason = _reason(item)
    if reason:
        pytest.fail(f"leak_free calls a test again and again, and {reason}", pytrace=False)


def fail_as_async() -> None:
    """Fail a test whose call has returned something to be awaited."""
    __tracebackhide__ = True
    pytest.fail(f"leak_free calls a test again and again, and {_ASYNC}", pytrace=False)


_ASYNC = (
    "an async test is not run by calling it: run the round trip inside of a plain test, with "
    "asyncio.run()."
)


def _reason(item: pytest.Item) -> str:
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
