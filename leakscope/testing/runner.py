"""What belongs to the test runner: it gathers while a test runs, which isn't the test's doing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from io import StringIO
from types import GeneratorType

from leakscope.heap import anatomy
from leakscope.heap.frames import locals_of

_RUNNERS = frozenset({"_pytest", "pluggy", "xdist", "execnet", "__channelexec__", "pytest_timeout"})
"""Packages, and the name under which execnet runs the worker of xdist."""
_GATHERING = frozenset(
    {
        "_pytest.logging",
        "_pytest.capture",
        "_pytest.recwarn",
        "_pytest.monkeypatch",
        "_pytest.junitxml",
    }
)
"""Modules whose objects keep what a test printed, logged, patched or told until it ends."""
_STRUCTURE = frozenset(
    {
        "_pytest.config",
        "_pytest.fixtures",
        "_pytest.main",
        "_pytest.nodes",
        "_pytest.python",
        "_pytest.runner",
        "_pytest.unittest",
    }
)
"""Modules whose objects are the tests themselves, and lead to the values of their fixtures."""
_RUNNING = ("_pytest.runner", "SetupState")
"""The class that knows the test that is running, and all that it is part of."""
_OF_THE_RUNNING = ("user_properties", "_report_sections", "stash")
_RECORDING = ("_pytest.warnings", "catch_warnings_for_item")
"""The generator whose ``log`` gets the warnings of a test."""


def is_of_runner(path: str) -> bool:
    """Return whether a path begins in a running function or a module of the test runner."""
    return path.partition(".")[0].partition("·")[0] in _RUNNERS


def is_made_by_runner(value: object) -> bool:
    """Return whether an object is one of the test runner's own."""
    return anatomy.module_name(type(value)).partition(".")[0] in _RUNNERS


def gathering() -> list[object]:
    """Return the objects that gather until the running test ends, wherever names lead to them."""
    found: list[object] = []
    for obj, home in _with_homes():
        if home[0] in _GATHERING:
            _settle(obj)
            # Its lists too, for others refer to those past it.
            found += [obj, *(v for v in _attributes(obj).values() if type(v) is list)]
        elif home == _RUNNING:
            found += _kept_of_tests(obj)
        elif type(obj) is GeneratorType:
            found += _recorded(obj)
    return found


def structure() -> list[object]:
    """Return the objects that are the tests: a ``conftest`` may have a name for each of them.

    What a fixture gathers lies behind them, and such a name would say nothing of it.
    """
    return [obj for obj, (module, _) in _with_homes() if module in _STRUCTURE]


def _with_homes() -> Iterator[tuple[object, tuple[str, str]]]:
    """Yield the collector's objects with the module and the name of their classes."""
    homes: dict[int, tuple[str, str]] = {}
    for obj in gc.get_objects():
        cls = type(obj)
        home = homes.get(id(cls))
        if home is None:
            home = homes[id(cls)] = (anatomy.module_name(cls), anatomy.qualname(cls))
        yield obj, home


def _attributes(obj: object) -> dict[str, object]:
    return anatomy.instance_dict(obj) or {}


def _kept_of_tests(running: object) -> Iterator[object]:
    for node in list(_attributes(running).get("stack", ())):  # type: ignore[call-overload]
        kept = _attributes(node)
        yield from (kept[name] for name in _OF_THE_RUNNING if name in kept)


def _recorded(generator: GeneratorType) -> list[object]:  # type: ignore[type-arg]
    frame = generator.gi_frame
    if frame is None or frame.f_code.co_name != _RECORDING[1]:
        return []
    if frame.f_globals.get("__name__") != _RECORDING[0]:
        return []
    return [value for name, value in locals_of(frame) if name == "log" and value is not None]


def _settle(gatherer: object) -> None:
    """Let the text stream of a log handler write its pieces into its buffer.

    Until it is first read from it keeps them in a list that only the collector knows of
    (``Modules/_io/stringio.c``), which would pass for one that native code holds.
    """
    stream = _attributes(gatherer).get("stream")
    if type(stream) is StringIO and not stream.closed and stream.tell():
        stream.read(0)
