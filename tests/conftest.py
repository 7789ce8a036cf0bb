"""Ground that all tests stand on."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest
from warm import Warm

# A shell that starts the tests in the background ignores Ctrl-C, and what they start inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Threads of torch's that wait for each other on cores taken by other tests burn minutes. Programs
# that tests start inherit this.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def no_session_is_left() -> Iterator[None]:
    """Find the test that leaves a session open: the next one could not begin its own."""
    yield
    session = sys.modules.get("leakscope.instrument.session")
    left = None if session is None else session.current_session()
    if left is not None and left.is_live:
        left.close(status="left")
        pytest.fail("this test left its session open")


@pytest.fixture(scope="session")
def leakscope_commands() -> Iterator[Warm]:
    """Return what runs ``-m leakscope`` without its imports; a profiled program starts anew."""
    with Warm("leakscope.cli", "leakscope.analysis", "leakscope.report.html") as it:
        yield it


@pytest.fixture(scope="session")
def torch_programs() -> Iterator[Warm]:
    """Return what runs plain programs without the time that importing torch takes."""
    with Warm("torch", "torch._dynamo") as it:
        yield it
