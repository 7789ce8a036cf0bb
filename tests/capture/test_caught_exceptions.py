"""Exceptions that the program catches are counted where they are caught, and nothing else is."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from leakscope.capture import events as subject
from leakscope.capture.events import CaughtExceptions, clauses_of

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="sys.monitoring came with CPython 3.12"
)


def by_kind(fails: bool) -> None:
    try:
        if fails:
            raise ValueError
    except KeyError:
        raise
    except (ValueError, TypeError) as error:
        del error


def bare(fails: bool) -> None:
    try:
        1 / (not fails)
    except:  # noqa: E722
        pass


def passed_on(fails: bool) -> None:
    with contextlib.suppress(ValueError):
        try:
            if fails:
                raise ValueError
        finally:
            gc.is_tracked(())


def of_another_kind(fails: bool) -> None:
    with contextlib.suppress(ValueError):
        try:
            if fails:
                raise ValueError
        except KeyError:
            pass


@pytest.fixture
def caught(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subject, "belongs_to_user", lambda file: file == __file__)
    counted: list[int] = []
    caught = CaughtExceptions(lambda: counted.append(1))
    caught.counted = counted  # type: ignore[attr-defined]
    caught.install()
    yield caught
    caught.uninstall()


def looked_at(caught: CaughtExceptions, function: Callable[[bool], None]) -> None:
    caught._listen(function.__code__)


@pytest.mark.parametrize("function", [by_kind, bare])
def test_what_a_clause_catches_is_counted_each_time(caught, function) -> None:
    looked_at(caught, function)
    for _ in range(3):
        function(False)
        function(True)
    assert len(caught.counted) == 3


@pytest.mark.parametrize("function", [passed_on, of_another_kind])
def test_what_passes_by_or_is_caught_elsewhere_is_not(caught, function) -> None:
    looked_at(caught, function)
    for _ in range(3):
        function(True)
    assert caught.counted == []
    assert clauses_of(passed_on.__code__) == frozenset()


def test_functions_that_run_are_listened_to_and_so_is_what_they_define(caught) -> None:
    def inner() -> None:
        bare(True)
        try:
            raise KeyError
        except KeyError:
            pass

    caught.follow(sys._getframe())
    inner()
    assert len(caught.counted) == 1


def test_functions_of_other_threads_and_of_modules_are_listened_to(
    caught, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("handlers")
    code = """
def handle(fails):
    try: 1 / (not fails)
    except ZeroDivisionError: pass
class Service:
    def method(self): handle_it(True)
    @staticmethod
    def fixed(): handle_it(True)
def wait(begun, over):
    begun.set(); over.wait()
    try: 1 / 0
    except ZeroDivisionError: pass
waits = wait
del wait
def handle_it(fails):
    handle(fails)
"""
    file = str(Path(__file__).with_name("handlers.py"))
    monkeypatch.setattr(subject, "belongs_to_user", lambda name: name == file)
    module.__file__ = file
    exec(compile(code, file, "exec"), vars(module))
    waits = vars(module).pop("waits")
    begun, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=waits, args=(begun, over))
    thread.start()
    begun.wait()
    monkeypatch.setitem(sys.modules, "handlers", module)
    caught.look()
    over.set()
    thread.join()
    assert len(caught.counted) == 1
    module.handle(True)
    module.Service().method()
    module.Service.fixed()
    assert len(caught.counted) == 4


def test_code_is_left_as_it_was_and_is_not_kept(caught) -> None:
    names: dict[str, Callable[[], None]] = {}
    exec("def made():\n    try: 1 / 0\n    except ArithmeticError: pass", names)
    looked_at(caught, names["made"])
    names["made"]()
    assert len(caught.counted) == 1
    code = weakref.ref(names["made"].__code__)
    del names
    gc.collect()
    assert code() is None
    looked_at(caught, by_kind)
    tool = caught._tool
    caught.uninstall()
    assert sys.monitoring.get_tool(tool) is None
    by_kind(True)
    assert len(caught.counted) == 1


def test_where_every_number_is_taken_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_TOOLS", ())
    caught = CaughtExceptions(lambda: pytest.fail("counted"))
    caught.install()
    caught.follow(sys._getframe())
    bare(True)
    caught.uninstall()
