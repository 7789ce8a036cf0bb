"""Ground that all tests stand on."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from sampling import is_of_the_sample
from snippet_recorder import SnippetRecorder
from warm import Warm

# A shell that starts the tests in the background ignores Ctrl-C, and what they start inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Threads of torch's that wait for each other on cores taken by other tests burn minutes. Programs
# that tests start inherit this.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A rare series that breaks a property is looked for by HYPOTHESIS_PROFILE=search, not by chance in
# a run of the tests for something else. No example is held against the clock of a busy machine.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


FIRST = ("testing", "capture", "probes", "cleanup")
"""Rooms whose tests look at the heap of their own process, while that is small."""
LONG = ("end_to_end", "examples", "faults", "fidelity", "zoo", "cli", "frameworks", "browser")
"""Rooms whose tests start programs; quick ones come last, so that all workers end together."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {room: place for place, room in enumerate((*FIRST, *LONG))}
    tests = Path(__file__).parent
    rooms = {item: item.path.relative_to(tests).parts[0] for item in items}
    items.sort(key=lambda item: places.get(rooms[item], len(places)))
    for item in items:
        if is_of_the_sample(item.nodeid.removeprefix("tests/")):
            item.add_marker("sample")


@pytest.fixture(autouse=True)
def no_session_is_left() -> Iterator[None]:
    """Find the test that leaves a session open: the next one could not begin its own."""
    yield
    session = sys.modules.get("leakscope.capture.session")
    left = None if session is None else session.current_session()
    if left is not None and left.is_live:
        left.close(status="left")
        pytest.fail("this test left its session open")


@pytest.fixture(scope="session")
def leakscope_commands() -> Iterator[Warm]:
    """Return what runs ``-m leakscope`` without its imports; a profiled program starts afresh."""
    with Warm("leakscope.cli.run", "leakscope.cli.report", "leakscope.report.html") as it:
        yield it


@pytest.fixture(scope="session")
def torch_programs() -> Iterator[Warm]:
    """Return what runs plain programs without the time that importing torch takes."""
    with Warm("torch", "torch._dynamo") as it:
        yield it


@pytest.fixture(scope="session")
def recorder() -> Iterator[SnippetRecorder]:
    """Return what records programs without the seconds that importing torch takes."""
    with SnippetRecorder() as it:
        yield it
