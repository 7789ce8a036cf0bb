"""The pytest plugin: ``@pytest.mark.leak_free``, the fixture ``leakscope``, ``--leakscope-report``.

pytest loads this module in every run. What measures is imported by the first test that asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leakscope.testing import REPORTED, warn_unmeasured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leakscope.testing.fixture import LeakscopeFixture

MARK = "leak_free"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes reports."""
    parser.getgroup("leakscope").addoption(
        "--leakscope-report",
        metavar="DIR",
        dest=REPORTED,
        default=None,
        help="write a report (HTML and JSON) of each test that leaks into DIR",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line(
        "markers",
        f"{MARK}(steps=20, warmup=3, allow='0 B', ignore=()): call the test again and again, "
        "and fail it when something that it leaves behind grows by more than allow per call",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail marked tests that can't be called again and again."""
    if item.get_closest_marker(MARK) is not None:
        from leakscope.testing.fixture import refuse

        refuse(item)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Call a marked test again and again."""
    mark = pyfuncitem.get_closest_marker(MARK)
    if mark is None:
        return None
    try:
        from leakscope.testing.fixture import call_repeatedly
    except Exception as fault:
        warn_unmeasured(pyfuncitem, fault)
        return None
    call_repeatedly(pyfuncitem, mark)
    return True


@pytest.fixture
def leakscope(request: pytest.FixtureRequest) -> Iterator[LeakscopeFixture]:
    """For tests that say themselves what a round trip is, and look at what grows.

    ``for _ in leakscope.rounds(): …`` repeats the loop's body, ``leakscope.growth`` is what grew,
    ``leakscope.check()`` fails the test for it; ``leakscope.find_growth(scenario)`` calls a
    function instead.
    """
    from leakscope.testing.fixture import LeakscopeFixture

    fixture = LeakscopeFixture(request.node)
    yield fixture
    fixture.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where the reports are."""
    tests = [test for found in terminalreporter.stats.values() for test in found]
    reported = {
        str(path): None
        for test in tests
        for name, path in getattr(test, "user_properties", ())
        if name == REPORTED
    }
    if reported:
        terminalreporter.section("leakscope reports")
        for path in reported:
            terminalreporter.line(path)
