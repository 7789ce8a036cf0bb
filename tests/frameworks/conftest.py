"""What the tests of all frameworks need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from course import Course

from leakscope.capture.session import Session, current_session


@pytest.fixture(autouse=True)
def no_session_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what a fault of ours on purpose left open."""
    monkeypatch.delenv("LEAKSCOPE_STRICT", raising=False)
    monkeypatch.delenv("LEAKSCOPE", raising=False)
    yield
    session = current_session()
    if session is not None:
        session.close(status="completed")


@pytest.fixture
def course(monkeypatch: pytest.MonkeyPatch) -> Course:
    """Return the events from now on; nothing is measured."""
    course = Course()
    monkeypatch.setattr(Session, "_reach", lambda *reported: course.reach(*reported))
    return course
