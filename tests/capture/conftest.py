"""What the tests of this room share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_session import FakeSession


@pytest.fixture(autouse=True)
def fakes_are_closed(no_session_is_left: None) -> Iterator[None]:
    """Close the sessions of fakes, which most tests leave as they are."""
    FakeSession.begun.clear()
    yield
    for fake in FakeSession.begun:
        fake.session.close(status="completed")
    FakeSession.begun.clear()
